"""The broker under the specification, and the sweeping after each case."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from spec_broker import SpecBroker, spec_broker


@pytest.fixture(scope="session")
def running_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SpecBroker]:
    """One broker for the whole specification."""
    with spec_broker(tmp_path_factory.mktemp("spec")) as broker:
        yield broker


@pytest.fixture
def broker(running_broker: SpecBroker) -> Iterator[SpecBroker]:
    """That broker, with the connections and objects of the case removed afterwards."""
    yield running_broker
    running_broker.clean_up()
