"""Dead letters, moves, discards and pauses on the page: a dry run first, then the job, its progress and its end."""

import os
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from api_client import ApiClient
from page_person import Person

from leveret.testing import RunningBroker, start_broker

pytestmark = pytest.mark.skipif("LEVERET_BROWSER" not in os.environ, reason="the long run (make browser)")


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """On virtual time, with a dead-letter queue `dead` of `orders`, in which twelve messages were rejected."""
    with start_broker(management=True, clock="virtual") as running:
        api = ApiClient(running.management_url)
        for name in ("dead", "parked"):
            api.ask("PUT", f"queues/%2F/{name}", {"durable": True})
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        api.ask("PUT", "queues/%2F/orders", {"durable": True, "arguments": arguments})
        with pika.BlockingConnection(pika.URLParameters(running.url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for number in range(12):
                body = b'{"amount": %d}' % number
                channel.basic_publish("", "orders", body, pika.BasicProperties(delivery_mode=2))
                method, _, _ = channel.basic_get("orders")
                channel.basic_reject(method.delivery_tag, requeue=False)
        yield running


def ready(broker: RunningBroker, name: str) -> int:
    """How many are there when all is done that is due by now."""
    broker.clock.advance(seconds=0)
    return len(broker.queue(name, vhost="/").ready)


def test_replay(person: Person, broker: RunningBroker, api: ApiClient) -> None:
    """Chosen by their cause and a filter, dry run, replayed at a rate, cancelled."""
    person.tab.get_by_label("Refresh").select_option("1")
    person.opens("dead-letters", heading="Dead letters")
    row = person.row("rejected")
    row.get_by_text("12").wait_for()
    person.button("Choose …", within=row).click()
    form = person.tab.get_by_role("form", name="Choose messages")
    assert form.locator("[name=origin]").input_value() == "orders"
    assert not form.locator("[name=to_queue]").is_visible()
    person.fills(form, filter="/amount >= 4", rate="1")
    person.button("Dry run", within=form).click()
    person.sees("Dry run: 8 messages of 12 looked at")
    person.sees("8 to queue orders")
    assert (ready(broker, "dead"), ready(broker, "orders")) == (12, 0)
    person.button("Replay 8 messages …").click()
    person.sees("8 messages of dead to where each came from, 1 a second.", within=person.tab.get_by_role("dialog"))
    person.confirms("Replay")
    person.sees("Job 1: running")
    broker.clock.advance(seconds=2)
    person.sees("3 done")
    person.button("Cancel the job …").click()
    person.confirms("Cancel the job")
    person.sees("Job 1: cancelled")
    broker.clock.advance(seconds=60)
    assert (ready(broker, "dead"), ready(broker, "orders")) == (9, 3)
    person.opens("jobs", heading="Jobs")
    person.sees("cancelled", within=person.row("1: replay"))


def test_chosen_among_all_causes(person: Person, broker: RunningBroker) -> None:
    """What one customer lost may have died of several; the form is in view with what a dry run says."""
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_purge("orders")  # what was replayed has no expiration, and stands before
        channel.basic_publish("", "orders", b'{"amount": 11}', pika.BasicProperties(delivery_mode=2, expiration="1"))
        broker.clock.advance(seconds=1)
    person.opens("dead-letters", heading="Dead letters")
    person.row("expired").wait_for()
    person.button("Choose among all …").click()
    form = person.tab.get_by_role("form", name="Choose messages")
    person.fills(form, filter="/amount = 11")
    person.button("Dry run", within=form).click()
    person.sees_at_once(person.button("Replay 2 messages …"))


def test_move_and_discard(person: Person, broker: RunningBroker, api: ApiClient) -> None:
    """From the queue's own page; what is not there to go is not offered."""
    body = {"routing_key": "heap", "payload": "x", "payload_encoding": "string", "properties": {}}
    api.ask("PUT", "queues/%2F/heap", {"durable": True})
    for _ in range(3):
        api.ask("POST", "exchanges/%2F/amq.default/publish", body)
    person.opens("queues", "/", "heap", heading="heap")
    person.turns_to("Messages")
    fold = person.unfolds("Move, replay or discard messages")
    form = fold.get_by_role("form")
    person.fills(form, to_queue="park", limit="2")
    form.locator("datalist option[value=parked]").wait_for(state="attached")  # names that there are, while one is typed
    person.fills(form, to_queue="parked")
    person.button("Dry run", within=form).click()
    person.button("Move 2 messages …", within=fold).click()
    person.confirms("Move")
    person.sees("done", within=fold)
    assert (ready(broker, "heap"), ready(broker, "parked")) == (1, 2)
    person.fills(form, what="discard", text="nothing like it", limit="")
    person.button("Dry run", within=form).click()
    person.sees("Dry run: 0 messages of 1 looked at")
    assert person.button("Discard 0 messages …", within=fold).count() == 0
    person.allowed.append("status of 400")
    person.fills(form, filter="/a =")
    person.button("Dry run", within=form).click()
    person.sees("discard: filter: column")


def test_what_was_browsed(person: Person, broker: RunningBroker, api: ApiClient) -> None:
    """What is shown is what goes, and nothing else."""
    for number in range(5):
        body = {"routing_key": "seen", "payload": f"n{number}", "payload_encoding": "string", "properties": {}}
        api.ask("PUT", "queues/%2F/seen", {"durable": True})
        api.ask("POST", "exchanges/%2F/amq.default/publish", body)
    person.opens("queues", "/", "seen", heading="seen")
    person.turns_to("Messages")
    fold = person.panel("Browse messages")
    person.fills(fold.get_by_role("form"), count="2")
    person.button("Browse", within=fold).click()
    inner = person.unfolds("Move, replay or discard these 2")
    person.fills(inner, what="discard")
    person.button("Dry run", within=inner).click()
    person.button("Discard 2 messages …", within=inner).click()
    person.confirms("Discard")
    person.sees("2 done", within=inner)
    assert [one.body for one in broker.queue("seen", vhost="/").ready] == [b"n2", b"n3", b"n4"]


def test_pause(person: Person, api: ApiClient) -> None:
    """The queue's page says so, and takes it back."""
    api.ask("PUT", "queues/%2F/halted", {})
    person.opens("queues", "/", "halted", heading="halted")
    person.button("Pause deliveries").click()
    person.sees("paused: its consumers get nothing")
    assert api.get("queues/%2F/halted")["leveret"]["paused"] is True
    person.button("Resume deliveries").click()
    person.button("Pause deliveries").wait_for()
    assert api.get("queues/%2F/halted")["leveret"]["paused"] is False


def test_nothing_died(browser: Any) -> None:
    """Empty pages say what they are for."""
    with start_broker(management=True) as broker, browser.new_context() as context:
        person = Person(context, broker.management_url).log_in()
        person.opens("dead-letters", heading="Dead letters")
        person.sees("No queue has a dead-letter queue.")
        person.opens("jobs", heading="Jobs")
        person.sees("No job has run since the broker started.")
        assert person.complaints == []
