"""The page of events beside much that happens: it draws seldom, keeps little, and stays usable."""

import os
from collections.abc import Iterator

import pika
import pytest
from api_client import ApiClient
from page_person import Person

from leveret.testing import RunningBroker

long_run = pytest.mark.skipif("LEVERET_BROWSER" not in os.environ, reason="the long run (make browser)")

ROWS = "document.querySelectorAll('tbody tr').length"
#: Counts how often the table changes; what changes at once is one time.
WATCH = """() => {
  window.drawn = 0;
  const observer = new MutationObserver(() => { window.drawn += 1; });
  observer.observe(document.querySelector('main'), { childList: true, subtree: true });
}"""
MANY = 1_500


@pytest.fixture
def busy(broker: RunningBroker, api: ApiClient) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    """Publishes into the queues `busy` and `calm`."""
    for queue in ("busy", "calm"):
        api.ask("PUT", f"queues/%2F/{queue}", {})
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def _listens(person: Person) -> None:
    """The page is there, and the broker sends it what happens."""
    with person.tab.expect_response(lambda answer: "leveret/events" in answer.url):
        person.opens("events", heading="Events")


def _seen(person: Person, api: ApiClient, name: str) -> None:
    """What happens last is shown, so that all before it has come."""
    api.ask("PUT", f"exchanges/%2F/{name}", {"type": "fanout"})
    person.row(name).first.wait_for()


def test_many_events_are_few_drawings(
    person: Person, api: ApiClient, busy: pika.adapters.blocking_connection.BlockingChannel
) -> None:
    """Each message is several events; they are drawn together, and the latest kept."""
    _listens(person)
    _seen(person, api, "first")
    person.tab.evaluate(WATCH)
    for _ in range(MANY):
        busy.basic_publish("", "busy", b"x")
    _seen(person, api, "last")
    assert 0 < person.tab.evaluate("window.drawn") < MANY / 10
    assert person.tab.evaluate(ROWS) == 200


@long_run
def test_a_pause(person: Person, api: ApiClient, busy: pika.adapters.blocking_connection.BlockingChannel) -> None:
    """What is shown stays while it is read; how much came meanwhile is said, and comes afterwards."""
    _listens(person)
    _seen(person, api, "before")
    rows = person.tab.evaluate(ROWS)
    person.button("Pause").click()
    person.sees("Paused; 0 events since.")
    api.ask("PUT", "exchanges/%2F/meanwhile", {"type": "fanout"})
    person.sees("Paused; 1 event since.")
    assert person.tab.evaluate(ROWS) == rows
    person.button("Go on").click()
    person.row("meanwhile").wait_for()


@long_run
def test_one_queue(person: Person, api: ApiClient, busy: pika.adapters.blocking_connection.BlockingChannel) -> None:
    """What happens to it, and nothing else."""
    _listens(person)
    _seen(person, api, "all")
    with person.tab.expect_response(lambda answer: "queue=calm" in answer.url):
        person.tab.get_by_label("Of the queue").fill("calm")
        person.tab.get_by_label("Of the queue").press("Enter")
    person.sees("Nothing yet.")
    busy.basic_publish("", "busy", b"x")
    busy.basic_publish("", "calm", b"x")
    person.row("calm").first.wait_for()
    assert "busy" not in person.tab.locator("tbody").inner_text()
