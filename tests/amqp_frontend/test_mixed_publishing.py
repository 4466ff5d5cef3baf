"""Publishes of several kinds, however they come in: the same for consumers, confirms and returns as one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair import Pair
from pamqp import commands as C
from peer import Peer, method, publish

from leveret.amqp_frontend.session import handling
from leveret.amqp_frontend.wire.events import MixedReceived
from leveret.settings import SettingsRepository, entry

#: Exchange, routing key and properties: of plain messages to one queue, which are read and published together, ...
PLAIN: list[tuple[str, str, dict[str, Any]]] = [
    ("", "a", {}),
    ("", "b", {"delivery_mode": 2}),
    ("amq.topic", "a.x", {"message_id": "0123456789abcdef"}),
    ("amq.topic", "b.x", {"priority": 4, "content_type": "text"}),
    ("", "limited", {}),
]
#: ... and of messages that each have to be looked at, or that go elsewhere.
OTHERS: list[tuple[str, str, dict[str, Any]]] = [
    ("", "a", {"expiration": "60000"}),
    ("amq.fanout", "", {}),
    ("", "nowhere", {}),
    ("", "rules", {}),
    ("", "a", {"headers": {"CC": ["b"]}}),
]
KINDS = [*PLAIN, *OTHERS]
QUEUES = ("a", "b", "limited", "rules")
#: Mostly plain ones, more than once each, so that kinds are known and follow each other.
kinds = st.lists(
    st.one_of(*[st.integers(0, len(PLAIN) - 1)] * 4, st.integers(0, len(KINDS) - 1)), min_size=6, max_size=40
)
reads = st.lists(st.integers(0, 20_000), max_size=5)


class Bench:
    """A publisher that may use confirms or transactions, and a consumer of everything."""

    def __init__(self, mode: str) -> None:
        settings_ = SettingsRepository([entry("rules", max_expiry_delay_ms=60_000)])
        self.pair = Pair(broker={"settings": settings_})
        self.consumer, self.publisher = self.pair.open(), self.pair.open()
        for name in QUEUES:
            arguments = {"x-max-length": 5, "x-overflow": "reject-publish"} if name == "limited" else {}
            self.consumer.call(1, C.Queue.Declare, queue=name, arguments=arguments)
        for name in ("a", "b"):
            self.consumer.call(1, C.Queue.Bind, queue=name, exchange="amq.topic", routing_key=f"{name}.*")
            self.consumer.call(1, C.Queue.Bind, queue=name, exchange="amq.fanout", routing_key="")
        self.mode = mode
        if mode == "confirms":
            self.publisher.call(1, C.Confirm.Select)
        elif mode == "transaction":
            self.publisher.call(1, C.Tx.Select)

    def octets(self, numbers: Sequence[int]) -> list[bytes]:
        """Numbered messages of these kinds; the first of each kind makes it known."""
        made = []
        for number, kind in enumerate(numbers):
            exchange, key, properties = KINDS[kind]
            made.append(publish(1, key, b"%d" % number, exchange=exchange, mandatory=True, **properties))
        return made

    def outcome(self) -> Any:
        """What all of that comes to."""
        if self.mode == "transaction":
            self.publisher.send(method(1, C.Tx.Commit))
        confirmed: dict[int, str] = {}
        returned = []
        up_to = 0
        for one in self.publisher.take():
            if isinstance(one.frame, C.Basic.Return):
                returned.append(one.body)
            elif isinstance(one.frame, C.Basic.Ack | C.Basic.Nack):
                tag = one.frame.delivery_tag
                first = up_to + 1 if one.frame.multiple else tag
                for each in range(first, tag + 1):
                    confirmed.setdefault(each, one.frame.name)
                up_to = max(up_to, tag)
        got = {}
        for name in QUEUES:
            bodies = []
            while isinstance((answer := self._get(name)).frame, C.Basic.GetOk):
                bodies.append(
                    (answer.body, answer.frame.exchange, answer.frame.routing_key, answer.properties.expiration)
                )
            got[name] = bodies
        return got, confirmed, returned

    def _get(self, name: str) -> Any:
        self.consumer.send(method(1, C.Basic.Get, queue=name, no_ack=True))
        (answer,) = self.consumer.take()
        return answer


@pytest.mark.parametrize("mode", ["plain", "confirms", "transaction"])
@settings(deadline=None, max_examples=40)
@given(numbers=kinds, cuts=reads)
def test_a_read_of_many_kinds_is_as_a_read_for_each(mode: str, numbers: list[int], cuts: list[int]) -> None:
    """Several queues, fanouts, refusals, expiry and copies among them, cut into reads anywhere."""
    together, alone = Bench(mode), Bench(mode)
    octets = together.octets(numbers)
    data = b"".join(octets)
    places = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    together.publisher.send(*(data[start:stop] for start, stop in zip(places, places[1:])))
    alone.publisher.send(*octets)
    assert together.outcome() == alone.outcome()


@pytest.fixture(name="mixed_runs")
def counted_mixed_runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages each mixed run has that is handled."""
    sizes: list[int] = []
    real = handling.EVENT_HANDLERS[MixedReceived]

    def count(session: Any, event: MixedReceived, now: Any) -> Any:
        sizes.append(len(event.contents))
        return real(session, event, now)

    monkeypatch.setitem(handling.EVENT_HANDLERS, MixedReceived, count)
    return sizes


def _ready(peer: Peer, name: str) -> int:
    return int(peer.call(1, C.Queue.Declare, queue=name, passive=True).message_count)


def test_an_alarm_in_the_middle_of_a_connection_blocks_what_comes_then(mixed_runs: list[int]) -> None:
    """Routes are stale then, so that a mixed run is taken apart: all of it waits, in order, until the alarm ends."""
    bench = Bench("plain")
    numbers = [0, 1] * 20
    data = b"".join(bench.octets(numbers))
    bench.publisher.send(data)
    before = (_ready(bench.consumer, "a"), _ready(bench.consumer, "b"))
    assert mixed_runs and before == (20, 20)
    bench.pair.broker.flow.raise_alarm("test")
    bench.publisher.send(data)
    assert (_ready(bench.consumer, "a"), _ready(bench.consumer, "b")) == before
    bench.pair.broker.flow.end_alarm()
    bench.pair.end_turn()
    bench.publisher.send(b"")
    got, _, _ = bench.outcome()
    assert [body for body, *_ in got["a"]] == [b"%d" % number for number in range(0, 40, 2)] * 2
    assert [body for body, *_ in got["b"]] == [b"%d" % number for number in range(1, 40, 2)] * 2


def test_a_queue_that_goes_makes_its_kind_unroutable(mixed_runs: list[int]) -> None:
    """What was known of a kind does not outlive the queue; the other kinds of the read are not touched."""
    bench = Bench("plain")
    data = b"".join(bench.octets([0, 1] * 10))
    bench.publisher.send(data)
    assert sum(mixed_runs)
    bench.consumer.call(1, C.Queue.Delete, queue="a")
    bench.publisher.send(data)
    assert _ready(bench.consumer, "b") == 20
    assert sum(isinstance(one.frame, C.Basic.Return) for one in bench.publisher.take()) == 10


def test_a_refusal_is_of_the_message_that_was_refused(mixed_runs: list[int]) -> None:
    """Messages of several queues are published queue by queue; their confirms go by the order of publishing."""
    bench = Bench("confirms")
    bench.publisher.send(b"".join(bench.octets([0, 4] * 10)))
    assert sum(mixed_runs)
    _, confirmed, _ = bench.outcome()
    limited = range(2, 21, 2)
    assert [tag for tag, name in confirmed.items() if name == "Basic.Nack"] == list(limited)[5:]
    assert len(confirmed) == 20


def test_the_rest_of_a_long_mixed_run_comes_before_what_was_deferred_behind_it(mixed_runs: list[int]) -> None:
    """Two reads wait for the end of an alarm; the first is too much for one turn, and goes on in the next."""
    bench = Bench("plain")
    for number in range(1500):
        bench.consumer.call(1, C.Queue.Declare, queue=f"{number}")
        bench.consumer.call(1, C.Queue.Bind, queue=f"{number}", exchange="amq.fanout", routing_key="")
    octets = bench.octets([0, 6] * 12)
    bench.publisher.send(b"".join(octets[:6]))  # the kinds are known
    bench.pair.broker.flow.raise_alarm("test")
    bench.publisher.send(b"".join(octets[6:16]), b"".join(octets[16:]))
    bench.pair.broker.flow.end_alarm()
    bench.publisher.send(b"")
    assert len(mixed_runs) > 1
    bodies = [int(body) for body, *_ in bench.outcome()[0]["a"]]
    assert bodies == list(range(24))
