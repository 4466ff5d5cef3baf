"""The page for people in a real browser: each page, and what can be done on it. Source: management page 15, 19."""

import os
from typing import Any

import pika
import pytest
from api_client import ApiClient
from page_person import HOSTILE, Person

from leveret.testing import RunningBroker

#: Addresses, and the headings that they have.
PAGES = [
    ([], "Overview"),
    (["connections"], "Connections"),
    (["channels"], "Channels"),
    (["exchanges"], "Exchanges"),
    (["exchanges", "/", "amq.topic"], "amq.topic"),
    (["queues"], "Queues"),
    (["queues", "/", "shown"], "shown"),
    (["blocked"], "Blocked and full"),
    (["scheduled"], "Scheduled"),
    (["leases"], "Leases"),
    (["find"], "Find a message"),
    (["events"], "Events"),
    (["unacknowledged"], "Unacknowledged"),
    (["dead-letters"], "Dead letters"),
    (["jobs"], "Jobs"),
    (["policies"], "Policies"),
    (["parameters"], "Parameters"),
    (["changes"], "Changes"),
    (["users"], "Users"),
    (["users", "guest"], "guest"),
    (["vhosts"], "Virtual hosts"),
    (["vhosts", "/"], "/"),
    (["definitions"], "Definitions"),
    (["node"], "Node"),
    (["log"], "Log"),
    (["nodes"], "Nodes"),
    (["commands"], "Commands"),
]


def test_login(browser: Any, broker: RunningBroker) -> None:
    """A wrong password is said; a right one lasts over a reload, is kept nowhere, and ends by the logout."""
    with browser.new_context() as context:
        person = Person(context, broker.management_url)
        person.allowed.append("status of 401")
        person.tab.goto(person.url)
        person.tab.get_by_label("User").fill("guest")
        person.tab.get_by_label("Password").fill("wrong")
        person.button("Log in").click()
        person.sees("User or password is wrong.")
        person.log_in()
        person.tab.reload()
        person.sees_heading("Overview")
        assert "guest:guest" not in person.tab.evaluate("JSON.stringify(localStorage) + document.cookie")
        assert person.tab.evaluate("document.cookie") == ""
        person.button("Log out").click()
        person.tab.get_by_label("Password").wait_for()
        assert person.complaints == []


@pytest.mark.parametrize("width", [360, 1280] if "LEVERET_BROWSER" in os.environ else [360])
def test_every_page(browser: Any, broker: RunningBroker, api: ApiClient, width: int) -> None:
    """Opens, with its heading and title, fits the screen, and the browser has nothing to complain of."""
    api.ask("PUT", "queues/%2F/shown", {"arguments": {"x-max-length": 10}})
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    connection.channel()
    with browser.new_context(viewport={"width": width, "height": 800}) as context:
        person = Person(context, broker.management_url).log_in()
        for segments, heading in PAGES:
            person.opens(*segments, heading=heading)
            assert person.tab.title().endswith(" – Leveret")
            person.tab.get_by_text("Loading").first.wait_for(state="detached")
            assert not person.is_too_wide(), segments
        (name,) = (one["name"] for one in api.get("connections"))
        person.opens("connections", name, heading=name)
        person.link(f"{name} (1)").click()
        person.sees_heading(f"{name} (1)")
        assert not person.is_too_wide()
        assert person.complaints == []
    connection.close()


def test_a_queue(person: Person, api: ApiClient) -> None:
    """Added, published to, looked into, bound, purged and deleted; what is destroyed takes two steps."""
    person.opens("queues", heading="Queues")
    form = person.unfolds("Add a queue")
    person.fills(form, queue="made", arguments="nonsense")
    person.button("Add", within=form).click()
    person.sees("is not a JSON object", within=form)
    person.fills(form, arguments='{"x-max-length": 7}')
    person.button("Add", within=form).click()
    person.sees("Queue made is there.")
    assert api.get("queues/%2F/made")["arguments"] == {"x-max-length": 7}

    person.opens("queues", "/", "made", heading="made")
    person.turns_to("Messages")
    form = person.unfolds("Publish to this queue")
    person.fills(form, payload='{"order": 1}', headers='{"region": "eu"}')
    person.button("Publish", within=form).click()
    person.sees("Published; a queue has it.")
    person.turns_to("Messages")
    form = person.panel("Browse messages")
    person.button("Browse", within=form).click()
    person.sees('"order": 1', within=form)
    assert api.get("queues/%2F/made")["message_stats"].get("get", 0) == 0
    form = person.unfolds("Get messages")
    person.button("Get", within=form).click()
    person.sees('"order": 1', within=form)
    person.sees("region", within=form)
    assert api.get("queues/%2F/made")["messages"] == 1

    person.turns_to("Bindings")
    form = person.unfolds("Add a binding")
    person.fills(form, source="amq.topic", routing_key="a.#")
    person.button("Bind", within=form).click()
    person.sees("a.#", within=person.panel("Bindings"))
    person.button("Unbind").click()
    person.sees_no(person.tab.get_by_text("is deleted with its last binding"))
    person.confirms("Unbind")
    person.sees("The binding is ended.")
    api.ask("PUT", "exchanges/%2F/feed", {"type": "fanout", "auto_delete": True})
    api.ask("POST", "bindings/%2F/e/feed/q/made", {})
    person.button("Unbind", within=person.row("feed")).click()
    person.sees("The exchange feed is deleted with its last binding", within=person.tab.get_by_role("dialog"))
    person.confirms("Unbind")
    person.sees_no(person.row("feed"))

    person.turns_to("Settings")
    explained = person.panel("Settings, and what gave them")
    person.sees("queue argument", within=explained)

    person.tab.reload()  # its part is in the address
    person.sees("queue argument", within=explained)
    person.turns_to("Overview")
    person.button("Purge 1 message …").click()
    person.confirms("Cancel")
    assert api.get("queues/%2F/made")["messages"] == 1
    person.button("Purge 1 message …").click()
    person.confirms("Purge")
    person.sees("made is purged.")
    assert api.get("queues/%2F/made")["messages"] == 0
    person.button("Delete the queue …").click()
    person.confirms("Delete")
    person.sees_heading("Queues")
    assert api.ask("GET", "queues/%2F/made").status == 404


def test_hostile_names(person: Person, broker: RunningBroker, api: ApiClient) -> None:
    """Names are texts wherever they are shown, direction marks in them are seen, and their pages have addresses."""
    name = HOSTILE
    shown = name.replace("\u202e", "⟨U+202E⟩")
    with pika.BlockingConnection(
        pika.URLParameters(broker.url + "?client_properties=" + str({"connection_name": "<b>bold</b>"}))
    ) as connection:
        channel = connection.channel()
        channel.exchange_declare(name, "topic")
        channel.queue_declare(name, arguments={"x-message-ttl": 60000})
        channel.queue_bind(name, name, name)
        channel.basic_publish(name, name, name.encode(), pika.BasicProperties(headers={name: name}))
        channel.basic_consume(name, lambda *_: None, consumer_tag=name)
        user = api.get("whoami")["name"]
        person.opens("queues", heading="Queues")
        person.link(shown).click()
        person.sees_heading(shown)
        assert person.tab.title().startswith(shown)
        person.button("Delete the queue …").click()
        person.sees(shown, within=person.tab.get_by_role("dialog"))
        person.confirms("Cancel")
        person.turns_to("Clients")
        person.sees(shown, within=person.panel("Consumers"))
        person.turns_to("Bindings")
        person.sees(shown, within=person.panel("Bindings"))
        person.opens("exchanges", "/", name, heading=shown)
        person.sees(shown, within=person.panel("Goes to"))
        person.opens("connections", heading="Connections")
        person.sees("<b>bold</b>")
        person.opens("users", name, heading=shown)
        person.sees(f"User {shown}: not here.")
        person.allowed.append("status of 404")
        person.tab.get_by_label("Find a queue").fill("<img")
        person.sees("queue in /", within=person.tab.locator(".found"))
        assert user == "guest"
        channel.queue_delete(name)
        channel.exchange_delete(name)


def test_a_change_of_the_address_before_the_page_listens(person: Person) -> None:
    """It is heeded: between the first drawing and the listener there is time on a busy machine."""
    seen = person.tab.evaluate("""async () => {
      const { html, render } = await import("./js/lib.js");
      const { useRoute } = await import("./js/route.js");
      const found = [];
      const One = () => { found.push(useRoute().segments[0]); return null; };
      history.replaceState(null, "", "#/first");
      render(html`<${One} />`, document.createElement("div"));
      history.replaceState(null, "", "#/second");
      for (let turn = 0; turn < 500 && found.length < 2; turn++) await new Promise((done) => setTimeout(done, 20));
      return found;
    }""")
    assert seen == ["first", "second"]
