"""Acks with `multiple` that came in one read are settled in one go: what becomes of it is as one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from leveret.engine import Broker, Envelope, ManualClock, Session, User
from leveret.engine.errors import UnknownDeliveryTag
from leveret.engine.messages.content import PLAIN, encode_header

USER = User("guest")
QUEUES = ("a", "b")
COUNT, PREFETCH = 8, 6

Acks = Callable[[Session, Sequence[int]], None]


def one_by_one(session: Session, tags: Sequence[int]) -> None:
    for tag in tags:
        session.ack(tag, multiple=True)


def outcome(acks: Acks, single: Sequence[int], tags: Sequence[int], *, commits: bool | None) -> list[object]:
    """What is unacknowledged, counted and delivered in the end. `commits`: whether a transaction is, None: there is
    none."""
    broker = Broker(ManualClock())
    vhost = broker.virtual_hosts["/"]
    got: list[object] = []

    def flush() -> None:
        got.append([(effect.consumer.tag, effect.first_tag, effect.contents) for effect in client.take_outbox()])  # type: ignore[union-attr]
        client.drained()

    client = broker.connections.open("/", USER, name="client", flush=flush)
    session = client.open_session()
    session.limit(PREFETCH, total=False)
    for name in QUEUES:
        queue = vhost.queues.declare(name, client=client)
        session.consume(queue, name, no_ack=False, exclusive=False, arguments={})
    publisher = client.open_session()
    for number in range(2 * COUNT):
        name = QUEUES[number // 3 % 2]
        content = PLAIN.join(encode_header(1), bytes((number,)))
        publisher.publish(vhost.router.route("", name, USER), Envelope("", name), [content], mandatory=False)
    broker.end_turn()
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
    while broker.end_turn():
        pass
    return [*got, list(session.unacked), *(vhost.queues.named(name).statistics() for name in QUEUES)]


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
