"""Forms of the page are drawn from the table of commands. Source: ruling 24; management page 15."""

import os
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from api_client import ApiClient
from page_person import Person

from leveret.console.dispatcher import Http, Level
from leveret.operator import known_keys
from leveret.operator.command import command
from leveret.operator.command_table import COMMANDS
from leveret.operator.kinds import Json, Name, VhostName, one_of
from leveret.operator.operator import Operator
from leveret.settings.policies.policy_keys import fault_of_definition
from leveret.testing import RunningBroker, start_broker

long_run = pytest.mark.skipif("LEVERET_BROWSER" not in os.environ, reason="the long run (make browser)")


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """With a command that nothing else knows."""

    @command("toys wind", http=Http("POST", "leveret/toys/V/TOY", Level.ADMINISTRATOR))
    def wind(
        operator: Operator,
        toy: Name,
        turns: int,
        *,
        way: Annotated[str, one_of(("left", "right"))] = "right",
        is_loud: bool = True,
        parts: Json = None,
        vhost: VhostName = "/",
    ) -> dict[str, Any]:
        """Wind a toy up.

        toy: which one
        turns: how many
        way: left, or right (the default)
        is_loud: true: it whistles
        parts: what is in it
        """
        return {"toy": toy, "turns": turns, "way": way, "is_loud": is_loud, "parts": parts, "vhost": vhost}

    try:
        with start_broker(management=True) as running:
            yield running
    finally:
        del COMMANDS["toys"]


def test_a_new_command_is_told(api: ApiClient) -> None:
    """With its route, and with all that a form needs of its arguments."""
    (found,) = api.get("leveret/commands?name=toys%20wind")
    arguments = {one["name"]: one for one in found.pop("arguments")}
    assert found == {
        "name": "toys wind",
        "help": "Wind a toy up",
        "changes": True,
        "method": "POST",
        "path": "leveret/toys/{vhost}/{toy}",
        "level": "administrator",
    }
    assert list(arguments) == ["toy", "turns", "way", "is_loud", "parts", "vhost"]
    assert arguments["turns"]["is_required"] and arguments["turns"]["kind"] == "NUMBER"
    assert (arguments["way"]["options"], arguments["way"]["default"]) == (["left", "right"], "right")
    assert arguments["is_loud"] == {
        "name": "is_loud", "kind": "BOOLEAN", "help": "true: it whistles", "is_required": False, "default": True,
        "options": [], "keys": [],
    }  # fmt: skip
    names = {one["name"] for one in api.get("leveret/commands")}
    assert {"toys wind", "declare-queue", "bind"} <= names


@long_run
def test_a_new_command_has_its_form(person: Person) -> None:
    """Fields by kind, with their defaults and what they mean; it is run after a second step."""
    person.opens("commands", heading="Commands")
    fold = person.unfolds("toys wind")
    form = fold.get_by_role("form")
    person.sees("it whistles", within=form)
    assert form.locator("[name=is_loud]").is_checked() and form.locator("[name=vhost]").input_value() == "/"
    person.fills(form, toy="a/b", turns="many", way="left", parts='{"spring": 1}')
    person.button("Run", within=form).click()
    person.sees("is not a whole number", within=form)
    person.fills(form, turns="7")
    person.button("Run", within=form).click()
    person.confirms("Run")
    for text in ('"toy": "a/b"', '"turns": 7', '"way": "left"', '"is_loud": true', '"spring": 1'):
        person.sees(text, within=fold)


def test_keys_that_forms_offer(api: ApiClient) -> None:
    """The broker takes each of them, with the value of the example."""
    for name, example, _ in known_keys.POLICY:
        assert fault_of_definition({name: example}, is_operator=False) == ""
    for name, example, _ in known_keys.OPERATOR_POLICY:
        assert fault_of_definition({name: example}, is_operator=True) == ""
    beside = {
        "x-delivery-limit": {"x-queue-type": "quorum"},
        "x-max-age": {"x-queue-type": "stream"},
        "x-dead-letter-routing-key": {"x-dead-letter-exchange": ""},
    }
    for name, example, _ in known_keys.QUEUE:
        arguments = {name: example, **beside.get(name, {})}
        made = api.ask("PUT", f"queues/%2F/{name}", {"durable": True, "arguments": arguments})
        assert made.status == 201, made.body


@long_run
@pytest.mark.parametrize(
    ("page", "heading", "fold"), [("commands", "Commands", "users add"), ("users/guest", "guest", "Password and tags")]
)
def test_a_password_is_not_shown(person: Person, page: str, heading: str, fold: str) -> None:
    """Nor kept for the next login, as what is typed into other fields is."""
    person.opens(*page.split("/"), heading=heading)
    form = person.unfolds(fold)
    form.locator("form").wait_for()
    assert form.locator("[name=password]").get_attribute("type") == "password"
