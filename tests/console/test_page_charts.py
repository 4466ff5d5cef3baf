"""Charts of the page: one figure for a rate wherever it stands, gaps where nothing is known, lines with their colours.

Source: management page 15.
"""

import os
import threading
from typing import Any

import pika
import pytest
from api_client import ApiClient
from page_person import Person

from leveret.testing import RunningBroker

pytestmark = pytest.mark.skipif("LEVERET_BROWSER" not in os.environ, reason="the long run (make browser)")

#: Ten samples, five seconds apart, of a counter that is followed from the sixth on.
HISTORY = """async (since) => {
  const { history } = await import("./js/chart.js");
  const sampleOf = (n) => (n < 5 ? 90 - n * 10 : 0);
  const samples = Array.from({ length: 10 }, (_, n) => ({ timestamp: 100000 - n * 5000, sample: sampleOf(n) }));
  const one = { value: 7, details: { rate: 7, samples } };
  const of = (isRate) => history(`test ${since} ${isRate}`, 100000, [{ ...one, isRate }], 0, since);
  return [of(false).lines[0], of(true).lines[0], of(true).now];
}"""


def test_nothing_is_drawn_before_the_first_sample(person: Person) -> None:
    """RabbitMQ's samples are 0 there; a rate needs two that are known. The legend shows the figure of the page."""
    lengths, rates, now = person.tab.evaluate(HISTORY, 80_000)
    assert (lengths, rates, now) == ([50, 60, 70, 80, 90], [2, 2, 2, 2], [7])
    lengths, rates, _ = person.tab.evaluate(HISTORY, 0)
    assert (lengths, rates) == ([0] * 5 + [50, 60, 70, 80, 90], [0] * 4 + [10, 2, 2, 2, 2])


#: A chart whose lines become others: their numbers, before and after.
OTHER_LINES = """async ([before, after]) => {
  const { html, render } = await import("./js/lib.js");
  const { Lines } = await import("./js/chart.js");
  const place = document.createElement("div");
  document.body.append(place);
  const samples = [3, 2, 1].map((n) => ({ timestamp: n * 5000, sample: n }));
  for (const count of [before, after]) {
    const lines = Array.from({ length: count }, (_, n) => [`line ${n}`, n, { rate: n, samples }]);
    const rest = { title: "Rates", id: "rates", at: 15000 - count, range: 0, shown: String };
    render(html`<${Lines} ...${rest} lines=${lines} />`, place);
    await new Promise((done) => setTimeout(done, 200));
  }
  const shown = [...place.querySelectorAll(".u-legend .u-label")].map((one) => one.textContent.replace(":", ""));
  render(null, place);
  place.remove();
  return shown;
}"""


@pytest.mark.parametrize(("before", "after"), [(3, 1), (1, 3)])
def test_a_chart_whose_lines_become_others(person: Person, before: int, after: int) -> None:
    """As the overview's when its rates begin. The browser has nothing to complain of."""
    shown = person.tab.evaluate(OTHER_LINES, [before, after])
    assert shown == ["Time", *(f"line {number}" for number in range(after))]


def _figures(person: Person) -> tuple[dict[str, str], dict[str, str]]:
    """What tiles show, and what legends show, at one moment."""
    found: Any = person.tab.evaluate("""() => {
      const texts = (root, name, value) => [...document.querySelectorAll(root)].map((one) =>
        [one.querySelector(name).textContent.replace(":", ""), one.querySelector(value).textContent]);
      return [texts(".tile", ".tile-label", ".tile-value"), texts(".u-legend .u-series", ".u-label", ".u-value")];
    }""")
    tiles, legends = map(dict, found)
    return tiles, legends


@pytest.mark.parametrize("place", [("queues", "/", "busy"), ()])
def test_one_figure_for_a_rate(person: Person, broker: RunningBroker, api: ApiClient, place: tuple[str, ...]) -> None:
    """The tile and the legend of the chart show the same, while messages come and go."""
    api.ask("PUT", "queues/%2F/busy", {})
    over = threading.Event()

    def publish() -> None:
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            while not over.wait(0.05):
                channel.basic_publish("", "busy", b"x")
                channel.basic_get("busy", auto_ack=True)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        person.tab.locator(".choices").get_by_label("Refresh").select_option("1")
        person.opens(*place)
        moving = person.tab.locator(".tile", has_text="In" if place else "Published").get_by_text("/s")
        person.tab.wait_for_function("one => !one.textContent.startsWith('0/s')", arg=moving.first.element_handle())
        tiles, legends = _figures(person)
        shared = tiles.keys() & legends.keys()
        assert {"Ready", "Unacknowledged", "In" if place else "Published"} <= shared
        assert {label: legends[label] for label in shared} == {label: tiles[label] for label in shared}
    finally:
        over.set()
        thread.join()


def test_a_line_keeps_its_colour(person: Person) -> None:
    """By its name, whatever other lines there are."""
    colours = """async (labels) => (await import("./js/chart.js")).coloursOf(labels)"""
    all_of_it = person.tab.evaluate(colours, ["Published", "Delivered", "Acknowledged", "Redelivered", "Unroutable"])
    some = person.tab.evaluate(colours, ["Acknowledged", "Unroutable"])
    assert some == [all_of_it[2], all_of_it[4]] and len(set(all_of_it)) == 5


def test_the_range_of_a_queue(person: Person, api: ApiClient) -> None:
    """Is chosen; the broker keeps an hour."""
    api.ask("PUT", "queues/%2F/ranges", {})
    person.opens("queues", "/", "ranges", heading="ranges")
    with person.tab.expect_request(lambda request: "lengths_age=3600" in request.url):
        person.button("1 h").click()
    assert person.button("1 h").get_attribute("aria-pressed") == "true"
    assert person.button("24 h").count() == 0


def test_the_range_of_a_connection_a_channel_and_an_exchange(
    person: Person, broker: RunningBroker, api: ApiClient
) -> None:
    """A minute or ten; the node has a day."""
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        connection.channel().basic_publish("amq.fanout", "", b"x")
        connection.process_data_events(0)
        (client,), (channel,) = api.get("connections"), api.get("channels")
        for place, name in (
            ("connections", client["name"]),
            ("channels", channel["name"]),
            ("exchanges", "amq.fanout"),
        ):
            names = ("/", name) if place == "exchanges" else (name,)
            person.opens(place, *names, heading=name)
            with person.tab.expect_response(lambda answer: "msg_rates_age=600" in answer.url) as answered:
                person.button("10 min").click()
            assert "sampled_since_ms" in answered.value.json()["leveret"]
            assert person.button("1 h").count() == 0
    person.opens("vhosts", "/", heading="/")
    with person.tab.expect_response(lambda answer: "msg_rates_age=600" in answer.url) as answered:
        person.button("10 min").click()
    assert len(answered.value.json()["messages_ready_details"]["samples"]) == 61
    person.tab.get_by_role("img", name="Rates, now: Published").wait_for()
    person.opens("node", heading="Node")
    with person.tab.expect_response(lambda answer: "node_stats_age=86400" in answer.url) as answered:
        person.button("24 h").click()
    (node,) = answered.value.json()
    assert len(node["mem_used_details"]["samples"]) == 49
    person.tab.get_by_role("img", name="Memory, now").wait_for()
    person.opens("", heading="Overview")
    person.tab.get_by_role("img", name="Opened and closed, now: connections created").wait_for()
