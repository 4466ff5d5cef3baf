"""What comes back to a queue with rules: what counts as an attempt, and what waits how long."""

from __future__ import annotations

from typing import Any

import pytest
from queue_world import QueueWorld as World

from leveret.engine import scheduled
from leveret.engine.clients.session import NACKED
from leveret.engine.messages.content import NATIVE
from leveret.engine.messages.field_table import Field
from leveret.testing.harness import Harness

MS = 1_000_000
FULL = {"address_full_policy": "FAIL", "max_size_messages": 1}
ROOMY = {"address_full_policy": "FAIL", "max_size_messages": 5}


def got(world: World) -> tuple[int, bytes, int]:
    """Tag, body and x-delivery-count of what a get gives."""
    taken = world.sessions[2].get(world.q, no_ack=False)
    assert taken is not None
    tag, message, *_ = taken
    count = message.envelope.headers(message.content).get("x-delivery-count")
    return tag, NATIVE.split(message.content)[1], 0 if count is None else int(count.value)  # type: ignore[call-overload]


@pytest.mark.parametrize("refusals", [1, 2, 5])
@pytest.mark.parametrize("how", ["nack", "away"])
def test_a_refused_dead_letter_costs_no_attempt(how: str, refusals: int) -> None:
    """While its target is full a message stays, however often; it has as many attempts as if it had not been tried."""
    world = World({}, {})
    said: dict[str, Any] = {"max_delivery_attempts": 2, "dead_letter_address": "dead", "redelivery_delay_ms": 100}
    said |= {"redelivery_delay_multiplier": 2.0}
    world.configure(said, dead=FULL)
    world.write([b"in the way"], {}, "dead.x")
    world.write([b"m"], {})
    world.end_turn()
    tag, _, count = got(world)
    world.sessions[2].reject(tag, requeue=True, why=NACKED)
    world.advance(100)
    counts = [count]
    for _ in range(refusals):
        tag, _, count = got(world)
        counts.append(count)
        world.sessions[2].reject(tag, requeue=how == "nack", why=NACKED)
        world.end_turn()
        ((due_ns, waiting),) = world.q.scheduled.entries()
        assert waiting.deliveries - waiting.uncounted == 1
        assert due_ns - world.clock.monotonic_ns() == 100 * MS
        world.advance(100)
    assert counts == [0, *[1] * refusals]
    assert world.q.counters.killed == 0
    world.configure(said, dead=ROOMY)
    world.end_turn()
    tag, _, count = got(world)
    assert count == 1
    world.sessions[2].reject(tag, requeue=True, why=NACKED)
    world.end_turn()
    assert (world.q.counters.killed, world.named("dead").ready_count) == (1, 2)


@pytest.mark.parametrize("how", ["closed", "recovered", "failed"])
def test_what_was_not_an_attempt_is_none_once_there_are_rules(how: str) -> None:
    """A queue without rules notes whose fault it was, too: settings that come later find the right number."""
    world = World({}, {})
    world.write([b"m"], {})
    world.end_turn()
    for _ in range(3):
        got(world)
        if how == "recovered":
            world.sessions[2].recover()
        else:
            world.sessions[2].close(failed=how == "failed")
            world.sessions[2] = world.client.open_session()
        world.end_turn()
        world.check()
    world.configure({"max_delivery_attempts": 2})
    world.end_turn()
    tag, _, _ = got(world)
    world.sessions[2].reject(tag, requeue=True, why=NACKED)
    world.end_turn()
    assert world.q.ready_count == (how != "failed")


@pytest.mark.parametrize("is_ruled", [False, True])
@pytest.mark.parametrize("how", ["requeue", "recover", "close", "fail"])
def test_what_came_back_expires_on_time(how: str, is_ruled: bool) -> None:
    """It was out as its queue had nothing to wait for; back at the head, it is waited for again."""
    world = World({}, {"max_delivery_attempts": 5} if is_ruled else {})
    world.write([b"m", b"n"], {"expiration": b"500"})
    world.end_turn()
    for _ in range(2):
        got(world)
    world.advance(100)
    session = world.sessions[2]
    if how == "requeue":
        session.reject(0, multiple=True, requeue=True)
    elif how == "recover":
        session.recover()
    else:
        session.close(failed=how == "fail")
    world.end_turn()
    world.check()
    assert world.broker.next_deadline_ns() == 500 * MS
    world.advance(400)
    world.check()
    assert (world.q.ready_count, world.q.counters.expired) == (0, 2)


def test_what_came_back_expires_on_time_while_groups_are_dealt_again() -> None:
    """A consumer joined: nothing is handed out until all that is out is settled; what came back has its time."""
    rules = {"default_group_rebalance": True, "default_group_rebalance_pause_dispatch": True}
    world = World({}, rules)
    world.join("t0", prefetch=2)
    world.end_turn()
    headers = {"JMSXGroupID": Field("S", b"g")}
    world.write([b"expires"], {"expiration": b"500", "headers": headers})
    world.write([b"stays"], {"headers": headers})
    world.end_turn()
    world.join("t1", prefetch=1, who=1)
    world.end_turn()
    world.sessions[0].reject(1, requeue=True, why=NACKED)
    world.end_turn()
    assert (world.q.ready_count, world.q.unacked) == (1, 1)
    world.check()
    world.advance(500)
    world.check()
    assert (world.q.ready_count, world.q.counters.expired) == (0, 1)


@pytest.mark.parametrize("use", ["consumer", "get", "declare", "nothing"])
def test_a_queue_that_is_used_does_not_expire(use: str) -> None:
    """x-expires begins again with each use, and does not run while there is a consumer."""
    world = World({"x-expires": Field("l", 1000)}, {})
    for _ in range(3):
        if use == "consumer":
            if not world.q.consumers:
                world.join("t")
        elif use == "get":
            world.fetch()
        elif use == "declare":
            world.declare("q")
        world.end_turn()
        world.check()
        world.advance(900)
        if use == "nothing":
            break
    assert "q" in world.vhost.queues
    if use == "consumer":
        world.advance(10_000)
        world.sessions[0].cancel("t")
        world.end_turn()
        world.check()
        world.advance(999)
        assert "q" in world.vhost.queues
    world.advance(1000)
    assert "q" not in world.vhost.queues


def test_publishing_is_no_use_of_a_queue() -> None:
    """What is in a queue that expires is gone with it, and is no dead letter."""
    dead = {"x-dead-letter-exchange": Field("S", b""), "x-dead-letter-routing-key": Field("S", b"dead")}
    world = World({"x-expires": Field("l", 1000), **dead}, {})
    world.advance(900)
    world.write([b"m"], {})
    world.end_turn()
    world.advance(100)
    assert "q" not in world.vhost.queues and world.named("dead").ready_count == 0
    assert world.broker.next_deadline_ns() is None


@pytest.mark.parametrize("way", ["purge", "cancel", "delete", "lose"])
def test_nothing_wakes_up_for_messages_that_are_gone(way: str) -> None:
    """Messages that waited for their time left otherwise: the broker has nothing to do then."""
    world = World({}, {"redelivery_delay_ms": 5000})
    world.write([b"m"], {})
    world.end_turn()
    tag, _, _ = got(world)
    world.sessions[2].reject(tag, requeue=True, why=NACKED)
    world.end_turn()
    ((due_ns, message),) = world.q.scheduled.entries()
    assert world.broker.next_deadline_ns() == due_ns == 5000 * MS
    if way == "purge":
        assert world.q.purge() == 1
    elif way == "cancel":
        assert scheduled.cancel(world.q, message.id)
    elif way == "delete":
        assert world.vhost.queues.delete("q", world.client) == 1
    else:
        scheduled.reschedule(world.q, message.id, 0)
        world.end_turn()
        world.fetch()
    world.end_turn()
    world.check()
    next_ns = world.broker.next_deadline_ns()
    assert next_ns is None or next_ns > due_ns


@pytest.mark.parametrize(
    ("arguments", "gets"),
    [
        ({"x_queue_type": "quorum", "x_max_length": 1}, b"back"),
        ({"x_ring_size": 1}, b"back"),
        ({"x_max_length": 1}, b"waits"),  # RabbitMQ's classic queue drops the head first
    ],
    ids=str,
)
def test_a_returned_message_is_offered_before_the_bound_counts(arguments: dict[str, Any], gets: bytes) -> None:
    """A full queue gets a message back for which a consumer has room: it does not drop what is about to leave."""
    world = Harness()
    world.queue("q", durable=True, **arguments)
    world.consume("q", prefetch=1)
    for body in ("back", "waits"):
        world.publish(body)
        world.settle()
    world.session.reject(1, requeue=True, why=NACKED)
    world.settle()
    assert [one.body for one in world.deliveries] == [b"back", gets]
