"""A broker with a console, in a thread, for each module; each test may leave what it likes."""

from collections.abc import Iterator
from typing import Any

import pytest
from api_client import ApiClient
from page_person import Person, chromium

from leveret.testing import RunningBroker, start_broker


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """One a module."""
    with start_broker(management=True) as running:
        yield running


@pytest.fixture
def api(broker: RunningBroker) -> ApiClient:
    """Asks its console."""
    return ApiClient(broker.management_url)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One a module; skips where there is none. While Playwright runs, no test of the process may call asyncio.run."""
    with chromium() as running:
        yield running


@pytest.fixture
def person(browser: Any, broker: RunningBroker) -> Iterator[Person]:
    """Logged in as guest; nothing may be complained of by the browser."""
    with browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce") as context:
        one = Person(context, broker.management_url).log_in()
        yield one
        assert one.tab.evaluate("window.pwned") is None
        assert one.complaints == []
