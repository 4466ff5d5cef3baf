"""Requeued messages go back to where they were (behaviour page 4)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leveret.engine import Broker, ManualClock, User
from leveret.engine.events import EventKind
from leveret.engine.messages.event import Event
from leveret.engine.messages.message import Envelope, Message

USER = User("guest")


@given(st.integers(1, 40), st.data())
def test_requeues_merge_by_publish_order(size: int, data: st.DataObject) -> None:
    """Any messages, given back in any order and in any groups: the ready list is in publish order again."""
    broker = Broker(ManualClock())
    requeued: list[list[int]] = []

    def listen(event: Event) -> None:
        if event.kind is EventKind.REQUEUED:
            requeued.append(list(event.messages))

    broker.context.listeners.append(listen)
    client = broker.connections.open("/", USER, name="client", flush=lambda: None)
    queue = broker.virtual_hosts["/"].queues.declare("q", client=client)
    messages = [Message(number, b"", Envelope("", "q")) for number in range(size)]
    out = data.draw(st.sets(st.integers(0, size - 1)))
    for message in messages:
        if message.id not in out:
            queue.consumable.put_last(message)
    left = data.draw(st.permutations(sorted(out)))
    while left:
        count = data.draw(st.integers(1, len(left)))
        group, left = left[:count], left[count:]
        queue.requeue([messages[number] for number in group], why="rejected")
        assert requeued[-1] == sorted(group)
        assert [message.id for message in queue.store] == [number for number in range(size) if number not in left]
    queue.requeue([], why="rejected")
    assert queue.counters.requeued == len(out)
    assert queue.store.in_memory == size
