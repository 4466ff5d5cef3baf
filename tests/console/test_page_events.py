"""The page of events beside much that happens: it draws seldom, keeps little, and stays usable."""

import os
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pika
import pytest
from api_client import ApiClient
from page_person import Person

from leveret.operator import event_log
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


@contextmanager
def relay(port: int) -> Iterator[tuple[int, Callable[[], None]]]:
    """A port that leads to another one; and what hangs up all its connections."""
    ends: list[socket.socket] = []

    def hang_up() -> None:
        for one in ends:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def copy(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection(("127.0.0.1", port)) as behind:
                ends.extend((self.request, behind))
                back = threading.Thread(target=copy, args=(behind, self.request))
                back.start()
                copy(self.request, behind)
                back.join()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield server.server_address[1], hang_up
        hang_up()
        server.shutdown()
        serving.join()


@long_run
def test_what_was_missed(browser: Any, api: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a cut of the network, how much happened meanwhile that the broker no longer has."""
    with relay(api.address[1]) as (port, hang_up), browser.new_context() as context:
        person = Person(context, f"http://127.0.0.1:{port}/").log_in()
        person.allowed += ["ERR_CONNECTION_REFUSED", "ERR_INTERNET_DISCONNECTED", "ERR_INCOMPLETE_CHUNKED_ENCODING"]
        _listens(person)
        _seen(person, api, "near")
        monkeypatch.setattr(event_log, "EVENTS_MAX", 3)
        context.set_offline(True)
        hang_up()
        for number in range(10):
            api.ask("PUT", f"exchanges/%2F/far{number}", {"type": "fanout"})
        context.set_offline(False)
        person.sees("Missed: 7 events, which the broker no longer had.")
        person.row("far9").wait_for()
        assert "far6" not in person.tab.locator("tbody").inner_text()
        assert person.complaints == []


@long_run
def test_an_unattended_page(person: Person) -> None:
    """What it asks by itself says that nobody is there, until its user does something."""
    with person.tab.expect_request(lambda asked: asked.headers.get("x-requested-with") == "leveret"):
        person.opens("queues", heading="Queues")
    person.tab.clock.install()
    person.tab.clock.fast_forward(61_000)
    with person.tab.expect_request(lambda asked: asked.headers.get("x-requested-with") == "leveret-unattended"):
        person.tab.clock.fast_forward(5_000)
    person.tab.mouse.move(10, 10)
    with person.tab.expect_request(lambda asked: asked.headers.get("x-requested-with") == "leveret"):
        person.tab.clock.fast_forward(5_000)


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
