"""Facts about this process from the operating system, for the console and for the other nodes of a cluster."""

import os
import platform
import shutil
import sys
from contextlib import suppress
from functools import lru_cache
from tempfile import gettempdir

import trio

from ..configured.host_capacity import memory_limit
from ..console.node_facts import HostFacts
from .allocator import resident_octets
from .descriptors import descriptor_limits, open_descriptors

#: The interpreter, for people.
PYTHON = f"{platform.python_implementation()} {sys.version.split()[0]}"


def host_facts_of(data: str | None) -> HostFacts:
    """The facts now. `data`: the directory of the journal."""
    loop = trio.lowlevel.current_statistics()
    return HostFacts(
        os.getpid(),
        open_descriptors(),
        descriptor_limits().process or 0,
        resident_octets(),
        memory_max(),
        disk_free(data),
        _processors(),
        loop.tasks_living,
        loop.tasks_runnable,
        _context_switches(),
    )


def disk_free(data: str | None) -> int:
    """Free octets of the disk with the journal's directory, or with the temporary files of a broker without one.

    While the directory is missing (a full copy replaces it in two steps), its parent is asked.
    """
    directory = os.path.abspath(data or gettempdir())
    for one in (directory, os.path.dirname(directory)):
        with suppress(OSError):
            return shutil.disk_usage(one).free
    return 0


def _context_switches() -> int:
    """Context switches since the process started; 0 if the system does not tell."""
    try:
        import resource
    except ImportError:
        return 0
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_nvcsw + usage.ru_nivcsw


@lru_cache(1)
def _processors() -> int:
    """The machine's processors. The system is asked once, because that costs as much as all other facts here."""
    return os.cpu_count() or 1


@lru_cache(1)
def memory_max() -> int:
    """The memory limit of the process, which is read once."""
    return memory_limit()
