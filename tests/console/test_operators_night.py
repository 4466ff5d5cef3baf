"""One night of an operator, with the page and `leveret ctl` alone: what is wrong, why, and what is done about it.

A queue grows; a consumer sits on a message; a publisher is blocked; somebody set a policy that throws messages away;
5,000 dead letters, of which the 37 of one customer are to go back, gently. Source: management page 15, 16.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from api_client import ApiClient
from night_clients import ACME, DEAD, MISSED, SETTINGS, Clients
from page_person import Person

from leveret.testing import RunningBroker, start_broker

pytestmark = pytest.mark.skipif("LEVERET_BROWSER" not in os.environ, reason="the long run (make browser)")


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """On virtual time: a night is over in seconds."""
    with start_broker(management=True, clock="virtual", config={"address-setting": [SETTINGS]}) as running:
        yield running


@pytest.fixture
def clients(broker: RunningBroker) -> Iterator[Clients]:
    """The night begins."""
    one = Clients(broker)
    yield one
    one.close()


def ctl(broker: RunningBroker, *words: str) -> Any:
    """What `leveret ctl` answers."""
    command = [sys.executable, "-m", "leveret", "ctl", "--json", "--url", broker.url, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ready(broker: RunningBroker, name: str) -> int:
    """How many are there when all is done that is due by now."""
    broker.clock.advance(seconds=0)
    return len(broker.queue(name, vhost="/").ready)


def finds(person: Person, message_id: str, queue: str) -> None:
    """The page for it says in which queue the message is."""
    person.opens("find", heading="Find a message")
    form = person.tab.get_by_role("form", name="Find")
    person.fills(form, message_id=message_id)
    person.button("Find", within=form).click()
    person.sees("1 message found")
    person.link(queue).wait_for()


def test_a_night(person: Person, broker: RunningBroker, clients: Clients, api: ApiClient) -> None:
    """Each question is answered by the page, and again by `leveret ctl`; each remedy works."""
    clients.fall_ill()
    clients.sleep("sleeper")
    broker.clock.advance(minutes=20)
    clients.sleep("waker")
    clients.fill()
    person.tab.get_by_label("Refresh").select_option("1")

    # Which queue grows?
    trouble = person.panel("Needs attention")
    growing = trouble.get_by_role("listitem").filter(has_text="Growing").get_by_role("link", name="mails")
    sent, until_s = 0, time.monotonic() + 120
    while not growing.is_visible() and time.monotonic() < until_s:
        clients.publish("mails", 10)
        broker.clock.advance(milliseconds=100)
        sent += 10
    growing.wait_for()
    (grown,) = [row for row in ctl(broker, "queues") if row["name"] == "mails"]
    assert grown["ready"] == sent
    assert [row["name"] for row in ctl(broker, "growing")["items"]] == ["mails"]
    person.sees_at_once(growing)
    for choice in ("Virtual host", "Refresh"):
        person.sees_at_once(person.tab.get_by_label(choice))

    # Who publishes there?
    growing.click()
    person.turns_to("Clients")
    person.sees_at_once(person.panel("Who publishes here").get_by_role("link", name="shop"))
    assert ctl(broker, "publishers", "mails")[0]["connection_name"] == "shop"
    person.opens(heading="Overview")

    # Who sits on the oldest message, and on which one?
    person.sees("Not acknowledged since", within=trouble)
    trouble.get_by_role("link", name="Not acknowledged").click()
    person.sees_heading("Unacknowledged")
    first = person.tab.locator("main tbody tr").first
    assert "sleeper" in first.inner_text() and "invoices" in first.inner_text()
    first.get_by_role("link", name="sleeper").click()
    person.sees_heading("sleeper")
    person.sees_at_once(person.panel("Messages that it has not acknowledged").get_by_role("link", name="invoices"))
    person.link("invoices").click()
    person.sees_heading("invoices")
    person.turns_to("Messages")
    fold = person.panel("Browse messages")
    person.fills(fold.get_by_role("form"), state="unacked")
    person.button("Browse", within=fold).click()
    person.sees("sleeper", within=fold)
    assert [row["tag"] for row in ctl(broker, "unacknowledged")["items"]] == ["sleeper", "waker"]

    # Why is a publisher blocked?
    person.opens("blocked", heading="Blocked and full")
    person.sees("archive", within=person.panel("Who waits"))
    person.sees("max-size-messages", within=person.panel("Who waits"))
    person.sees("2 of 2", within=person.panel("Limits"))
    person.link("address 'archive' in vhost '/'").click()
    person.sees_heading("Queues")
    person.link("archive").wait_for()
    (blocked,) = ctl(broker, "blocked")["blocked"]
    assert (blocked["destination"], blocked["limit"]) == ("address 'archive' in vhost '/'", "max-size-messages")

    # Where is the order that acme calls about?
    finds(person, MISSED, "orders.dead")
    person.sees("expired in orders, 1 ×")
    (found,) = ctl(broker, "search", f"message-id={MISSED}")["items"]
    assert (found["queue"], found["state"]) == ("orders.dead", "ready")

    # The 37 of acme go back to where they came from, ten a second, after a dry run.
    person.opens("dead-letters", heading="Dead letters")
    row = person.row("expired")
    person.sees("5,000", within=row)
    person.button("Choose …", within=row).click()
    form = person.tab.get_by_role("form", name="Choose messages")
    person.fills(form, filter="/customer = 'acme'", rate="10")
    person.button("Dry run", within=form).click()
    person.sees(f"Dry run: {ACME} messages of 5,000 looked at")
    person.sees_at_once(person.tab.get_by_text(f"{ACME} to queue orders"))
    person.sees_at_once(person.button(f"Replay {ACME} messages …"))
    dry = ctl(broker, "replay", "orders.dead", "filter=/customer = 'acme'", "dry-run=true")
    assert (dry["matched"], dry["looked_at"]) == (ACME, DEAD)
    assert (ready(broker, "orders"), ready(broker, "orders.dead")) == (0, DEAD)
    person.button(f"Replay {ACME} messages …").click()
    person.confirms("Replay")
    person.sees("running")
    broker.clock.advance(seconds=1)
    person.sees("11 done")
    broker.clock.advance(seconds=2.5)
    assert ready(broker, "orders") == ACME - 1
    broker.clock.advance(seconds=0.1)
    person.sees(f"{ACME} done")
    (job,) = [one for one in ctl(broker, "jobs", "list") if one["queue"] == "orders.dead"]
    broker.clock.advance(seconds=1)  # what is left is looked through, and nothing of it meant
    (job,) = [one for one in ctl(broker, "jobs", "list") if one["queue"] == "orders.dead"]
    assert (job["state"], job["done"], job["by"]) == ("done", ACME, "guest")
    assert (ready(broker, "orders"), ready(broker, "orders.dead")) == (ACME, DEAD - ACME)

    # And where is that order now?
    finds(person, MISSED, "orders")
    (found,) = ctl(broker, "search", f"message-id={MISSED}")["items"]
    assert (found["queue"], found["state"]) == ("orders", "ready")

    # A policy that somebody set throws mails away: it is undone.
    ctl(broker, "policies", "set", "oops", "^mails$", '{"max-length": 10}')
    person.opens("queues", "/", "mails", heading="mails")
    person.link("oops").click()
    person.sees_heading("Policies")
    person.button("Delete …", within=person.row("oops")).click()
    person.confirms("Delete")
    person.sees("oops is deleted.")
    assert ctl(broker, "policies", "list") == []
    before = ready(broker, "mails")
    clients.publish("mails", 20)
    assert ready(broker, "mails") == before + 20
