"""For all tests: Hypothesis does not judge by time and tries the same each time, and the longest files begin."""

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no failure. A run finds what the run before it found: new examples are for `make machines`.
COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("leveret", COMMON, derandomize=True)
settings.register_profile("random", COMMON)
settings.load_profile("leveret")

#: Files that take longest, first (`make test ARGS=--durations=80`): where files are shared out among cores, each of
#: these would leave the other cores idle at the end. Then the pipeline's, which share a Spark session in each core.
LONGEST = (
    "tests/pipeline/test_crash_audit.py",
    "tests/pipeline/test_live.py",
    "tests/journal/test_crash_rounds.py",
    "tests/pipeline/test_spark.py",
    "tests/pipeline/",
    "tests/journal/test_kept_memory.py",
    "tests/benchmarks/",
    "tests/testing/test_clean_venv.py",
    "tests/engine/test_queue_machine.py",
    "tests/engine/test_rules_machine.py",
    "tests/journal/",
    "tests/server/",
    "tests/testing/",
    "tests/interop/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by file, the longest first; within a file as it is written."""

    def place(item: pytest.Item) -> int:
        return next((at for at, name in enumerate(LONGEST) if item.nodeid.startswith(name)), len(LONGEST))

    items.sort(key=place)
