"""The oracle's book of leases says yes to correct histories, and no to each fault that it is for."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from history import History, Step, content_of, envelope_of
from simulator.books.leases import Leases, Subscription
from simulator.books.routing import Routing
from simulator.ledger import Broken

from leveret.engine import DeliveredEvent, LeaseEndedEvent, PublishedEvent
from leveret.engine.messages.field_table import Field

#: Queue names by what is special about them; all have a backlog of two a consumer.
RULES: dict[str, dict[str, Any]] = {
    "a": {},
    "timed": {"lease_ms": 100},
    "full": {"backlog_total": 3},
    "strict": {"leasing": "strict"},
    "once": {"semantics": "at-most-once"},
    "thrice": {"max_deliveries": 2, "max_cancels": 2},
    "mortal": {"ttl_ms": 50},
}


class LeaseHistory(History):
    """Consumers are "c1", "c2" (which take all), "f" (`of = 'a'`), "n" (no_ack), "r" (renews), and "" (basic.get)."""

    book: Leases

    def __init__(self) -> None:
        def make(history: History) -> Leases:
            clock: Any = history.clock
            return Leases(history.where, clock)

        queues: dict[str, Any] = {name: {"leased": {"backlog": 2, **rules}} for name, rules in RULES.items()}
        super().__init__(make, **queues, ranked={"leased": {"backlog": 2}, "ranks": 5})
        self._sessions = {name: FakeSession(name) for name in ("c1", "c2", "f", "n", "r", "")}
        for name, filter_ in (("c1", ""), ("c2", ""), ("f", "of = 'a'"), ("n", ""), ("r", "")):
            subscription = Subscription(filter_, 2, no_ack=name == "n", renews=name == "r")
            self.book.subscribed((f"product {name}", 1, name), subscription)

    def came(self, queue: str, *ids: int, of: str | None = None, **facts: Any) -> None:
        contents = [content_of(id_, None if of is None else {"of": Field("S", of.encode())}) for id_ in ids]
        queues: Any = (self.broker.queues[queue],)
        self.event(PublishedEvent("/", "", ids, envelope_of(), contents, queues))
        self.enqueued(queue, ids, **facts)

    def lent(self, queue: str, to: str, *ids: int) -> None:
        self.event(DeliveredEvent("/", queue, ids, envelope_of(), self._sessions[to], to or None))

    def ended(self, queue: str, why: str, *ids: int) -> None:
        self.event(LeaseEndedEvent("/", queue, ids, (), why))

    def settles(self, queue: str, who: str, *ids: int, channel: int = 1) -> None:
        """A client is about to acknowledge, or anything else but reject for good."""
        for id_ in ids:
            self.book.acks(("/", queue), id_, f"product {who}", channel)

    def rejects(self, queue: str, *ids: int) -> None:
        for id_ in ids:
            self.book.rejects(("/", queue), id_)

    def discards(self, queue: str) -> None:
        self.book.discards(("/", queue), "of = 'a'")

    def consumes(self, queue: str, *who: str) -> None:
        """By what the broker says at rest."""
        consumers = [SimpleNamespace(session=self._sessions[one], tag=one) for one in who]
        queues: dict[str, Any] = self.broker.queues
        for other in queues.values():
            other.consumer_list = SimpleNamespace(consumers=[])
        queues[queue].consumer_list = SimpleNamespace(consumers=consumers)


class FakeSession:
    """Of a client with one channel."""

    def __init__(self, name: str) -> None:
        self.client = SimpleNamespace(properties={"product": SimpleNamespace(text=f"product {name}")})
        self.number = 1


END = ("turn_ended",)
#: Delivered as often as it may be.
TWICE: list[Step] = [("came", "thrice", 1)] + [("lent", "thrice", "c1", 1), ("ended", "thrice", "lost", 1)] * 2


@pytest.mark.parametrize("steps", [
    [("came", "a", 1, 2, 3), ("lent", "a", "c1", 1, 3), ("lent", "a", "c2", 2), END, ("settles", "a", "c1", 1),
     ("acked", "a", [1]), END],
    [("came", "a", 1), ("lent", "a", "c1", 1), ("ended", "a", "nacked", 1), ("lent", "a", "c2", 1), END],
    [("came", "timed", 1), ("lent", "timed", "c1", 1), ("passed", 100), ("ended", "timed", "deadline", 1), END],
    [("came", "timed", 1), ("lent", "timed", "c1", 1), ("passed", 5000), ("ended", "timed", "deadline", 1), END],
    [("came", "timed", 1), ("lent", "timed", "r", 1), ("passed", 5000), END],
    [("came", "a", 1), ("lent", "a", "c1", 1), ("settles", "a", "c2", 1), ("ended", "a", "taken_over", 1),
     ("acked", "a", [1]), END],
    [("came", "a", 1), ("settles", "a", "c2", 1), ("acked", "a", [1]), END],
    [("came", "a", 1, {"of": "a"}), ("discards", "a"), ("acked", "a", [1]), END],
    [("came", "a", 1), ("came", "a", 2, {"of": "a"}), ("lent", "a", "f", 2), END, ("lent", "a", "c1", 1), END],
    [("came", "a", 1), ("lent", "a", "n", 1), ("acked", "a", [1]), END],
    [("came", "once", 1, 2, 3), ("lent", "once", "c1", 1, 2, 3), ("acked", "once", [1, 2, 3]), END],
    [("came", "strict", 1), ("lent", "strict", "c1", 1), ("settles", "strict", "c1", 1),
     ("acked", "strict", [1]), END],
    [("came", "strict", 1), ("lent", "strict", "c1", 1), ("settles", "strict", "c1", 1, {"channel": 2}),
     ("ended", "strict", "taken_over", 1), ("acked", "strict", [1]), END],
    [*TWICE, ("left", "thrice", [1], "dead_lettered", {"reason": "delivery_limit"}), END],
    [("came", "thrice", 1), ("lent", "thrice", "c1", 1), ("has", "thrice", [1]), ("restarted",),
     ("lent", "thrice", "c1", 1),
     ("ended", "thrice", "lost", 1), ("lent", "thrice", "c1", 1), END],
    [("came", "a", 1), ("lent", "a", "c1", 1), ("rejects", "a", 1),
     ("left", "a", [1], "killed", {"reason": "rejected"}), END],
    [("came", "mortal", 1), ("lent", "mortal", "c1", 1), ("ended", "mortal", "lifetime", 1),
     ("left", "mortal", [1], "expired", {"reason": "expired"}), END],
    [("came", "ranked", 1, {"priority": 1}), ("came", "ranked", 2, {"priority": 4}),
     ("lent", "ranked", "c1", 2), END],
    [("came", "a", 1, 2), ("lent", "a", "c1", 1, 2), END, ("came", "a", 3), ("consumes", "a", "c1", "f"), ("check",)],
    [("came", "full", 1, 2, 3, 4), ("lent", "full", "c1", 1, 2),
     ("lent", "full", "c2", 3), END, ("consumes", "full", "c2"), ("check",)],
    [("came", "a", 1, 2), ("lent", "a", "c1", 1), ("left", "a", [2], "purged"), END],
])  # fmt: skip
def test_yes_to_what_may_be(steps: list[Step]) -> None:
    LeaseHistory().tell(steps)


@pytest.mark.parametrize(("sentence", "steps"), [
    ("was leased to .* and is to", [("came", "a", 1), ("lent", "a", "c1", 1), ("lent", "a", "c2", 1)]),
    ("which takes of = 'a'", [("came", "a", 1, {"of": "b"}), ("lent", "a", "f", 1)]),
    ("has 3 leases of 2", [("came", "a", 1, 2, 3), ("lent", "a", "c1", 1, 2, 3), END]),
    ("has 4 leases of 3", [("came", "full", 1, 2, 3, 4), ("lent", "full", "c1", 1, 2),
     ("lent", "full", "c2", 3, 4), END]),
    ("2 was leased, and 1 is still there", [("came", "a", 1, 2), ("lent", "a", "c1", 2), END]),
    ("3 was leased, and 1 is still there", [("came", "a", 1, 3, {"of": "a"}), ("lent", "a", "f", 3), END]),
    ("1 was leased, and 2 is still there", [
        ("came", "ranked", 1, {"priority": 1}), ("came", "ranked", 2, {"priority": 4}),
         ("lent", "ranked", "c1", 1), END]),
    ("ended after 99.0 ms", [("came", "timed", 1), ("lent", "timed", "c1", 1), ("passed", 99),
     ("ended", "timed", "deadline", 1)]),
    ("ended after 500.0 ms", [("came", "a", 1), ("lent", "a", "c1", 1), ("passed", 500),
     ("ended", "a", "deadline", 1)]),
    ("goes on after its time", [("came", "timed", 1), ("lent", "timed", "c1", 1),
     ("passed", 200), END, ("passed", 60), END]),
    ("goes on after its time", [
        ("came", "timed", 1), ("lent", "timed", "c1", 1), ("passed", 200), ("consumes", "a"), ("check",)]),
    ("which nobody had", [("came", "a", 1), ("ended", "a", "nacked", 1)]),
    ("was taken over from", [("came", "a", 1), ("lent", "a", "c1", 1), ("ended", "a", "taken_over", 1)]),
    ("was taken over from", [
        ("came", "strict", 1), ("lent", "strict", "c1", 1), ("settles", "strict", "c2", 1),
         ("ended", "strict", "taken_over", 1)]),
    ("acknowledged by others", [
        ("came", "strict", 1), ("lent", "strict", "c1", 1), ("settles", "strict", "c2", 1),
         ("acked", "strict", [1])]),
    ("has no lifetime", [("came", "a", 1), ("lent", "a", "c1", 1), ("ended", "a", "lifetime", 1)]),
    ("acknowledged, and by nobody", [("came", "a", 1), ("lent", "a", "c1", 1), ("acked", "a", [1])]),
    ("acknowledged, and by nobody", [("came", "a", 1, {"of": "b"}), ("discards", "a"), ("acked", "a", [1])]),
    ("was not there", [("came", "a", 1), ("settles", "a", "c1", 1), ("acked", "a", [1]), ("acked", "a", [1])]),
    ("more than 2 times", [*TWICE, ("lent", "thrice", "c1", 1)]),
    ("is ready again, after 2 deliveries", [*TWICE, END]),
    ("nothing says why", [("came", "thrice", 1), ("lent", "thrice", "c1", 1), ("ended", "thrice", "nacked", 1),
                          ("left", "thrice", [1], "killed", {"reason": "rejected"})]),
    ("nothing says why", [("came", "thrice", 1), ("lent", "thrice", "c1", 1), ("ended", "thrice", "lost", 1),
                          ("left", "thrice", [1], "dead_lettered", {"reason": "delivery_limit"})]),
    ("nothing says why", [("came", "a", 1), ("left", "a", [1], "expired", {"reason": "expired"})]),
    ("nothing says why", [("came", "a", 1), ("left", "a", [1], "dropped", {"reason": "maxlen"})]),
    ("1 was purged .None., and is leased", [("came", "a", 1), ("lent", "a", "c1", 1), ("left", "a", [1], "purged")]),
    ("does not get it", [("came", "a", 1), ("consumes", "a", "c1"), ("check",)]),
    ("does not get it", [("came", "a", 1, 2, 3), ("lent", "a", "c1", 1, 2), END, ("consumes", "a", "n"), ("check",)]),
])  # fmt: skip
def test_no(sentence: str, steps: Sequence[Step]) -> None:
    history = LeaseHistory()
    history.tell(steps[:-1])
    with pytest.raises(Broken, match=sentence):
        history.tell(steps[-1:])


def test_another_period_holds_for_leases_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted from their beginning: what is over by the new one ends at once."""
    settings = SimpleNamespace(lease_period_ms=1000)
    leases = SimpleNamespace(rules=SimpleNamespace(settings=settings))
    monkeypatch.setattr("simulator.books.leases.leases_of", lambda queue: leases)
    monkeypatch.setitem(RULES, "policed", {"by_policy": True})
    history = LeaseHistory()
    history.tell([("came", "policed", 1), ("lent", "policed", "c1", 1), ("passed", 500), END])
    settings.lease_period_ms = 100
    history.tell([("passed", 60), END, ("passed", 45), END])
    with pytest.raises(Broken, match="goes on after its time"):
        history.tell([("passed", 60), END, ("passed", 60), END])


def of_routing() -> History:
    return History(lambda history: Routing((), {"late"}), a={}, late={"leased": {"backlog": 1}})


def test_a_leased_queue_begins_with_what_was_logged() -> None:
    """Once, and only what was published; other queues do not."""
    steps: list[Step] = [("published", [1], ("a",)), ("enqueued", "a", [1]), ("enqueued", "late", [1])]
    of_routing().tell([*steps, END])
    for queue, id_ in (("late", 1), ("late", 2), ("a", 1)):
        history = of_routing()
        history.tell(steps)
        with pytest.raises(Broken):
            history.tell([("enqueued", queue, [id_])])
