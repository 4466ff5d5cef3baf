"""[system-usage] fitted to the machine: queues page E.1, "memory limit > process memory", and H.3, "percent"."""

import subprocess
import sys
from pathlib import Path

import pytest

from leveret.configured.host_capacity import HostCapacity, capacity_of, fitted, fitted_to_host, memory_limit
from leveret.settings import Configuration, SystemUsage, load_configuration
from leveret.testing.options import read_options

GIB = 1024**3
MACHINE = HostCapacity(memory=10 * GIB, disk=1000 * GIB, free=200 * GIB, stored=50 * GIB)


def load(text: str) -> Configuration:
    """Without faults."""
    configuration, faults = load_configuration([("f.toml", text)])
    assert not faults, faults
    return configuration


def limits(usage: SystemUsage | None) -> tuple[int, int, int]:
    """In GiB."""
    assert usage is not None
    return usage.memory // GIB, usage.store // GIB, usage.temp // GIB


@pytest.mark.parametrize(
    "keys, expected, warning",
    [
        ('memory = "2GiB"\nstore = "60GiB"\ntemp = "5GiB"', (2, 60, 5), ""),
        ('memory = "50%"\nstore = "10%"\ntemp = "1%"', (5, 100, 10), ""),
        ("memory = 0\nstore = 0\ntemp = 0", (0, 0, 0), ""),
        (
            'memory = "11GiB"',
            (7, 100, 10),
            "f.toml:2: memory: 11811160064 is more than the process may use: it gets 70",
        ),
        ('store = "251GiB"', (0, 250, 10), "f.toml:2: store: 269509197824 is more than the disk has free: the limit"),
        ('store = "250GiB"', (0, 250, 10), ""),
        ('store = "90%"', (0, 250, 10), "f.toml:2: store: 90% is more than the disk has free"),
        ('temp = "201GiB"', (0, 100, 200), "f.toml:2: temp: 215822106624 is more than the disk has free"),
    ],
)
def test_limits(keys: str, expected: tuple[int, int, int], warning: str) -> None:
    """Percentages become octets; what the machine cannot give is lowered, with a warning."""
    configuration = fitted(load(f"[system-usage]\n{keys}"), MACHINE)
    assert limits(configuration.system_usage) == expected
    assert len(configuration.warnings) == bool(warning)
    assert all(one.startswith(warning) for one in configuration.warnings)


def test_a_journal_of_most_of_the_disk_is_a_warning() -> None:
    """It may exceed its limit a little."""
    empty = HostCapacity(10 * GIB, 1000 * GIB, 1000 * GIB)
    for size, count in ((700, 0), (701, 1)):
        configuration = fitted(load(f'[system-usage]\nstore = "{size}GiB"'), empty)
        assert limits(configuration.system_usage)[1] == size
        assert len(configuration.warnings) == count
        assert all("above 70 % of the disk" in one for one in configuration.warnings)


def test_defaults_are_lowered_without_a_word() -> None:
    """Nobody asked for 100 GiB."""
    small = HostCapacity(GIB // 32, 20 * GIB, 5 * GIB)
    configuration = fitted(load("[system-usage]\nsend-fail-if-no-space = true"), small)
    usage = configuration.system_usage
    assert usage is not None and usage.send_fail_if_no_space
    assert (usage.memory, usage.store, usage.temp) == (small.memory * 70 // 100, 5 * GIB, 5 * GIB)
    assert configuration.warnings == ()


def test_without_system_usage_nothing_is_looked_at() -> None:
    """Not even the directory's name."""
    configuration = load("")
    assert fitted_to_host(configuration, "\0") is configuration


def test_this_machine(tmp_path: Path) -> None:
    """A directory that is not there yet is on the disk of the one around it."""
    (tmp_path / "a").write_bytes(b"12345")
    (tmp_path / "b").mkdir()
    machine = capacity_of(str(tmp_path))
    assert machine.stored == 5
    assert 0 < machine.free <= machine.disk
    assert machine.memory > 0
    assert capacity_of(str(tmp_path / "no" / "no")).disk == machine.disk


@pytest.mark.parametrize(
    "groups, files, expected",
    [
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": "5000", "memory.max": "max"}, 5000),
        ("0::/a/b\n", {"a/b/memory.max": "4000", "a/memory.max": "5000"}, 4000),
        ("0::/\n", {"memory.max": "3000\n"}, 3000),
        ("3:cpu:/x\n2:memory:/y\n", {"memory/y/memory.limit_in_bytes": "2000", "x/memory.max": "1"}, 2000),
        ("2:memory:/y\n", {"memory/y/memory.limit_in_bytes": str(2**63 - 4096)}, None),
        ("0::/../../etc\n", {"memory.max": "6000"}, 6000),
        ("nonsense\n", {}, None),
        (None, {}, None),
    ],
)
def test_control_groups(tmp_path: Path, groups: str | None, files: dict[str, str], expected: int | None) -> None:
    """The lowest limit of the group and those around it, in both versions; else the machine's memory."""
    if groups is not None:
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(groups)
    for name, content in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    found = memory_limit(str(tmp_path))
    assert found == expected if expected is not None else found > 10**6


def test_check_warns(tmp_path: Path) -> None:
    """As a user meets it; the exit code is that of a usable configuration."""
    (tmp_path / "b.toml").write_text('[broker]\ndata = "d"\n[system-usage]\nstore = "8000000GiB"\n')
    done = subprocess.run(
        [sys.executable, "-m", "leveret", "check", "b.toml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "ok"), done
    assert "warning: b.toml:4: store: 8589934592000000 is more than the disk has free" in done.stdout


def test_a_test_broker_is_fitted_too(tmp_path: Path) -> None:
    """Its percentages are octets as well."""
    usage = read_options(config={"system-usage": {"memory": "50%"}}, data=tmp_path).configuration.system_usage
    assert usage is not None and usage.memory_percent == 0
    assert usage.memory == memory_limit() * 50 // 100
