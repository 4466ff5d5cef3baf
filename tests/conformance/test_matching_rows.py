"""Matching and merging as queues feel it: the rows of address-settings page 8.1."""

import pytest
from desk import Make
from toml_text import settings

RINGS = [  # id, entries (match -> ring size), {queue: ring size or None}
    ("m01", {"#": 5, "ring.#": 3}, {"ring.a": 3, "ring": 3, "rings": 5, "x": 5}),
    ("m02", {"a.*": 2, "a.#": 4}, {"a.b": 2, "a.b.c": 4, "a": 4}),
    ("m03", {"*.*.*": 1, "orders.eu.#": 9}, {"orders.eu.x": 1}),
    ("m05", {"orders.*": 1, "*.eu": 2}, {"orders.eu": 1}),
    ("m06", {"orders.#": 1, "*.eu.#": 2}, {"orders.eu.k": 1}),
    ("m13", {"$sys.#": 1}, {"$sys": 1, "$sys.a": 1, "$sysx": None}),
    ("m17", {"a.*.b": 1}, {"a..b": None, "a.x.b": 1}),
    ("m18", {"A.#": 1}, {"a.b": None}),
]


@pytest.mark.parametrize("rings, queues", [row[1:] for row in RINGS], ids=[row[0] for row in RINGS])
def test_rings_by_wildcard(at: Make, rings: dict[str, int], queues: dict[str, int | None]) -> None:
    """Which entry a queue gets shows in how many of twelve messages it keeps."""
    desk = at(settings(**{match: {"default_ring_size": size} for match, size in rings.items()}), q=False)
    for queue, size in queues.items():
        desk.declare(queue)
        desk.publish(*"abcdefghijkl", key=queue)
        assert desk.counts(queue) == (size or 12, 0, 0), queue


def test_m11_literal_markers(at: Make) -> None:
    """The queue whose name is a pattern."""
    wildcards = '[wildcard-addresses]\nliteral-match-markers = "()"\n'
    desk = at(settings(wildcards, **{"(w.#)": {"default_ring_size": 1}, "w.#": {"default_ring_size": 2}}), q=False)
    for queue, size in (("w.#", 1), ("w.x", 2)):
        desk.declare(queue)
        desk.publish(*"abc", key=queue)
        assert desk.counts(queue) == (size, 0, 0)


def test_m09_a_default_said_is_a_value(at: Make) -> None:
    """`#` delays, `now` does not."""
    desk = at(settings(**{"#": {"redelivery_delay": 1000}, "now": {"redelivery_delay": 0}}))
    desk.declare("now")
    for queue, counts in (("q", (0, 0, 1)), ("now", (1, 0, 0))):
        desk.publish("A", key=queue)
        desk.nack(desk.must_get(queue))
        assert desk.counts(queue) == counts


def test_m10_an_empty_address_is_a_value(at: Make) -> None:
    """The message is gone, D stays empty."""
    desk = at(
        settings(**{"#": {"dead_letter_address": "D", "max_delivery_attempts": 1}, "q": {"dead_letter_address": ""}})
    )
    desk.declare("D")
    desk.publish("A")
    desk.nack(desk.must_get())
    assert (desk.counts(), desk.all("D"), desk.counter("killed")) == ((0, 0, 0), "", 1)


@pytest.mark.parametrize(
    "entry, attempts",
    [(None, None), ({"redelivery_delay": 0}, 10), ({"default_ring_size": 5}, None)],
    ids=["m14", "m15", "an entry about other things (ruling 9)"],
)
def test_m14_m15_attempts_when_nobody_says(at: Make, entry: dict[str, int] | None, attempts: int | None) -> None:
    """Unlimited, unless an entry rules redelivery: then Artemis' ten."""
    desk = at(settings(**({} if entry is None else {"q": entry})))
    desk.publish("A")
    for _ in range(attempts or 15):
        desk.nack(desk.must_get())
    assert (desk.counts(), desk.counter("killed")) == (((0, 0, 0), 1) if attempts else ((1, 0, 0), 0))


def test_default_max_delivery_attempts(at: Make) -> None:
    """What the operator says for everything nobody speaks of."""
    desk = at(settings(broker={"default_max_delivery_attempts": 2}))
    desk.publish("A")
    for _ in range(2):
        desk.nack(desk.must_get())
    assert desk.counter("killed") == 1


def test_m19_a_reload_acts_on_what_is_out(at: Make) -> None:
    """The delay of the moment of the nack counts."""
    desk = at()
    desk.declare("m.q")
    desk.publish("A", key="m.q")
    got = desk.must_get("m.q")
    desk.reload(settings(**{"m.#": {"redelivery_delay": 500}}))
    desk.nack(got)
    desk.advance_ms(450)
    assert desk.counts("m.q") == (0, 0, 1)
    desk.advance_ms(50)
    assert desk.counts("m.q") == (1, 0, 0)
