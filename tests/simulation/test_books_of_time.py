"""The oracle's books of expiry, redelivery, deaths, and of what comes to clients: see test_books.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from history import PUBLISHER, History, Step, content_of, envelope_of
from simulator.books.deaths import Deaths
from simulator.books.deliveries import Deliveries
from simulator.books.expiries import Expiries
from simulator.books.redelivery import Redelivery, wait_of
from simulator.books.routing import Routing
from simulator.clients.knowledge import body_of, key_of
from simulator.ledger import Broken

from leveret.engine import PublishedEvent
from leveret.engine.messages.field_table import Field


def say_no(history: History, steps: list[Step], sentence: str) -> None:
    """To the last step, and to none before it."""
    history.tell(steps[:-1])
    with pytest.raises(Broken, match=sentence):
        history.tell(steps[-1:])


# -- expiries ---------------------------------------------------------------------------------------------------------


def of_expiries() -> History:
    def make(history: History) -> Expiries:
        clock: Any = history.clock
        return Expiries(history.where, clock)

    return History(make, a={"ttl_ms": 100}, b={}, s={"stream": True, "keeps": True, "ttl_ms": 1})


@pytest.mark.parametrize("steps", [
    [("enqueued", "a", [1]), ("passed", 99), ("delivered", "a", [1])],
    [("enqueued", "a", [1]), ("passed", 100), ("left", "a", [1], "expired"), ("check",)],
    [("enqueued", "a", [1], {"expiration": b"50"}), ("passed", 50), ("left", "a", [1], "expired")],
    [("enqueued", "a", [1], {"expiration": b"500"}), ("passed", 100), ("left", "a", [1], "expired")],
    [("enqueued", "b", [1], {"expiration": b"0"}), ("delivered", "b", [1])],
    [("enqueued", "b", [1]), ("passed", 10**6), ("delivered", "b", [1])],
    [("enqueued", "a", [1]), ("has", "a", [1]), ("restarted",), ("passed", 99), ("left", "a", [1], "expired")],
    [("enqueued", "a", [1]), ("has", "a", [1]), ("clock_was_set", 9**9), ("restarted",), ("left", "a", [1], "expired")],
    [("enqueued", "s", [1]), ("passed", 500), ("left", "s", [1], "expired")],
])  # fmt: skip
def test_expiries_says_yes_to_what_lives_as_long_as_it_may(steps: list[Step]) -> None:
    of_expiries().tell(steps)


@pytest.mark.parametrize(("sentence", "steps"), [
    ("was delivered 1.0 ms after", [("enqueued", "a", [1]), ("passed", 101), ("delivered", "a", [1])]),
    ("delivered 1.0 ms after", [("enqueued", "b", [1], {"expiration": b"4"}), ("passed", 5), ("delivered", "b", [1])]),
    ("expired 1.0 ms before", [("enqueued", "a", [1]), ("passed", 99), ("left", "a", [1], "expired")]),
    ("still there 1001.0 ms after", [("enqueued", "a", [1]), ("passed", 1101), ("check",)]),
    ("expired 3.0 ms before", [
        ("enqueued", "a", [1]), ("has", "a", [1]), ("restarted",), ("passed", 97), ("left", "a", [1], "expired"),
    ]),
])  # fmt: skip
def test_expiries_says_no(sentence: str, steps: list[Step]) -> None:
    say_no(of_expiries(), steps, sentence)


# -- redelivery -------------------------------------------------------------------------------------------------------

DELAYS = {"delay_ms": 100, "delay_multiplier": 2.0, "delay_max_ms": 300, "attempts_max": 4}
OUT: list[Step] = [("enqueued", "a", [1]), ("delivered", "a", [1])]
ONCE: list[Step] = [*OUT, ("scheduled", "a", [1], 100), ("passed", 100), ("due", "a", [1]), ("delivered", "a", [1])]
DIED = {"reason": "delivery_limit"}


def of_redelivery() -> History:
    def make(history: History) -> Redelivery:
        clock: Any = history.clock
        return Redelivery(history.where, clock)

    return History(make, a=DELAYS, b={"attempts_max": 2}, c={})


def test_redelivery_knows_the_formula() -> None:
    place: Any = SimpleNamespace(features=DELAYS)
    assert [wait_of(place, tries) for tries in range(5)] == [100, 100, 200, 300, 300]


@pytest.mark.parametrize("steps", [
    [*ONCE, ("scheduled", "a", [1], 200), ("passed", 200), ("due", "a", [1]), ("delivered", "a", [1]),
     ("scheduled", "a", [1], 300), ("passed", 300), ("check",), ("due", "a", [1]), ("delivered", "a", [1]),
     ("left", "a", [1], "dead_lettered", DIED)],
    [*OUT, ("requeued", "a", [1], "connection_closed", {"counted": False}), ("delivered", "a", [1]),
     ("scheduled", "a", [1], 100)],
    [("enqueued", "b", [1]), ("delivered", "b", [1]), ("requeued", "b", [1]), ("delivered", "b", [1]),
     ("left", "b", [1], "killed", DIED)],
    [("enqueued", "c", [1]), ("delivered", "c", [1]), ("requeued", "c", [1]), ("delivered", "c", [1])],
    [*OUT, ("has", "a", [1], {"tries": 1}), ("restarted",), ("delivered", "a", [1]), ("scheduled", "a", [1], 200)],
    [*OUT, ("has_waiting", "a", (1, 100)), ("restarted",), ("passed", 100), ("due", "a", [1])],
])  # fmt: skip
def test_redelivery_says_yes_to_what_waits_as_the_formula_says(steps: list[Step]) -> None:
    of_redelivery().tell(steps)


@pytest.mark.parametrize(("sentence", "steps"), [
    ("waits 101.0 ms, and not 100", [*OUT, ("scheduled", "a", [1], 101)]),
    ("waits 100.0 ms, and not 200", [*ONCE, ("scheduled", "a", [1], 100)]),
    ("is ready 1.0 ms too early", [*OUT, ("scheduled", "a", [1], 100), ("passed", 99), ("due", "a", [1])]),
    ("still waits 1001.0 ms", [*OUT, ("scheduled", "a", [1], 100), ("passed", 1101), ("check",)]),
    ("did not wait", [*OUT, ("requeued", "a", [1])]),
    ("nothing says so", [("enqueued", "c", [1]), ("delivered", "c", [1]), ("scheduled", "c", [1], 100)]),
    ("nothing says so", [("enqueued", "a", [1]), ("scheduled", "a", [1], 100, {"counted": None})]),
    ("2 times of 2 and comes back", [
        ("enqueued", "b", [1]), ("delivered", "b", [1]), ("requeued", "b", [1]), ("delivered", "b", [1]),
        ("requeued", "b", [1]),
    ]),
    ("died of 1 attempts of 4", [*OUT, ("left", "a", [1], "dead_lettered", DIED)]),
    ("was tried 2 times, and 1 before", [*OUT, ("has", "a", [1], {"tries": 2}), ("restarted",)]),
    ("was tried 2 times of 2 and is there", [("has", "b", [1], {"tries": 2}), ("restarted",)]),
])  # fmt: skip
def test_redelivery_says_no(sentence: str, steps: list[Step]) -> None:
    say_no(of_redelivery(), steps, sentence)


# -- deaths -----------------------------------------------------------------------------------------------------------


class DeathHistory(History):
    """With dead letters as the engine makes them."""

    def __init__(self) -> None:
        super().__init__(
            lambda history: Deaths(history.where),
            a={"dead_letter_to": "dead", "dead_letter_exchange": ""},
            b={},
            dead={"foreign": True},
        )

    def died_at_start(self, queue: str, ids: list[int]) -> None:
        book = self.book
        assert isinstance(book, Deaths)
        book.are_due([(("/", queue), id_) for id_ in ids])

    def dead_letter(self, id_: int, of: int, reason: str, *told: tuple[str, str, int], to: str = "dead") -> None:
        """`told`: queue, reason and count of each entry of its x-death."""
        entries = [
            Field("F", {"queue": _text(queue), "reason": _text(why), "count": Field("l", count)})
            for queue, why, count in told
        ]
        envelope = envelope_of(routing_key=to)
        envelope.cause_id = of
        content = content_of(id_, {"x-death": Field("A", entries)})
        self.event(PublishedEvent("/", "", [id_], envelope, [content], (), reason))


def _text(value: str) -> Field:
    return Field("S", value.encode())


REJECTED = {"reason": "rejected", "to": ""}
LATE = {"reason": "expired", "to": ""}
#: Two messages die, each in its way; one of them dies again where its dead letter went.
DEATHS: list[Step] = [
    ("enqueued", "a", [1, 2]),
    ("left", "a", [1], "dead_lettered", REJECTED),
    ("left", "a", [2], "expired", LATE),
    ("dead_letter", 11, 1, "rejected", ("a", "rejected", 1)),
    ("dead_letter", 12, 2, "expired", ("a", "expired", 1)),
    ("turn_ended",),
    ("enqueued", "dead", [11, 12]),
    ("enqueued", "a", [13]),
]
AGAIN: list[Step] = [*DEATHS, ("left", "dead", [11], "dead_lettered", REJECTED)]
BOTH = (("dead", "rejected", 1), ("a", "rejected", 1))


@pytest.mark.parametrize("steps", [
    [*DEATHS, ("left", "a", [13], "purged"), ("turn_ended",)],
    [*AGAIN, ("dead_letter", 21, 11, "rejected", *BOTH), ("turn_ended",)],
    [("restarted",), ("dead_letter", 5, 4, "maxlen", ("a", "maxlen", 1)), ("turn_ended",)],
    [("restarted",), ("died_at_start", "b", [5]), ("turn_ended",)],
    [("restarted",), ("died_at_start", "a", [4]), ("dead_letter", 5, 4, "delivery_limit", ("a", "delivery_limit", 1)),
     ("turn_ended",)],
    [*DEATHS, ("has", "dead", [11]), ("restarted",), *AGAIN[-1:], ("dead_letter", 21, 11, "rejected", *BOTH)],
])  # fmt: skip
def test_deaths_says_yes_to_dead_letters_that_tell_the_truth(steps: list[Step]) -> None:
    DeathHistory().tell(steps)


@pytest.mark.parametrize(("sentence", "steps"), [
    ("no dead letters came", [*DEATHS[:4], ("turn_ended",)]),
    ("for which nobody waits", [*DEATHS, ("dead_letter", 14, 2, "expired", ("a", "expired", 1))]),
    ("to come was 1", [*DEATHS[:3], ("dead_letter", 12, 2, "expired", ("a", "expired", 1))]),
    (r"to come was 1 \(rejected\)", [*DEATHS[:3], ("dead_letter", 11, 1, "expired", ("a", "expired", 1))]),
    ("to be told was", [*DEATHS[:3], ("dead_letter", 11, 1, "rejected", ("a", "rejected", 2))]),
    ("to be told was", [*AGAIN, ("dead_letter", 21, 11, "rejected", ("dead", "rejected", 1))]),
    ("has two entries", [*DEATHS[:3], ("dead_letter", 11, 1, "rejected", ("a", "rejected", 1), ("a", "rejected", 1))]),
    ("and not to dead", [*DEATHS[:3], ("dead_letter", 11, 1, "rejected", ("a", "rejected", 1), {"to": "a"})]),
    (r"\[4\] died of their last attempt", [("restarted",), ("died_at_start", "a", [4]), ("turn_ended",)]),
    ("have nowhere to go", [("enqueued", "b", [1]), ("left", "b", [1], "dead_lettered", REJECTED)]),
])  # fmt: skip
def test_deaths_says_no(sentence: str, steps: list[Step]) -> None:
    say_no(DeathHistory(), steps, sentence)


# -- deliveries -------------------------------------------------------------------------------------------------------


class DeliveryHistory(History):
    """With clients to whom deliveries come. `product`: what each connection calls itself."""

    def __init__(self) -> None:
        self.routing = Routing()
        super().__init__(
            lambda history: Deliveries(history.where, self.routing),
            a={},
            leveled={"priority_max": 5},
            s={"stream": True, "keeps": True},
        )
        self.sessions = {
            name: FakeSession(number, SimpleNamespace(properties={"product": SimpleNamespace(text=name)}))
            for number, name in enumerate(("first", "second"), 1)
        }

    def went(self, queue: str, ids: list[int], to: str = "first", *, consumer: str | None = "c") -> None:
        """The engine hands them out."""
        self.delivered(queue, ids, session=self.sessions[to], consumer=consumer)

    def arrived(
        self,
        tag: int,
        number: int,
        at: str = "first",
        *,
        redelivered: bool = False,
        consumer: str | None = "c",
        address: bytes = b"",
    ) -> None:
        """A delivery comes to a client, with the octets of a message."""
        book, session = self.book, self.sessions[at]
        assert isinstance(book, Deliveries)
        came = SimpleNamespace(header=b"", address=address or self.routing.addresses.get(number, b""))
        book.arrived(at, session.number, consumer, tag, redelivered, body_of(key_of(PUBLISHER, number), 10), came)

    def told_keys(self, *ids: int) -> None:
        """Which messages were published as what."""
        self.routing.keys |= {id_: key_of(PUBLISHER, id_) for id_ in ids}
        self.routing.addresses |= dict.fromkeys(ids, b"\0\1a")

    def leaves(self, tag: int, count: int | None) -> None:
        """So many were ready behind what a get took."""
        assert isinstance(self.book, Deliveries)
        assert self.book.left_behind("first", 1, tag) == count

    def owes(self, product: str, count: int) -> None:
        """So many have not come."""
        assert isinstance(self.book, Deliveries)
        assert self.book.owed(product) == count


class FakeSession:
    """A session, as events name it: one of its own."""

    def __init__(self, number: int, client: Any) -> None:
        self.number, self.client = number, client


THREE: list[Step] = [("told_keys", 1, 2, 3), ("enqueued", "a", [1, 2, 3])]
AGAIN_FLAG = {"redelivered": True}


@pytest.mark.parametrize("steps", [
    [*THREE, ("went", "a", [1, 2]), ("owes", "first", 2), ("turn_ended",), ("arrived", 1, 1), ("arrived", 2, 2),
     ("requeued", "a", [1]), ("went", "a", [1, 3], "second"), ("turn_ended",),
     ("arrived", 1, 1, "second", AGAIN_FLAG), ("arrived", 2, 3, "second"), ("owes", "second", 0)],
    [*THREE, ("went", "a", [1, 3]), ("went", "a", [2], "second"), ("turn_ended",)],
    [*THREE, ("went", "a", [1]), ("has", "a", [1, 2, 3]), ("restarted",),
     ("went", "a", [1, 2]), ("arrived", 1, 1, AGAIN_FLAG), ("arrived", 2, 2)],
    [*THREE, ("went", "a", [1]), ("has", "a", [1, 2, 3]), ("restarted",), ("went", "a", [1]), ("arrived", 1, 1)],
    [("enqueued", "leveled", [1, 2]), ("went", "leveled", [2, 1]), ("turn_ended",)],
    [*THREE, ("went", "a", [1], {"consumer": None}), ("leaves", 1, 2), ("leaves", 1, None), ("leaves", 2, None)],
    [("enqueued", "s", [1, 2, 3]), ("went", "s", [2]), ("went", "s", [3]), ("went", "s", [1, 2], {"consumer": "d"})],
])  # fmt: skip
def test_deliveries_says_yes_to_what_comes_once_in_order_and_says_truly_whether_again(steps: list[Step]) -> None:
    DeliveryHistory().tell(steps)


@pytest.mark.parametrize(("sentence", "steps"), [
    ("comes for the first time, after 2", [*THREE, ("went", "a", [2]), ("went", "a", [1])]),
    ("2 went for the first time, and 1 is still there", [*THREE, ("went", "a", [2]), ("turn_ended",)]),
    ("requeued and never delivered", [*THREE, ("requeued", "a", [1])]),
    ("was not handed out", [*THREE, ("arrived", 1, 1)]),
    ("or came twice", [*THREE, ("went", "a", [1]), ("arrived", 1, 1), ("arrived", 1, 1)]),
    ("was not handed out", [*THREE, ("went", "a", [1]), ("arrived", 1, 1, "second")]),
    ("is not message 1", [*THREE, ("went", "a", [1, 2]), ("arrived", 1, 2)]),
    ("handed out to c, and came to d", [*THREE, ("went", "a", [1]), ("arrived", 1, 1, {"consumer": "d"})]),
    ("as published to", [*THREE, ("went", "a", [1]), ("arrived", 1, 1, {"address": b"\0\1b"})]),
    ("says redelivered=True", [*THREE, ("went", "a", [1]), ("arrived", 1, 1, AGAIN_FLAG)]),
    ("says redelivered=False", [
        *THREE, ("went", "a", [1]), ("arrived", 1, 1), ("requeued", "a", [1]), ("went", "a", [1]), ("arrived", 2, 1),
    ]),
    ("after 1 comes 3, and not 2", [("enqueued", "s", [1, 2, 3]), ("went", "s", [1]), ("went", "s", [3])]),
    ("were read, there is", [("enqueued", "s", [1, 2, 3]), ("went", "s", [1, 3])]),
])  # fmt: skip
def test_deliveries_says_no(sentence: str, steps: list[Step]) -> None:
    say_no(DeliveryHistory(), steps, sentence)
