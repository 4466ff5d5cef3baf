"""The events that a broker keeps while somebody looks. Source: management page 16."""

from typing import Any

import pytest

from leveret.engine import (
    MS,
    NATIVE,
    Broker,
    Envelope,
    ManualClock,
    Session,
    User,
    encode_header,
    scan_properties,
)
from leveret.operator import event_log
from leveret.operator.command_error import CommandError
from leveret.operator.control import ControlTable
from leveret.operator.event_log import IDLE_MS

ME = User("me")


class Looked:
    """A broker with a table of commands."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.broker = Broker(self.clock)
        self.table = ControlTable()
        self.table.operator.attach(self.broker)

    def events(self, **given: Any) -> Any:
        return self.table.run("events", given)

    def session(self) -> Session:
        return self.broker.connections.open("/", ME, name="c", flush=lambda: None).open_session()

    def publish(self, session: Session, queue: str, count: int = 1, **properties: Any) -> None:
        header = encode_header(1, properties)
        envelope = Envelope("", queue, scan_properties(header[12:]))
        route = session.client.broker.virtual_hosts["/"].router.route("", queue, ME)
        session.publish(route, envelope, [NATIVE.join(header, b"x")] * count, mandatory=False)


def test_nothing_is_kept_nor_costs_before_somebody_looks_and_after_nobody_does() -> None:
    """It listens with the first look, and a minute after the last one no more."""
    world = Looked()
    world.broker.virtual_hosts.create("before")
    assert world.broker.context.listeners == []
    assert world.events() == {"items": [], "next": 0, "dropped": 0, "listening_since_ms": world.clock.wall_ms()}
    for passed_ms, listens in ((IDLE_MS - 1, 1), (IDLE_MS - 1, 1), (IDLE_MS, 0)):
        world.clock.advance_ns(passed_ms * MS)
        world.broker.context.deadlines.advance(world.clock.monotonic_ns())
        assert len(world.broker.context.listeners) == listens
        if listens:
            world.events()
    world.broker.virtual_hosts.create("after")
    assert world.events()["items"] == []


def test_the_story_of_a_message() -> None:
    """Published, enqueued, delivered, acknowledged: by its id, and by the queue."""
    world = Looked()
    world.broker.virtual_hosts["/"].queues.create("q", is_auto_created=False)
    world.events()
    session = world.session()
    world.publish(session, "q", 3)
    session.get(world.broker.virtual_hosts["/"].queues.named("q"), no_ack=True)
    found = world.events(message=1)["items"]
    assert [row["kind"] for row in found] == ["published", "enqueued", "delivered", "acked"]
    assert found[0]["detail"] == {"exchange": "", "routing_key": "q", "queues": ["q"]}
    assert (found[0]["messages"], found[0]["count"]) == ([1, 2, 3], 3)
    assert [row["kind"] for row in world.events(queue="q", kind="published,acked")["items"]] == ["published", "acked"]
    assert world.events(vhost="other")["items"] == []
    numbers = [row["number"] for row in world.events()["items"]]
    first = world.events(since=numbers[0], count=2)
    assert [row["number"] for row in first["items"]] == numbers[1:3] and first["next"] == numbers[2]
    assert world.events(since=numbers[-1]) | {"listening_since_ms": 0} == {
        "items": [],
        "next": numbers[-1],
        "dropped": 0,
        "listening_since_ms": 0,
    }


def test_numbers_of_before_a_restart_are_forgotten() -> None:
    """A reader that goes on with one gets all events of the new process, as if it had asked for the first time."""
    world = Looked()
    world.events()
    world.broker.virtual_hosts.create("v")
    for since in (0, 500, world.events()["next"] + 1):
        found = world.events(since=since)
        assert ([row["subject"] for row in found["items"]], found["next"], found["dropped"]) == (["v"], 1, 0)
    assert world.events(since=found["next"])["items"] == []


def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """In events, in octets of headers, in messages of one event; what is gone is counted."""
    world = Looked()
    world.events()
    monkeypatch.setattr(event_log, "EVENTS_MAX", 5)
    for number in range(8):
        world.broker.virtual_hosts.create(f"v{number}")
    found = world.events(since=0)
    assert [row["subject"] for row in found["items"]] == ["v3", "v4", "v5", "v6", "v7"] and found["dropped"] == 3
    world.broker.virtual_hosts["/"].queues.create("q", is_auto_created=False)
    session = world.session()
    world.publish(session, "q", 150)
    published = world.events(kind="published")["items"][0]
    assert (len(published["messages"]), published["count"]) == (100, 150)
    monkeypatch.setattr(event_log, "OCTETS_MAX", 10)
    world.publish(session, "q", 1)
    assert world.events(kind="published")["items"] == []


def test_the_events_of_another_broker_are_dropped() -> None:
    """After `attach` the broker before has no listener; the next one is listened to, and numbers of events go on."""
    world = Looked()
    world.events()
    world.broker.virtual_hosts.create("before")
    last = world.events()["next"]
    before, after = world.broker, Broker(world.clock)
    world.table.operator.attach(after)
    assert before.context.listeners == []
    before.virtual_hosts.create("unheard")
    assert world.events(since=last)["items"] == []
    after.virtual_hosts.create("after")
    found = world.events(since=last)
    assert [(row["subject"], row["number"]) for row in found["items"]] == [("after", last + 1)]


def test_secrets_are_not_told() -> None:
    """Neither users' hashes nor values of parameters, which may be addresses with passwords."""
    world = Looked()
    world.events()
    world.table.run("users", {"action": "add", "name": "u", "password": "hidden"})
    value = {"uri": "amqp://u:hidden@h"}
    world.table.run("parameters", {"action": "set", "component": "federation-upstream", "name": "p", "value": value})
    found = world.events()["items"]
    assert [row["subject"] for row in found] == ["u", "p"]
    assert "hidden" not in str(found) and "hash" not in str(found)


@pytest.mark.parametrize(
    "given, fault",
    [
        ({"kind": "acke"}, "events: unknown kind 'acke'"),
        ({"kind": ""}, "events: expected kind=WORD"),
        ({"since": -1}, "events: since must be a number"),
        ({"count": "x"}, "events: count must be a number"),
        ({"message": True}, "events: message must be a number"),
    ],
)
def test_bad_input(given: dict[str, object], fault: str) -> None:
    """Refused with the argument's name; nothing listens."""
    world = Looked()
    with pytest.raises(CommandError, match=fault):
        world.events(**given)
    assert world.broker.context.listeners == []
