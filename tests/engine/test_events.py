"""What listeners get: one class a family, and what it says as a mapping (docs/architecture.md, "Events")."""

import pytest

from leveret.engine import (
    AckedEvent,
    BindingEvent,
    Broker,
    ConnectionEvent,
    ConsumerEvent,
    DeliveredEvent,
    EnqueuedEvent,
    Envelope,
    Event,
    LeftEvent,
    ManualClock,
    PublishedEvent,
    QueueEvent,
    RequeuedEvent,
    ScheduledEvent,
    User,
)
from leveret.engine.events import EventKind
from leveret.engine.messages.message import Message


def test_events_of_a_short_life_have_typed_fields() -> None:
    """A queue is declared and bound, a run is published and consumed without acknowledgements, the client is gone."""
    broker = Broker(ManualClock())
    events: list[Event] = []
    broker.context.listeners.append(events.append)
    client = broker.connections.open("/", User("guest"), name="client", flush=lambda: None)
    session = client.open_session()
    client.vhost.queues.declare("q", client=client)
    client.vhost.bindings.add("queue", "q", "amq.fanout", "", {}, client)
    session.consume(client.vhost.queues["q"], "tag", no_ack=True, exclusive=False, arguments={})
    route = client.vhost.router.route("amq.fanout", "key", client.user)
    session.publish(route, Envelope("amq.fanout", "key"), [b"one", b"two"], mandatory=False)
    broker.end_turn()
    client.close()
    families = [ConnectionEvent, QueueEvent, BindingEvent, ConsumerEvent]
    families += [PublishedEvent, EnqueuedEvent, DeliveredEvent, AckedEvent, ConsumerEvent, ConnectionEvent]
    assert [type(event) for event in events] == families
    assert [event.kind.value for event in events] == [
        "connection_opened", "declared", "bound", "consumer_added",
        "published", "enqueued", "delivered", "acked", "consumer_removed", "connection_closed",
    ]  # fmt: skip
    published, enqueued, delivered, acked = events[4:8]
    assert isinstance(published, PublishedEvent) and isinstance(delivered, DeliveredEvent)
    assert isinstance(acked, AckedEvent)
    queue = client.vhost.queues["q"]
    assert (published.subject, list(published.queues), published.cause) == ("amq.fanout", [queue], None)
    assert published.detail == {"envelope": published.run, "contents": [b"one", b"two"], "queues": published.queues}
    assert (list(enqueued.messages), enqueued.detail) == ([1, 2], None)
    assert (delivered.session, delivered.consumer, list(delivered.contents)) == (session, "tag", [b"one", b"two"])
    assert (acked.client, acked.consumer, acked.kept) == (client, "tag", False)
    assert acked.detail == {"client": client, "consumer": "tag"}


def test_detail_names_only_what_there_is() -> None:
    """As listeners of all events have always had it."""
    of = [Message(1, b"", Envelope("", "q"))]
    assert AckedEvent("/", "q", (1,), of).detail is None
    assert AckedEvent("/", "q", (1,), of, kept=True).detail == {"kept": True}
    assert LeftEvent(EventKind.PURGED, "/", "q", (1,), of).detail is None
    assert LeftEvent(EventKind.DROPPED, "/", "q", (1,), of, "maxlen", None, came_in=False).detail == {
        "reason": "maxlen",
        "came_in": False,
    }
    dead = LeftEvent(EventKind.DEAD_LETTERED, "/", "q", (1,), of, "rejected", "dlx")
    assert dead.detail == {"reason": "rejected", "to": "dlx"}
    assert RequeuedEvent("/", "q", (1,), of, "nacked", counted=True).detail == {"why": "nacked", "counted": True}
    assert ScheduledEvent("/", "q", (1,), of, "published", (5,), None).detail == {"why": "published", "due_ns": (5,)}


def test_nothing_is_created_when_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then an event costs an addition a run."""
    for name in ("EnqueuedEvent", "DeliveredEvent", "AckedEvent", "LeftEvent", "ConsumerEvent"):
        monkeypatch.setattr(f"leveret.engine.queues.events.{name}", None)
    monkeypatch.setattr("leveret.engine.publishing.publish.PublishedEvent", None)
    broker = Broker(ManualClock())
    client = broker.connections.open("/", User("guest"), name="client", flush=lambda: None)
    session = client.open_session()
    client.vhost.queues.declare("q", client=client)
    session.consume(client.vhost.queues["q"], "tag", no_ack=True, exclusive=False, arguments={})
    session.publish(client.vhost.router.route("", "q", client.user), Envelope("", "q"), [b"one"], mandatory=False)
    broker.end_turn()
    assert client.vhost.queues["q"].counters.acknowledged == 1
