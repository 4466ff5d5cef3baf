"""For all tests: Hypothesis does not judge by time and tries the same each time, the longest files begin, and each test
leaves brokers behind that do not contradict themselves."""

import gc
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from default_ports import take_default_ports
from effort import PHASES
from hypothesis import HealthCheck, settings
from invariant_check import brokers_checked

# A busy machine is no failure. A run finds what the run before it found: new examples are for `make machines`.
COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True, phases=PHASES)
settings.register_profile("leveret", COMMON, derandomize=True)
settings.register_profile("random", COMMON)
settings.load_profile("leveret")

#: The tests that share a Spark session: one worker runs them all, so that only one Java is started and warmed up.
SPARK = "tests/pipeline/"
#: Files that take longest, first (`make test ARGS=--durations=80`): where files are shared out among cores, each of
#: these would leave the other cores idle at the end.
LONGEST = (
    SPARK,
    "tests/journal/test_crash_rounds.py",
    "tests/simulation/test_planted.py",
    "tests/simulation/test_same_seed.py",
    "tests/benchmarks/",
    "tests/mutants/",
    "tests/testing/test_clean_venv.py",
    "tests/server/test_hostile_clients.py",
    "tests/server/test_descriptors.py",
    "tests/simulation/test_regressions.py",
    "tests/interop/test_flow_rows.py",
    "tests/server/test_disk_full.py",
    "tests/test_tidy.py",
    "tests/journal/test_non_destructive_memory.py",
    "tests/testing/test_pytest_plugin.py",
    "tests/cluster/test_nodes.py",
    "tests/engine/test_queue_machine.py",
    "tests/engine/test_rules_machine.py",
    "tests/simulation/",
    "tests/journal/",
    "tests/server/",
    "tests/testing/",
    "tests/interop/",
    "tests/cluster/",
)

#: A test that depends on a default port fails on each machine, not only beside a RabbitMQ.
PORTS = take_default_ports()


@pytest.fixture(autouse=True)
def _invariants(request: pytest.FixtureRequest) -> Iterator[None]:
    """Of each broker that a test made in its own process."""
    if request.node.get_closest_marker("contradicts"):
        yield
    else:
        with brokers_checked():
            yield


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """In a process of many, what is collected is there until the end: Python's collector need not look through it
    again and again, which took a tenth of the time."""
    if not hasattr(session.config, "workerinput"):
        return (yield)
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by file, the longest first; within a file as it is written."""

    def place(item: pytest.Item) -> int:
        return next((at for at, name in enumerate(LONGEST) if item.nodeid.startswith(name)), len(LONGEST))

    items.sort(key=place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`--dist loadfile`, but all of `SPARK` counts as one file. Any other `--dist`: as xdist has it."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return SPARK if nodeid.startswith(SPARK) else str(super()._split_scope(nodeid))

    return ByFile(config, log)
