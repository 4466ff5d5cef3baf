"""Acks with `multiple` that came in one read are settled in one go: what becomes of it is as one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from leveret.engine import Session
from leveret.engine.errors import UnknownDeliveryTag
from leveret.testing.harness import Harness

QUEUES = ("a", "b")
COUNT, PREFETCH = 8, 6

Acks = Callable[[Session, Sequence[int]], None]


def one_by_one(session: Session, tags: Sequence[int]) -> None:
    for tag in tags:
        session.ack(tag, multiple=True)


def outcome(acks: Acks, single: Sequence[int], tags: Sequence[int], *, commits: bool | None) -> list[object]:
    """What is unacknowledged, counted and delivered in the end. `commits`: whether a transaction is, None: there is
    none."""
    harness = Harness()
    harness.ends_turns = False
    got: list[object] = []

    def flush() -> None:
        got.append([(one.consumer.tag, one.first_tag, one.contents) for one in session.client.take_outbox()])  # type: ignore[union-attr]
        session.client.drained()

    session = harness.connect(flush=flush)
    for name in QUEUES:
        harness.queue(name, durable=False)
        harness.consume(name, name, by=session, prefetch=PREFETCH)
    publisher = session.client.open_session()
    for number in range(2 * COUNT):
        harness.publish(bytes((number,)), key=QUEUES[number // 3 % 2], by=publisher)
    harness.broker.end_turn()
    if commits is not None:
        session.select_transactions()
    for tag in single:
        session.ack(tag)
    try:
        acks(session, tags)
    except UnknownDeliveryTag as error:
        got.append(str(error))
    got.append(list(session.unacked))
    if commits is not None:
        session.commit() if commits else session.roll_back()
    harness.finish_turns()
    queues = [harness.named(name) for name in QUEUES]
    counts = [(len(one.store), one.unacked, len(one.scheduled), one.counters.as_dict()) for one in queues]
    return [*got, list(session.unacked), *counts]


@given(
    single=st.sets(st.integers(1, 2 * PREFETCH), max_size=3),
    tags=st.sets(st.integers(0, 2 * PREFETCH + 1), min_size=1, max_size=5),
    commits=st.sampled_from((None, True, False)),
)
def test_a_run_of_multiple_acks_is_as_one_after_the_other(
    single: set[int], tags: set[int], commits: bool | None
) -> None:
    """Behaviour page 2.12: each settles what is before it; an unknown tag refuses what comes behind it."""
    found = outcome(Session.ack_up_to, sorted(single), sorted(tags), commits=commits)
    assert found == outcome(one_by_one, sorted(single), sorted(tags), commits=commits)
