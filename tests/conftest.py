"""For all tests: Hypothesis does not judge by time and tries the same each time, the longest files begin, and each test
leaves brokers behind that do not contradict themselves."""

import gc
from collections.abc import Generator, Iterator

import forked
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


def pytest_addoption(parser: pytest.Parser) -> None:
    """For `make test`."""
    parser.addoption("--processes", type=int, default=0, metavar="N", help="share the files out among N processes")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """With `--processes`: what is collected is there until the end, and Python's collector need not look through it
    again and again, which took a tenth of the time."""
    if not session.config.option.processes:
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


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """With `--processes`: files are shared out, and those of `SPARK` as one."""
    config = session.config
    if not config.option.processes or config.option.collectonly or session.testsfailed:
        return None
    groups: dict[str, list[pytest.Item]] = {}
    for item in session.items:
        file = item.nodeid.partition("::")[0]
        groups.setdefault(SPARK if file.startswith(SPARK) else file, []).append(item)
    forked.run(session, list(groups.values()), config.option.processes)
    return True
