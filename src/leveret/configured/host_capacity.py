"""The capacity of this machine, and [system-usage] fitted to it: percentages as octets, and no limit above it.

Source: queues page E.1, "memory limit > process memory", and H.3, "percent" and "reject".
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace

from ..settings import Configuration, SystemUsage
from ..settings.frozen import frozen

#: A memory limit above the memory that the process may use becomes this percentage of it. A limit of the journal that
#: a file sets above this percentage of the disk gets a warning, because the journal may exceed its limit a little.
SHARE_PERCENT = 70

#: Octets that no machine has: version 1 of cgroups reports at least these for "no limit".
_ENDLESS = 2**60


@frozen
class HostCapacity:
    """The memory that the process may use, and the capacity of a directory, in octets.

    `disk`, `free`: the size of the directory's disk, and what is free on it. `stored`: the size of its files.
    """

    memory: int
    disk: int
    free: int
    stored: int = 0


def fitted_to_host(configuration: Configuration, directory: str) -> Configuration:
    """The configuration with limits that this machine can keep.

    Args: directory: of the journal, or of the temporary store of a broker without a journal.
    """
    if configuration.system_usage is None:
        return configuration  # the machine is not asked
    return fitted(configuration, capacity_of(directory))


def fitted(configuration: Configuration, host: HostCapacity) -> Configuration:
    """The configuration with limits that a host can keep, and a warning for each limit in files that was too high."""
    usage = configuration.system_usage
    if usage is None:
        return configuration
    sized = usage.sized(memory=host.memory, disk=host.disk)
    lower = replace(
        sized,
        memory=sized.memory if sized.memory <= host.memory else host.memory * SHARE_PERCENT // 100,
        store=min(sized.store, host.free + host.stored),
        temp=min(sized.temp, host.free),
    )
    warnings = (*configuration.warnings, *_warnings(configuration, sized, lower, host))
    return replace(configuration, system_usage=lower, warnings=warnings)


def _warnings(
    configuration: Configuration, wanted: SystemUsage, given: SystemUsage, host: HostCapacity
) -> Iterator[str]:
    """Warnings about limits in files; defaults are lowered silently."""
    for key, problem in (
        ("memory", f"is more than the process may use: it gets {SHARE_PERCENT} % of that"),
        ("store", "is more than the disk has free: the limit is what is free"),
        ("temp", "is more than the disk has free: the limit is what is free"),
    ):
        origin = configuration.origins.get(("system-usage", key))
        if origin is None:
            continue
        before, after = getattr(wanted, key), getattr(given, key)
        shown = configuration.value("system-usage", key)
        if before != after:
            yield f"{origin}: {key}: {shown} {problem}"
        elif key == "store" and before * 100 > host.disk * SHARE_PERCENT:
            yield (
                f"{origin}: {key}: {shown} is above {SHARE_PERCENT} % of the disk: the journal may exceed its limit a "
                "little, and a full disk blocks every publisher of persistent messages"
            )


# -- the machine ------------------------------------------------------------------------------------------------------


def capacity_of(directory: str) -> HostCapacity:
    """The capacity for a directory, which need not exist."""
    existing = os.path.abspath(directory)
    while not os.path.isdir(existing) and os.path.dirname(existing) != existing:
        existing = os.path.dirname(existing)
    disk = shutil.disk_usage(existing)
    return HostCapacity(memory_limit(), disk.total, disk.free, _stored(directory))


def _stored(directory: str) -> int:
    try:
        with os.scandir(directory) as entries:
            return sum(one.stat(follow_symlinks=False).st_size for one in entries if one.is_file(follow_symlinks=False))
    except OSError:
        return 0


def memory_limit(root: str = "/") -> int:
    """Octets that the process may use: the least of the machine's memory and the limits of its control groups.

    Args: root: the directory that contains proc and sys.
    """
    return min([_physical(), *_group_limits(root)])


def _physical() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return _ENDLESS  # a system that does not tell


def _group_limits(root: str) -> Iterator[int]:
    """Limits of the process' control group and its ancestors, in version 1 and 2."""
    try:
        with open(os.path.join(root, "proc/self/cgroup"), encoding="ascii", errors="replace") as file:
            groups = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return
    for group in groups:
        if len(group) != 3 or group[1] not in ("", "memory"):
            continue
        mount, name = ("memory", "memory.limit_in_bytes") if group[1] else ("", "memory.max")
        path = os.path.normpath("/" + group[2].lstrip("/"))
        while True:
            limit = _number(os.path.join(root, "sys/fs/cgroup", mount, path.lstrip("/"), name))
            if limit is not None and limit < _ENDLESS:
                yield limit
            if path == "/":
                break
            path = os.path.dirname(path)


def _number(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):  # "max" is no limit
        return None
