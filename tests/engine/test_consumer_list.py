"""The consumer list: runs are dealt exactly as one message at a time would be (behaviour page 4, "multiple
consumers")."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.engine import Session
from leveret.engine.delivery.consumer_list import PASSED_PER_EFFORT
from leveret.testing.harness import Harness


class Bench(Harness):
    """One queue `q`, and what every client was handed, in order, as (consumer tag, body)."""

    ends_turns = False

    def __init__(self, **arguments: Any) -> None:
        super().__init__(unsent_max=1 << 40)
        self.queue(durable=False, **arguments)

    def join(self, session: Session, tag: str, *, no_ack: bool = False, priority: int = 0) -> None:
        """Subscribe to q."""
        self.consume(tag=tag, by=session, no_ack=no_ack, **({"x_priority": priority} if priority else {}))

    def fill(self, first: int, count: int) -> None:
        """A run of messages with these numbers as bodies."""
        self.publish(*map(str, range(first, first + count)))

    @property
    def handed(self) -> list[tuple[str, int]]:
        return [(one.consumer.tag, int(one.body)) for one in self.deliveries]

    def of(self, tag: str) -> list[int]:
        """What one consumer was handed."""
        return [number for each, number in self.handed if each == tag]


def by_the_consumer_list(tags: str, count: int) -> dict[str, list[int]]:
    """One message each, in turn."""
    return {tag: list(range(index, count, len(tags))) for index, tag in enumerate(tags)}


@pytest.mark.parametrize("is_backlog", [False, True], ids=["waiting consumers", "backlog"])
@pytest.mark.parametrize("limited", ["", "a", "b", "c", "ab", "abc"])
def test_a_shared_limit_does_not_break_the_rota(limited: str, is_backlog: bool) -> None:
    """Consumers whose session has a (wide) shared prefetch take turns with all the others, one message each."""
    bench = Bench()
    if is_backlog:
        bench.fill(0, 30)
    for tag in "abc":
        session = bench.connect()
        if tag in limited:
            session.set_prefetch(1000, total=True)
        bench.join(session, tag)
    if not is_backlog:
        bench.fill(0, 30)
    bench.end_turn()
    assert {tag: bench.of(tag) for tag in "abc"} == by_the_consumer_list("abc", 30)


@pytest.mark.parametrize("is_backlog", [False, True], ids=["waiting consumers", "backlog"])
def test_consumers_of_one_session_are_served_in_queue_order(is_backlog: bool) -> None:
    """Delivery tags of a channel rise with the messages' places: a b c a b c (behaviour page 4, probed)."""
    bench = Bench()
    session = bench.connect()
    if is_backlog:
        bench.fill(0, 9)
    for tag in "abc":
        bench.join(session, tag)
    if not is_backlog:
        bench.fill(0, 9)
    bench.end_turn()
    assert bench.handed == [("abc"[number % 3], number) for number in range(9)]


def test_a_new_consumer_joins_behind_the_others() -> None:
    """Three messages in, whose turn is next stays next, and the newcomer comes last."""
    bench = Bench()
    for tag in "ab":
        bench.join(bench.connect(), tag)
    bench.fill(0, 3)
    bench.join(bench.connect(), "c")
    bench.end_turn()
    bench.fill(3, 6)
    bench.end_turn()
    order = {number: tag for tag, number in bench.handed}
    assert [order[number] for number in range(3, 9)] == ["b", "a", "c", "b", "a", "c"]


def test_a_full_client_is_skipped_and_served_when_it_has_caught_up() -> None:
    """A paused client gets nothing; what it missed goes to the others, and it has its turn again afterwards."""
    bench = Bench()
    slow, quick = bench.connect(), bench.connect()
    bench.join(slow, "slow")
    bench.join(quick, "quick")
    slow.client.paused = True
    bench.fill(0, 4)
    bench.end_turn()
    assert bench.of("quick") == [0, 1, 2, 3]
    slow.client.drained()
    bench.fill(4, 4)
    bench.end_turn()
    assert bench.of("slow") == [4, 6]


# -- any order of comings and goings ----------------------------------------------------------------------------------


class Taker:
    """A consumer in the model: what it may have, and what it has."""

    def __init__(self, session: Session, tag: str, priority: int, prefetch: int) -> None:
        self.session, self.tag, self.priority, self.prefetch = session, tag, priority, prefetch
        self.has: list[int] = []

    def may_have_more(self) -> bool:
        return self.session.flowing and (not self.prefetch or len(self.has) < self.prefetch)


class Turns:
    """Whose turn it is, one message at a time: the first of `takers` is the next. `active`: the single one, if any."""

    def __init__(self, *, is_single: bool) -> None:
        self.is_single = is_single
        self.takers: list[Taker] = []
        self.active: Taker | None = None
        self.ready: list[int] = []
        self.given: dict[int, list[str]] = {}

    def deal(self) -> None:
        while self.ready:
            if self.is_single:
                if self.active is None and self.takers:
                    self.active = max(self.takers, key=lambda one: one.priority)  # the first of these
                free = [one for one in (self.active,) if one is not None and one.may_have_more()]
            else:
                free = [one for one in self.takers if one.may_have_more()]
            if not free:
                return
            taker = max(free, key=lambda one: one.priority)
            if not self.is_single:
                self._had_its_turn(taker)
            number = self.ready.pop(0)
            taker.has.append(number)
            self.given.setdefault(number, []).append(taker.tag)

    def _had_its_turn(self, taker: Taker) -> None:
        """Also those have had it who stand before it and may have nothing, unless priorities say whose turn it is."""
        if len({one.priority for one in self.takers}) > 1:
            self.takers.remove(taker)
            self.takers.append(taker)
        else:
            at = self.takers.index(taker) + 1
            self.takers = self.takers[at:] + self.takers[:at]

    def leave(self, gone: list[Taker]) -> None:
        self.takers = [one for one in self.takers if one not in gone]
        if self.active in gone:
            self.active = None
        self.ready = sorted(self.ready + [number for one in gone for number in one.has])
        if self.active is None and self.takers and self.is_single:
            self.active = max(self.takers, key=lambda one: one.priority)


STEP = st.one_of(
    st.tuples(st.just("join"), st.integers(0, 2), st.sampled_from((0, 0, 1, 3))),
    st.tuples(st.sampled_from(("publish", "publish")), st.integers(1, 7), st.just(0)),
    st.tuples(st.sampled_from(("leave", "ack", "ack", "stop", "go")), st.integers(0, 9), st.integers(1, 3)),
)


@pytest.mark.parametrize("has_priorities", [False, True], ids=["alike", "priorities"])
@pytest.mark.parametrize("is_single", [False, True], ids=["all", "single active"])
@settings(max_examples=60)
@given(walk=st.lists(STEP, min_size=4, max_size=24))
def test_whoever_comes_and_goes(is_single: bool, has_priorities: bool, walk: list[tuple[str, int, int]]) -> None:
    """Each message goes to whom it would go to if messages were dealt one at a time (behaviour page 2.12, 4)."""
    bench, turns = (
        Bench(**({"x_single_active_consumer": True} if is_single else {})),
        Turns(is_single=is_single),
    )
    number = count = 0
    for what, pick, more in [("join", 0, 0), ("join", 1, 0), *walk]:
        taker = turns.takers[pick % len(turns.takers)] if turns.takers else None
        if what == "join":
            is_new = taker is None or more != 1  # else a further consumer of a channel that is there
            session = bench.connect() if is_new or taker is None else taker.session
            taker = Taker(session, f"t{count}", pick if has_priorities else 0, more)
            count += 1
            taker.session.prefetch = more
            bench.join(taker.session, taker.tag, priority=taker.priority)
            turns.takers.append(taker)
            if turns.active is None and is_single:
                turns.active = taker
        elif what == "publish":
            bench.fill(number, pick)
            turns.ready += range(number, number + pick)
            number += pick
        elif taker is not None and what == "leave":
            taker.session.close()
            turns.leave([one for one in turns.takers if one.session is taker.session])
        elif taker is not None and what == "ack" and taker.has:
            settled = [b"%d" % one for one in taker.has[:more]]
            for tag in [tag for tag, message in taker.session.unacked.items() if message.body in settled]:
                taker.session.ack(tag)
            del taker.has[:more]
        elif taker is not None and what in ("stop", "go"):
            taker.session.set_flowing(what == "go")
        bench.end_turn()
        turns.deal()
        given: dict[int, list[str]] = {}
        for tag, body in bench.handed:
            given.setdefault(body, []).append(tag)
        assert given == turns.given


def test_leaving_is_counted_by_how_many_are_there() -> None:
    """A queue's rota is gone through for each one that leaves: of very many a turn is cut before all of them have."""
    bench = Bench()
    session = bench.connect()
    for number in range(2 * PASSED_PER_EFFORT):
        bench.join(session, f"c{number}")
    turn = bench.broker.context.turn
    before = turn.effort
    for number in range(10):
        session.cancel(f"c{number}")
    assert turn.effort - before >= 10
    few = Bench()
    session = few.connect()
    few.join(session, "only")
    before = few.broker.context.turn.effort
    session.cancel("only")
    assert few.broker.context.turn.effort == before


@pytest.mark.parametrize("gone, following", [("a", "c"), ("b", "c"), ("c", "d"), ("d", "c")])
def test_the_turn_stays_with_the_next_one_when_another_leaves(gone: str, following: str) -> None:
    """Two of four have had theirs; if the next one leaves, it is that of the one behind it."""
    bench = Bench()
    session = bench.connect()
    for tag in "abcd":
        bench.join(session, tag)
    bench.fill(0, 2)
    bench.end_turn()
    assert bench.handed == [("a", 0), ("b", 1)]
    session.cancel(gone)
    bench.fill(2, 1)
    bench.end_turn()
    assert bench.handed[-1] == (following, 2)
