"""Rows in which a limit of the whole broker is reached (memory, temp, store), and in which sockets are left unread."""

from __future__ import annotations

from .client import Calls, bodies, number_of
from .row import Scene, expect, row

KIB = 1024
MIB = 1024 * KIB
#: More than the buffers of sockets take.
FLOOD, FLOOD_SIZE = 1500, 16 * KIB


@row("E07", "memory")
def blocked_once(scene: Scene) -> str:
    """With the capability: one connection.blocked, one unblocked after the drain; none without a publish."""
    client, operator, queue = scene.client, scene.operator, scene.queue("E07")
    operator.declare(queue)
    client.open("a/1")
    client.open("b/1")
    calls = client.publish("a/1", queue, bodies(1500))
    calls.wait_until_quiet()
    expect(operator.until(lambda: bool(client.frames("a", "connection.blocked"))), "not blocked")
    hears = not client.lacks("event:blocked")
    if hears and calls.are_done:
        told = client.events("a/1", "blocked")
        expect([one["reason"] for one in told] == ["broker: memory limit"], told)
    expect(len(operator.take_all(queue, 1500)) == 1500, "some are missing")
    calls.end()
    expect(operator.until(lambda: bool(client.frames("a", "connection.unblocked"))), "not unblocked")
    operator.pass_time(0.5)
    times = [len(client.frames("a", f"connection.{what}")) for what in ("blocked", "unblocked")]
    expect(times == [1, 1], f"{times[0]} blocked, {times[1]} unblocked")
    expect(not client.frames("b", "connection.blocked"), "the connection that does not publish was blocked")
    if hears:
        expect(len(client.events("a/1", "unblocked")) == 1, "it did not hear")
        expect(not client.events("b/1", "blocked", 1, 0), "the other heard")
    return f"blocked and unblocked once{'' if hears else '; ' + client.lacks('event:blocked')}"


@row("E08", "unread", "connection.open:unannounced")
def back_pressure(scene: Scene) -> str:
    """Without the capability: nothing is sent; the socket takes no more, until there is room again."""
    client, operator, queue = scene.client, scene.operator, scene.queue("E08")
    operator.declare(queue)
    client.connect("a", announces=False, tapped=False)
    client.open_channel("a/1")
    calls = client.publish("a/1", queue, bodies(FLOOD, FLOOD_SIZE))
    how = _unread(calls)
    expect(operator.count(queue) < 100, f"{operator.count(queue)} in the queue")
    _drained(scene, queue, calls)
    expect(
        not client.events("a/1", "blocked", 1, 0) and not client.events("a/1", "closed", 1, 0), "it heard of something"
    )
    return f"{how}; then all {FLOOD:,} in order"


@row("M4", "unread", "scenario:M4")
def heartbeats_are_forgiven(scene: Scene) -> str:
    """A connection with a heartbeat of 1 s that is left unread for 4 s lives on, though its heartbeats do not come."""
    client, operator, queue = scene.client, scene.operator, scene.queue("M4")
    operator.declare(queue)
    client.connect("a", heartbeat=1, tapped=False)
    client.open_channel("a/1")
    calls = client.publish("a/1", queue, bodies(FLOOD, FLOOD_SIZE))
    _unread(calls)
    operator.pass_time(4.0)
    _drained(scene, queue, calls)
    expect(not client.events("a/1", "closed", 1, 0), "it was closed")
    return "unread for 4 s, then all in order"


def _unread(calls: Calls) -> str:
    """Publish until the connection is not read any longer. Returns how the client noticed."""
    calls.wait_until_quiet(1.0)
    is_waiting = not calls.are_done
    not_taken = sum(answer.get("is_taken") is False for answer in calls.answers)
    if is_waiting:
        return f"a publish waits after {len(calls.answers)} of {FLOOD_SIZE // KIB} KiB"
    expect(not_taken > 0, f"all {len(calls.answers)} were taken")
    return f"publish answers false {not_taken:,} times, and keeps them"


def _drained(scene: Scene, queue: str, calls: Calls) -> None:
    got = scene.operator.take_all(queue, FLOOD, 60)
    expect([number_of(body) for body in got] == list(range(FLOOD)), f"{len(got)} of {FLOOD}, or out of order")
    calls.end()


@row("E15", "temp")
def transient_messages_spool(scene: Scene) -> str:
    """Transient messages beyond the memory limit, without producer flow control: in the temp store until consumed."""
    client, operator, queue = scene.client, scene.operator, scene.queue("E15")
    operator.declare(queue)
    client.select_confirms("a/1")
    client.publish("a/1", queue, bodies(500), properties={"delivery_mode": 1}).end()
    expect(len(client.confirmed("a/1", 500)) == 500, "some are not confirmed")
    spooled = operator.used("temp")
    expect(spooled >= 500 * KIB - 2 * 64 * KIB, f"{spooled} octets in the temp store")
    got = [number_of(body) for body in operator.take_all(queue, 500)]
    expect(got == list(range(500)), "out of order")
    expect(operator.until(lambda: operator.used("temp") == 0), f"{operator.used('temp')} octets are left")
    return f"500 confirmed at once, {spooled // KIB} KiB spooled, none left"


@row("E16", "temp")
def temp_is_full(scene: Scene) -> str:
    """The same with a temp limit of 1 MiB: publishes wait when it is full."""
    return _waits_at(scene, "E16", "temp", 1, MIB, KIB, 2500)


@row("E17", "store")
def store_is_full(scene: Scene) -> str:
    """A store limit of 5 MiB: persistent publishes wait there, also without producer flow control."""
    return _waits_at(scene, "E17", "store", 2, 5 * MIB, 16 * KIB, 450)


def _waits_at(scene: Scene, name: str, limit: str, mode: int, octets: int, size: int, count: int) -> str:
    client, operator, queue = scene.client, scene.operator, scene.queue(name)
    operator.declare(queue, durable=mode == 2)
    client.select_confirms("a/1")
    calls = client.publish("a/1", queue, bodies(count, size), properties={"delivery_mode": mode})
    expect(operator.until(lambda: bool(operator.status()["blocked"])), "nothing was held")
    before = client.confirms_when_quiet(calls, "a/1")
    used = operator.used(limit)
    expect(octets <= used < octets + octets // 4, f"{used} octets used")
    expect(before < count, "nothing was held")
    blocked = operator.status()["blocked"]
    expect([one["limit"] for one in blocked] == [limit], blocked)
    got = [number_of(body) for body in operator.take_all(queue, count, 60)]
    expect(got == list(range(count)), f"{len(got)} of {count}, or out of order")
    calls.end()
    expect(client.confirmed("a/1", count) == [(seq, True) for seq in range(1, count + 1)], "confirms are missing")
    return f"{before:,} of {size // KIB} KiB confirmed, the others when there was room"
