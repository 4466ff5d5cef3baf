"""What the user of the page may not do is grey, with the reason; empty lists say what is hidden.

Source: management page 1.5, 15.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from api_client import ApiClient
from page_person import Person

from leveret.testing import RunningBroker

pytestmark = pytest.mark.skipif("LEVERET_BROWSER" not in os.environ, reason="the long run (make browser)")

TAGS = ("monitoring", "policymaker", "management", "")


@pytest.fixture(scope="module", autouse=True)
def users(broker: RunningBroker) -> None:
    """One user for each tag; each may write to and read from b, and may nothing in another virtual host."""
    api = ApiClient(broker.management_url)
    api.ask("PUT", "vhosts/hidden", {})
    for tag in TAGS:
        name = tag or "untagged"
        api.ask("PUT", f"users/{name}", {"password": name, "tags": tag})
        api.ask("PUT", f"permissions/%2F/{name}", {"configure": "", "write": "^b$", "read": "^b$"})
    for name in ("a", "b"):
        api.ask("PUT", f"queues/%2F/{name}", {})


@contextmanager
def logged_in(browser: Any, broker: RunningBroker, user: str) -> Iterator[Person]:
    """A page of this user; the browser may complain of refused requests only."""
    with browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce") as context:
        person = Person(context, broker.management_url)
        person.allowed.append("status of 401")
        yield person.log_in(user)
        assert person.complaints == []


def is_grey(person: Person, button: str, why: str) -> bool:
    """Whether a button is grey, with this reason beside it."""
    person.sees(why)
    one = person.button(button)
    return bool(one.is_disabled() and why in one.locator("xpath=..").inner_text())


def test_without_a_tag(browser: Any, broker: RunningBroker) -> None:
    """The login says which tags there are."""
    with browser.new_context() as context:
        person = Person(context, broker.management_url)
        person.allowed.append("status of 401")
        person.tab.goto(person.url)
        person.tab.get_by_label("User").fill("untagged")
        person.tab.get_by_label("Password").fill("untagged")
        person.button("Log in").click()
        person.sees(
            "this needs the tag management, policymaker, monitoring or administrator; user 'untagged' has no tag"
        )


def test_management(browser: Any, broker: RunningBroker, api: ApiClient) -> None:
    """Reasons by patterns and by tags, in forms, buttons, links, lists and refusals."""
    with logged_in(browser, broker, "management") as person:
        person.sees("What needs attention, nodes and listeners are hidden: needs the tag monitoring or administrator.")
        place = person.tab.locator("#places").get_by_title("needs the tag monitoring or administrator")
        assert (
            place.filter(has_text="Blocked").count() == 1
            and person.tab.get_by_role("link", name="Blocked").count() == 0
        )
        person.opens("blocked", heading="Blocked and full")
        person.sees(
            "Not monitor user: this needs the tag monitoring or administrator; user 'management' has management."
        )
        person.opens("queues", "/", "a", heading="a")
        configure = "needs configure access; your pattern for that in / is empty"
        assert is_grey(person, "Delete the queue …", configure)
        assert is_grey(person, "Pause deliveries", "needs the tag administrator")
        person.turns_to("Messages")
        form = person.panel("Browse messages")
        person.sees("needs read access; your pattern for that in / is ^b$", within=form)
        assert person.button("Browse", within=form).is_disabled() and form.locator("[name=count]").is_disabled()
        person.opens("queues", "/", "b", heading="b")
        assert is_grey(person, "Delete the queue …", configure)
        person.turns_to("Messages")
        form = person.panel("Browse messages")
        person.button("Browse", within=form).click()
        person.sees("None", within=form)
        person.opens("queues", heading="Queues")
        form = person.unfolds("Add a queue")
        person.fills(form, queue="mine")
        person.button("Add", within=form).click()
        person.sees("Access refused: configure access to queue 'mine' in vhost '/' refused for user 'management'.")
        person.opens("connections", heading="Connections")
        person.sees("You have no connection; those of others need the tag monitoring.")
        person.sees("1 virtual host in which you have no permissions is not shown.")
        person.opens("vhosts", "/", heading="/")
        assert is_grey(person, "Delete the virtual host …", "needs the tag administrator")
        person.opens("definitions", heading="Definitions")
        assert is_grey(person, "Export", "needs the tag administrator")
        for place, title in (("events", "Events"), ("log", "Log")):
            person.opens(place, heading=title)
            person.sees("Hidden: needs the tag monitoring or administrator.")
        api.ask("PUT", "permissions/%2F/management", {"configure": "^mine$", "write": "", "read": ""})
        person.opens("queues", heading="Queues")
        form = person.unfolds("Add a queue")
        person.fills(form, queue="mine")
        person.button("Add", within=form).click()
        person.sees("Queue mine is there.")
        person.opens("queues", "/", "mine", heading="mine")
        assert is_grey(person, "Purge 0 messages …", "needs read access; your pattern for that in / is empty")
        assert person.button("Delete the queue …").is_enabled()


def test_monitoring(browser: Any, broker: RunningBroker) -> None:
    """Sees, and does not set."""
    with logged_in(browser, broker, "monitoring") as person:
        person.opens("blocked", heading="Blocked and full")
        person.sees("No client is blocked.")
        person.opens("users", heading="Users")
        person.sees("Not administrator user: this needs the tag administrator; user 'monitoring' has monitoring.")
        for place, title, text in (
            ("connections", "Connections", "No client is connected."),
            ("channels", "Channels", "No channel is open."),
        ):
            person.opens(place, heading=title)
            assert person.tab.locator("main p.empty", has_text=text).inner_text() == text  # of all virtual hosts
        person.opens("policies", heading="Policies")
        form = person.unfolds("Add or replace a policy")
        assert person.button("Save", within=form).is_disabled()
        person.sees("needs the tag policymaker or administrator", within=form)


def test_policymaker(browser: Any, broker: RunningBroker) -> None:
    """Sets policies, and no operator policies."""
    with logged_in(browser, broker, "policymaker") as person:
        person.opens("policies", heading="Policies")
        form = person.unfolds("Add or replace a policy")
        person.fills(form, name="short", pattern="^b$", definition='{"max-length": 5}')
        person.button("Save", within=form).click()
        person.sees("short holds from now on.")
        form = person.unfolds("Add or replace an operator policy")
        assert person.button("Save", within=form).is_disabled()
        person.sees("needs the tag administrator", within=form)


def test_parameters_of_a_policymaker(browser: Any, broker: RunningBroker, api: ApiClient) -> None:
    """Limits and operator policies have pages of their own; the question names what is deleted."""
    api.ask("PUT", "vhost-limits/%2F/max-queues", {"value": 1000})
    operator = {"pattern": "^none$", "definition": {"max-length": 5}}
    api.ask("PUT", "operator-policies/%2F/most", operator)
    assert api.ask("PUT", "parameters/federation-upstream/%2F/mine", {"value": {"uri": "amqp://far"}}).status == 201
    with logged_in(browser, broker, "policymaker") as person:
        person.opens("parameters", heading="Parameters")
        for name in ("limits", "most"):
            row = person.row(name).filter(has_text="which shows first what it does")
            assert person.button("Delete …", within=row).is_disabled()
        person.button("Delete …", within=person.row("mine")).click()
        person.sees("federation-upstream mine in /", within=person.tab.get_by_role("dialog"))
        person.confirms("Delete")
        person.sees("mine is deleted.")
        person.sees_no(person.row("mine"))
    api.ask("DELETE", "vhost-limits/%2F/max-queues")
    api.ask("DELETE", "operator-policies/%2F/most")
