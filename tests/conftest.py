"""For all tests: Hypothesis does not judge by time, and the longest files begin."""

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no failure.
settings.register_profile("leveret", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("leveret")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The pipeline's files take minutes each: where files are shared out among cores, they must not come last."""
    items.sort(key=lambda item: "tests/pipeline/" not in item.nodeid)
