"""`leveret doctor`: finds problems of a machine, a configuration and a data directory, also while a broker runs."""

import argparse
import json
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from ..configured.host_capacity import SHARE_PERCENT, capacity_of
from ..journal import REAL, JournalError
from ..journal.disk.directory import LOCK, TERMS, find_journal, lock_directory, read_format
from ..journal.format.errors import DirectoryLocked
from ..journal.recovery.check import verify
from ..serving.addresses import AddressError, AddressTaken, bind, parse_address
from ..serving.descriptors import descriptor_limits
from ..settings import Configuration
from ..settings.printable import printable
from .configuration_files import load

OK, WARNING, FAULT = "ok", "warning", "fault"
EXIT_OK, EXIT_FAULT = 0, 2

#: Descriptors that a broker with thousands of connections needs.
DESCRIPTORS_MIN = 4096
#: Milliseconds of an fsync above which publishers notice it.
FSYNC_SLOW_MS = 20.0
FSYNC_ROUNDS, FSYNC_OCTETS = 9, 4096
#: Maximum octets of journals that are read whole.
JOURNAL_READ_MAX = 256 * 1024**2
#: File systems that lose data, or whose locks and fsyncs depend on another machine.
VOLATILE, REMOTE = {"tmpfs", "ramfs"}, {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs"}
#: 2026-01-01; a clock that shows an earlier time is wrong.
CLOCK_MIN_S = 1_767_225_600


@dataclass(slots=True, frozen=True)
class Finding:
    """The result of one check."""

    verdict: str
    what: str
    text: str
    advice: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", action="append", default=[], metavar="FILE", help="as for serve; repeatable")
    parser.add_argument("--data", default=None, metavar="DIR", help="directory of the journal, as for serve")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Check everything, and print the findings."""
    configuration, faults = load(options.config)
    found = [*_check_configuration(configuration, faults)]
    if faults:
        configuration = Configuration()
    data = options.data or configuration.broker.data
    found += [
        *_check_clock(),
        *_check_descriptors(),
        *_check_memory(configuration, data),
        *_check_addresses(configuration),
    ]
    found += [*_check_directory(configuration, data), *_check_journal(data)]
    if options.json:
        print(json.dumps([asdict(one) for one in found]))
    else:
        for one in found:
            print(printable(f"{one.verdict:7}  {one.what}: {one.text}"))
            if one.advice:
                print(printable(f"         -> {one.advice}"))
    return EXIT_FAULT if any(one.verdict == FAULT for one in found) else EXIT_OK


def _check_configuration(configuration: Configuration, faults: list[str]) -> Iterator[Finding]:
    for fault in faults:
        yield Finding(FAULT, "configuration", fault)
    for warning in () if faults else configuration.warnings:
        yield Finding(WARNING, "configuration", warning)
    if not faults and not configuration.warnings:
        yield Finding(OK, "configuration", "nothing is wrong with it")


def _check_clock() -> Iterator[Finding]:
    now = time.time()
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < CLOCK_MIN_S:
        yield Finding(FAULT, "clock", f"shows {shown}", "set it: expiry and time stamps use it")
    else:
        yield Finding(OK, "clock", shown)


def _check_descriptors() -> Iterator[Finding]:
    limits = descriptor_limits()
    if limits.process is None:
        yield Finding(OK, "descriptors", "no limit")
    elif limits.process < DESCRIPTORS_MIN:
        text = f"{limits.process} for this process, enough for {limits.connections} connections"
        advice = "raise it: ulimit -n 65536, LimitNOFILE= in a systemd unit"
        yield Finding(WARNING, "descriptors", text, advice)
    else:
        yield Finding(OK, "descriptors", f"{limits.process}, enough for {limits.connections} connections")


def _check_memory(configuration: Configuration, data: str) -> Iterator[Finding]:
    host = capacity_of(data)
    limit = configuration.broker_limits.memory
    text = f"{_size(limit)} for messages, of {_size(host.memory)} that the process may use"
    if limit * 100 > host.memory * SHARE_PERCENT:
        yield Finding(WARNING, "memory", text, f"[limits] memory: at most {SHARE_PERCENT} % of that")
    else:
        yield Finding(OK, "memory", text)


def _check_addresses(configuration: Configuration) -> Iterator[Finding]:
    for text in configuration.broker.listen:
        try:
            address = parse_address(text)
            if address.path and os.path.exists(address.path) and stat.S_ISSOCK(os.stat(address.path).st_mode):
                yield Finding(OK, "address", f"{text}: a socket is there; it is replaced if nobody listens")
                continue
            bind(address, 1).close()
            if address.path:
                os.unlink(address.path)
        except (AddressError, AddressTaken, OSError) as error:
            advice = "stop what listens there, or serve elsewhere: --listen, [broker] listen"
            yield Finding(WARNING, "address", str(error), advice)
        else:
            yield Finding(OK, "address", f"{text} is free")


def _check_directory(configuration: Configuration, data: str) -> Iterator[Finding]:
    folder = os.path.abspath(data)
    if os.path.exists(folder) and not os.path.isdir(folder):
        yield Finding(FAULT, "data directory", f"{data} is not a directory", "name another: --data, [broker] data")
        return
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        yield Finding(FAULT, "data directory", f"{folder} cannot be written", "make it writable for the broker's user")
        return
    kind = _file_system(folder)
    if kind in VOLATILE:
        yield Finding(
            WARNING, "data directory", f"{folder} is in memory ({kind})", "durable messages are lost at a reboot"
        )
    elif kind in REMOTE:
        yield Finding(WARNING, "data directory", f"{folder} is on another machine ({kind})", "use a disk of this one")
    needed = configuration.journal.reserve + 2 * configuration.journal.segment_size
    free = capacity_of(folder).free
    text = f"{_size(free)} free in {folder}"
    if free < needed:
        advice = f"a journal needs {_size(needed)} at least: the reserve and two segments"
        yield Finding(FAULT, "disk", text, advice)
    else:
        yield Finding(OK, "disk", text)
    yield _check_fsync(folder)


def _check_fsync(folder: str) -> Finding:
    """Measure the median time of an fsync after a write of one block."""
    name = os.path.join(folder, f".leveret-doctor-{os.getpid()}")
    times: list[float] = []
    try:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            for _ in range(FSYNC_ROUNDS):
                os.write(descriptor, bytes(FSYNC_OCTETS))
                began = time.perf_counter()
                os.fsync(descriptor)
                times.append((time.perf_counter() - began) * 1000)
        finally:
            os.close(descriptor)
            os.unlink(name)
    except OSError as error:
        return Finding(FAULT, "fsync", f"{folder}: {error.strerror or error}", "durable messages need it")
    median = sorted(times)[len(times) // 2]
    text = f"{median:.1f} ms for a block of {_size(FSYNC_OCTETS)} (median of {FSYNC_ROUNDS})"
    if median > FSYNC_SLOW_MS:
        return Finding(WARNING, "fsync", text, "confirms of persistent messages wait for it")
    return Finding(OK, "fsync", text)


def _check_journal(data: str) -> Iterator[Finding]:
    try:
        path = find_journal(data)
        if not os.path.isdir(path) or set(os.listdir(path)) <= {LOCK, TERMS}:  # a node before its first copy has TERMS
            yield Finding(OK, "journal", f"none in {data} yet")
            return
        read_format(path)
        try:
            REAL.close(lock_directory(path, REAL))
        except DirectoryLocked:
            yield Finding(OK, "journal", f"{path} is in use by a broker, and was not checked")
            return
        octets = capacity_of(path).stored
        if octets > JOURNAL_READ_MAX:
            advice = f"leveret journal verify {path} reads all of it"
            yield Finding(OK, "journal", f"{path} has {_size(octets)}, and is not read", advice)
            return
        report = verify(path)
    except (JournalError, OSError) as error:
        yield Finding(FAULT, "journal", str(error), "name another directory: --data, [broker] data")
        return
    if report.faults:
        advice = f"leveret journal verify {path} shows all, leveret journal repair saves what can be read"
        yield Finding(FAULT, "journal", f"{path}: {len(report.faults)} faults, the first: {report.faults[0]}", advice)
    elif report.torn_bytes:
        text = f"{path}: {report.records} records; the end was cut short by a crash, which is not a loss"
        yield Finding(OK, "journal", text)
    else:
        yield Finding(OK, "journal", f"{path}: {report.records} records, all intact")


def _file_system(folder: str) -> str:
    """The type of the file system of a folder, in the system's words; "" if the system does not tell."""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
            mounts = [line.split(" ")[1:3] for line in file if line.count(" ") >= 2]
    except OSError:
        return ""
    real = os.path.realpath(folder)
    found = [(len(point), kind) for point, kind in mounts if real == point or real.startswith(point.rstrip("/") + "/")]
    return max(found)[1] if found else ""


def _size(octets: int) -> str:
    for unit, size in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if octets >= size:
            return f"{octets / size:.1f} {unit}"
    return f"{octets} B"
