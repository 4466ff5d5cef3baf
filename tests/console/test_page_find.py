"""What the page answers: where a message is, where one would go, what happens, what rules say: `make browser`.

Source: management page 15, 16, 19.
"""

import json
import os
import threading
from typing import Any

import pika
import pytest
from api_client import ApiClient
from page_person import Person

from leveret.operator.control import ControlTable
from leveret.testing import RunningBroker

pytestmark = pytest.mark.skipif("LEVERET_BROWSER" not in os.environ, reason="the long run (make browser)")


def publish(broker: RunningBroker, queue: str, *bodies: bytes, **properties: object) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for body in bodies:
            channel.basic_publish("", queue, body, pika.BasicProperties(**properties))


def test_a_message_is_found(person: Person, broker: RunningBroker, api: ApiClient) -> None:
    """By its id, with the queue that has it; on the queue's page by its text."""
    api.ask("PUT", "queues/%2F/haystack", {})
    publish(broker, "haystack", b"hay", b"the needle", b"hay", message_id="m-1")
    person.opens("find", heading="Find a message")
    form = person.tab.get_by_role("form", name="Find")
    person.fills(form, text="needle")
    person.button("Find", within=form).click()
    person.sees("1 message found")
    person.link("haystack").click()
    person.sees_heading("haystack")
    person.turns_to("Messages")
    fold = person.panel("Browse messages")
    person.fills(fold, text="needle")
    person.button("Browse", within=fold).click()
    person.sees("the needle", within=fold)
    person.fills(fold, text="camel")
    person.button("Browse", within=fold).click()
    person.sees("None of the 3 messages looked at.", within=fold)


def test_a_message_is_found_by_the_search_for_names(person: Person, broker: RunningBroker, api: ApiClient) -> None:
    """Nothing has that name: one key more looks for a message with that id, and what is found needs no scrolling."""
    api.ask("PUT", "queues/%2F/called", {})
    publish(broker, "called", b"hello", message_id="call-4711")
    person.tab.keyboard.press("/")
    person.tab.keyboard.type("call-4711")
    person.sees("look for a message with this id")
    person.tab.keyboard.press("Enter")
    person.sees_at_once(person.link("called"))
    assert person.tab.get_by_role("form", name="Find").locator("[name=message_id]").input_value() == "call-4711"
    api.ask("DELETE", "queues/%2F/called")


def test_messages_as_a_table(person: Person, api: ApiClient) -> None:
    """Columns are headers and paths of JSON bodies, chosen or written, kept in the address; what has none is empty."""
    api.ask("PUT", "queues/%2F/tabled", {})
    for number, customer in enumerate(("ann", "bob")):
        payload = json.dumps({"order": number, "customer": {"name": customer, "a.b": [number]}, "<b>": None})
        properties = {"headers": {"tenant": f"t{number}", "x.y": "dots"}, "message_id": f"m{number}"}
        body = {"routing_key": "tabled", "payload": payload, "payload_encoding": "string", "properties": properties}
        api.ask("POST", "exchanges/%2F/amq.default/publish", body)
    plain = {"routing_key": "tabled", "payload": "no JSON", "payload_encoding": "string", "properties": {}}
    api.ask("POST", "exchanges/%2F/amq.default/publish", plain)
    person.opens("queues", "/", "tabled", heading="tabled")
    person.turns_to("Messages")
    panel = person.panel("Browse messages")
    panel.get_by_label("Show").select_option("table")
    person.button("Browse", within=panel).click()
    person.sees("no JSON", within=panel)
    panel.get_by_text("Columns", exact=True).click()
    for name in ("headers.tenant", "headers.x.y", "body.customer.name", "body.<b>"):
        panel.get_by_role("checkbox", name=name, exact=True).check()
    for name in ("Routing key", "Size", "Body"):
        panel.get_by_role("checkbox", name=name, exact=True).uncheck()
    panel.get_by_label("A column more").fill("body.customer.a.b")
    person.button("Add", within=panel).click()
    panel.get_by_role("columnheader", name="body.customer.a.b").wait_for()
    titles = panel.get_by_role("columnheader").all_inner_texts()
    assert titles[:2] == ["Position", "Message id"]
    assert sorted(titles[2:]) == [
        "body.<b>",
        "body.customer.a.b",
        "body.customer.name",
        "headers.tenant",
        "headers.x.y",
    ]
    first = dict(zip(titles, person.row("ann").locator("th, td").all_inner_texts()))
    wanted = {"body.<b>": "", "body.customer.a.b": "[0]", "headers.tenant": "t0", "headers.x.y": "dots"}
    assert first == {"Position": first["Position"], "Message id": "m0", "body.customer.name": "ann", **wanted}
    person.tab.reload()
    person.button("Browse", within=panel).click()
    panel.get_by_role("columnheader", name="body.customer.name").wait_for()
    person.turns_to("Overview")
    assert "columns" not in person.tab.evaluate("location.hash")


def test_a_search_that_takes_long(person: Person, broker: RunningBroker, api: ApiClient) -> None:
    """Is said to go on, and for how long; what was found before is marked meanwhile; it can be cancelled."""
    api.ask("PUT", "queues/%2F/slow", {})
    publish(broker, "slow", b"first", message_id="s-1")
    person.opens("find", heading="Find a message")
    form = person.tab.get_by_role("form", name="Find")
    person.fills(form, message_id="s-1")
    form.locator("[name=journal]").check()
    person.button("Find", within=form).click()
    person.sees("1 message found")
    person.sees("No events are kept")
    person.sees("This broker has no journal.")
    held: list[Any] = []
    person.tab.route("**/search/messages", lambda route: held.append(route))
    person.fills(form, message_id="s-2")
    person.button("Find", within=form).click()
    person.sees("Looking into the queues")
    person.sees("What is below was found by the search before this one.")
    assert person.button("Find", within=form).is_disabled()
    person.button("Cancel").click()
    person.sees_no(person.tab.get_by_text("Looking into the queues"))
    person.sees("1 message found")
    person.tab.unroute("**/search/messages")
    person.button("Find", within=form).click()
    person.sees("0 messages found")
    assert len(held) == 1


def test_a_search_that_is_cancelled_ends_at_the_broker(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only in the page."""
    others, began, ended = ControlTable.steps, threading.Event(), threading.Event()

    def steps(table: ControlTable, name: object, arguments: object = None) -> Any:
        if name != "search":
            return (yield from others(table, name, arguments))
        began.set()
        try:
            while True:
                yield
        finally:
            ended.set()

    monkeypatch.setattr(ControlTable, "steps", steps)
    person.opens("find", heading="Find a message")
    form = person.tab.get_by_role("form", name="Find")
    person.fills(form, text="x")
    person.button("Find", within=form).click()
    assert began.wait(60) and not ended.is_set()
    person.button("Cancel").click()
    assert ended.wait(60)


def test_where_it_would_go(person: Person, api: ApiClient) -> None:
    """By which binding, and why not elsewhere; nothing is published."""
    api.ask("PUT", "exchanges/%2F/words", {"type": "topic"})
    for queue, key in (("dry-a", "a.#"), ("dry-b", "b.#")):
        api.ask("PUT", f"queues/%2F/{queue}", {})
        api.ask("POST", f"bindings/%2F/e/words/q/{queue}", {"routing_key": key})
    person.opens("exchanges", "/", "words", heading="words")
    fold = person.unfolds("Publish to this exchange")
    person.fills(fold, routing_key="a.b")
    person.button("Where would it go?", within=fold).click()
    person.sees("words by a.#", within=fold)
    person.sees("the pattern 'b.#' does not match 'a.b'", within=fold)
    assert api.get("queues/%2F/dry-a")["messages"] == 0


def test_events_as_they_happen(person: Person, api: ApiClient) -> None:
    """A queue that is declared appears by itself."""
    person.opens("events", heading="Events")
    person.sees("Nothing yet.")
    with person.tab.expect_response(lambda response: "leveret/events" in response.url):
        person.tab.get_by_label("Only").select_option("what there is")
    api.get("leveret/events")  # the page's stream is behind this one
    api.ask("PUT", "queues/%2F/appears", {})
    person.row("appears").first.wait_for()


def test_rules_and_a_draft(person: Person, api: ApiClient) -> None:
    """What is set stands in one list; a draft tells what it would change."""
    api.ask("PUT", "queues/%2F/drafted", {})
    api.ask("PUT", "policies/%2F/listed", {"pattern": "^never$", "definition": {"max-length": 5}})
    person.opens("policies", heading="Policies")
    person.sees("listed", within=person.panel("All rules, the strongest first"))
    form = person.unfolds("What would a draft change?")
    person.fills(form, name="drafted", text='[[address-setting]]\nmatch = "drafted"\nredelivery-delay = 7000\n')
    person.button("What would change?", within=form).click()
    person.sees("redelivery-delay", within=form)
    person.sees("1 queue would change in all.", within=form)
    assert api.ask("DELETE", "policies/%2F/listed").status == 204
