"""Lists of the page: columns to choose, the virtual host that narrows, the keyboard, and what fits.

Source: management page 15.
"""

import os
from typing import Any

import pika
import pytest
from api_client import ApiClient
from page_person import Person

from leveret.testing import RunningBroker

pytestmark = pytest.mark.skipif("LEVERET_BROWSER" not in os.environ, reason="the long run (make browser)")


@pytest.fixture(scope="module", autouse=True)
def queues(broker: RunningBroker) -> None:
    """Three in one virtual host, one in another."""
    api = ApiClient(broker.management_url)
    api.ask("PUT", "vhosts/shop", {})
    for name in ("one", "two", "three", "a-long-name-of-a-queue." * 5):
        api.ask("PUT", f"queues/%2F/{name}", {"durable": True, "arguments": {"x-max-length": 5}})
    api.ask("PUT", "queues/shop/basket", {})


def _titles(person: Person) -> list[str]:
    heads = person.tab.locator("thead th").all_inner_texts()
    return [text.strip("↕↑↓ \xa0") for text in heads if text.strip()]


def test_columns_are_chosen_and_stay_in_the_address(person: Person) -> None:
    """Also over a reload, and for whoever gets the address; the name is always there."""
    person.opens("queues", heading="Queues")
    person.sees("three")
    assert "Scheduled" in _titles(person) and "Type" not in _titles(person)
    person.tab.get_by_text("Columns", exact=True).click()
    person.tab.get_by_label("Type", exact=True).check()
    person.tab.get_by_label("Scheduled", exact=True).uncheck()
    person.tab.get_by_role("columnheader", name="Type").wait_for()
    assert "Scheduled" not in _titles(person)
    address = person.tab.evaluate("location.hash")
    assert "type" in address and "scheduled" not in address
    person.tab.reload()
    person.tab.get_by_role("columnheader", name="Type").wait_for()
    person.tab.goto(f"{person.url}#/queues?columns=ready,policy")
    person.tab.get_by_role("columnheader", name="Policy").wait_for()
    assert _titles(person) == ["Name", "Ready", "Policy"]
    person.tab.get_by_text("Columns", exact=True).click()
    person.button("As by default").click()
    person.tab.get_by_role("columnheader", name="Scheduled").wait_for()


def test_the_name_stays_when_a_list_is_moved_sideways(person: Person) -> None:
    """With more columns than the screen is wide."""
    person.tab.set_viewport_size({"width": 800, "height": 700})
    person.opens("queues", heading="Queues")
    link = person.link("one")
    before = link.bounding_box()
    moved = person.tab.locator(".scroll").evaluate("box => { box.scrollLeft = 300; return box.scrollLeft; }")
    assert moved > 100 and link.bounding_box() == before


#: With a rate of some size in each cell of numbers.
FITS = """() => {
  for (const cell of document.querySelectorAll("tbody td.number")) cell.textContent = "123.4/s";
  return [...document.querySelectorAll(".scroll")].every((box) => box.scrollWidth <= box.clientWidth);
}"""


@pytest.mark.parametrize("place", ["queues", "connections", "channels", "exchanges", "policies", "users", "vhosts"])
def test_what_is_shown_by_default_fits(person: Person, broker: RunningBroker, place: str) -> None:
    """At 1280 px no list has to be moved sideways, whatever the rates are."""
    parameters = pika.URLParameters(broker.url)
    parameters.client_properties = {"connection_name": "a-worker-with-a-name"}
    with pika.BlockingConnection(parameters) as connection:
        connection.channel()
        person.opens(place)
        person.tab.locator("main table, main .empty").first.wait_for()
        assert person.tab.evaluate(FITS)


def test_by_the_keyboard(person: Person) -> None:
    """From the filter into the rows, from row to row, and by Enter to the page of one."""
    person.opens("queues", heading="Queues")
    person.sees("three")
    person.tab.get_by_role("searchbox", name="Filter").focus()
    person.tab.keyboard.press("ArrowDown")

    def here() -> Any:
        return person.tab.evaluate("document.activeElement.textContent")

    assert here().startswith("a-long-name")
    person.tab.keyboard.press("ArrowDown")
    assert here() == "one"
    person.tab.keyboard.press("ArrowDown")
    person.tab.keyboard.press("ArrowDown")
    assert here() == "two"
    person.tab.keyboard.press("ArrowUp")
    assert here() == "three"
    person.tab.keyboard.press("Enter")
    person.sees_heading("three")


def test_the_virtual_host_that_narrows_can_be_left(person: Person) -> None:
    """It is named above each list that it narrows, with a button that ends that."""
    person.opens("queues", heading="Queues")
    person.sees("basket")
    person.tab.locator(".choices").get_by_label("Virtual host").select_option("shop")
    person.sees("Only in the virtual host")
    person.sees_no(person.link("three"))
    person.opens("users", heading="Users")
    assert person.tab.get_by_text("Only in the virtual host").count() == 0
    person.opens("scheduled", heading="Scheduled")
    person.sees("Only in the virtual host")
    person.opens("queues", heading="Queues")
    person.button("In all virtual hosts").click()
    person.sees("three")
    assert person.tab.get_by_text("Only in the virtual host").count() == 0
