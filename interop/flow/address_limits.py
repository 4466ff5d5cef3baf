"""Rows in which publishes are held because one address is full."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

from .client import bodies, delivered, number_of
from .row import Scene, expect, row

KIB = 1024
QUANTUM = 64


@row("E01", "addresses")
def confirms_stop(scene: Scene) -> str:
    """A publisher with confirms gets 900 to 1,024 of 2,000, no nack, and at least 50 more when 100 are consumed."""
    client, operator, queue = scene.client, scene.operator, scene.queue("E01")
    operator.declare(queue)
    client.select_confirms("a/1")
    calls = client.publish("a/1", queue, bodies(2000))
    before = client.confirms_when_quiet(calls, "a/1", 900)
    expect(900 <= before <= 1024, f"{before} confirms")
    taken = operator.take(queue, 100)
    more = client.confirms_when_quiet(calls, "a/1", before + 50) - before
    expect(more >= 50, f"{more} more confirms")
    taken += operator.take_all(queue, 1900)
    calls.end()
    confirmed = client.confirmed("a/1", 2000)
    expect([number_of(body) for body in taken] == list(range(2000)), f"{len(taken)} of 2,000, or out of order")
    expect(confirmed == [(seq, True) for seq in range(1, 2001)], "confirms are missing, or out of order")
    expect(not client.frames("a", "basic.nack"), "a nack")
    how = "the next call waits" if client.waits_for_confirms else "no more come"
    return f"{before} confirms, then {how}; {more} more after 100 were consumed; all 2,000 in order"


@row("E09", "addresses")
def consumes_what_it_publishes(scene: Scene) -> str:
    """A connection that is held and consumes the same queue: its acks are processed, and all goes through."""
    client, operator, queue = scene.client, scene.operator, scene.queue("small")
    operator.declare(queue)
    with_confirms = not client.waits_for_confirms
    if with_confirms:
        client.select_confirms("a/1")
    else:
        client.open("a/1")
    client.do("a/1", "basic.qos", prefetch_count=20)
    client.do("a/1", "basic.consume", queue=queue, consumer_tag="c")
    calls = client.publish("a/1", queue, bodies(1000))
    calls.end()
    expect(operator.count(queue) < 100, "nothing was held")
    got: list[int] = []
    while len(got) < 1000:
        events = client.events("a/1", "delivery", 20, 10)
        expect(bool(events), f"no delivery after {len(got)}")
        got += [number_of(delivered(event)) for event in events]
        client.do("a/1", "basic.ack", delivery_tag=events[-1]["delivery_tag"], multiple=True)
    expect(got == list(range(1000)), "out of order")
    if with_confirms:
        expect(client.confirmed("a/1", 1000) == [(seq, True) for seq in range(1, 1001)], "confirms out of order")
    return f"1,000 through a limit of 64 KiB on one channel{', confirms in order' if with_confirms else ''}"


@row("E11", "addresses")
def ten_publishers(scene: Scene) -> str:
    """Of ten that are held, one with ten times as much: accepted messages differ by a quantum at most."""
    client, operator, queue = scene.client, scene.operator, scene.queue("small")
    first = operator.fill(queue, 64 * KIB + KIB)
    totals = {number: 1280 if number == 0 else 128 for number in range(10)}
    for number in totals:
        client.open(f"{number}/1")
    for number, total in totals.items():
        client.publish(f"{number}/1", queue, bodies(total, 100, name=str(number))).end()
        expect(operator.until(lambda count=number + 1: operator.held_for(queue) == count), "it is not held")
    everything = operator.take_all(queue, first + sum(totals.values()))[first:]
    expect(len(everything) == sum(totals.values()), f"{len(everything)} came")
    accepted = dict.fromkeys(totals, 0)
    widest = 0
    for body in everything:
        accepted[int(body.split(b":")[0])] += 1
        waiting = [count for number, count in accepted.items() if count < totals[number]]
        widest = max(widest, max(waiting, default=0) - min(waiting, default=0))
    expect(widest <= QUANTUM, f"they differ by {widest} messages")
    return f"differ by {widest} messages at most, of a quantum of {QUANTUM}"


@row("E13", "addresses")
def expires_while_held(scene: Scene) -> str:
    """A held publish with an expiration of 100 ms is confirmed after a second, and is not in the queue."""
    client, operator, queue = scene.client, scene.operator, scene.queue("small")
    first = operator.fill(queue, 64 * KIB + KIB)
    client.select_confirms("a/1")
    calls = client.publish("a/1", queue, [b"late"], properties={"expiration": "100"})
    operator.pass_time(1.0)
    if not client.waits_for_confirms:
        expect(not client.confirmed("a/1"), "confirmed while it was held")
    expect(len(operator.take(queue, first)) == first, "it was not full")
    calls.end()
    expect(client.confirmed("a/1", 1) == [(1, True)], "no ack")
    expect(operator.count(queue) == 0, "it is in the queue")
    return "confirmed, not in the queue"


@row("E27", "addresses")
def larger_than_the_limit(scene: Scene) -> str:
    """A message larger than the limit is accepted by an empty queue."""
    client, operator, queue = scene.client, scene.operator, scene.queue("small")
    operator.declare(queue)
    client.select_confirms("a/1")
    client.publish("a/1", queue, [bytes(200_000)]).end()
    expect(client.confirmed("a/1", 1) == [(1, True)], "no ack")
    expect(operator.count(queue) == 1, "it is not there")
    return "200,000 octets accepted, with a limit of 65,536"


@row("E28", "addresses")
def no_channel_flow(scene: Scene) -> str:
    """Held for a while, then drained: no channel.flow, no error, the channel as good as before."""
    client, operator, queue = scene.client, scene.operator, scene.queue("small")
    operator.declare(queue)
    client.select_confirms("a/1")
    calls = client.publish("a/1", queue, bodies(200))
    calls.wait_until_quiet()
    operator.pass_time(1.0)
    expect(len(operator.take_all(queue, 200)) == 200, "some are missing")
    calls.end()
    expect(client.confirmed("a/1", 200) == [(seq, True) for seq in range(1, 201)], "confirms are missing")
    expect(not client.events("a/1", "closed", 1, 0), "something was closed")
    expect(client.do("a/1", "queue.declare", queue=queue, passive=True)["message_count"] == 0, "not empty")
    return "nothing but confirms"  # `RowClient.end` looks for channel.flow


@row("FLOW", "channel-flow")
def is_told_to_stop(scene: Scene) -> str:
    """use-channel-flow names the clients of Java and Go: these alone get channel.flow, answer it, and go on later."""
    client, operator, queue = scene.client, scene.operator, scene.queue("FLOW")
    operator.declare(queue)
    client.open("a/1")
    client.expects_channel_flow = client.name in ("amqp-client", "amqp091-go")
    calls = client.publish("a/1", queue, bodies(1000))
    returned = calls.wait_until_quiet()
    told = len(client.frames("a", "channel.flow"))
    expect(told == client.expects_channel_flow, f"{told} times channel.flow")
    expect(len(operator.take_all(queue, 1000)) == 1000, "some are missing")
    calls.end()
    expect(operator.until(lambda: len(client.frames("a", "channel.flow")) % 2 == 0), "it was not told to go on")
    operator.pass_time(0.3)
    times = len(client.frames("a", "channel.flow"))
    expect(times == len(client.frames("a", "channel.flow-ok", by="client")), "it did not answer")
    if not told:
        return "nothing; its publishes are held"
    how = f"its call waits after {returned} of 1,000" if returned < 1000 else "it answers; to stop is up to the program"
    return f"channel.flow: {how}; all 1,000 came"


@row("BLOCK", "addresses")
def size_in_messages(scene: Scene) -> str:
    """An address with BLOCK and max-size-messages = 40 confirms 40 and holds the rest."""
    client, operator, queue = scene.client, scene.operator, scene.queue("block")
    operator.declare(queue)
    client.select_confirms("a/1")
    calls = client.publish("a/1", queue, bodies(100, 10))
    held_at = client.confirms_when_quiet(calls, "a/1", 40)
    expect(held_at == operator.count(queue) == 40, f"{held_at} confirms, {operator.count(queue)} in the queue")
    expect(len(operator.take_all(queue, 100)) == 100, "some are missing")
    calls.end()
    expect(all(ack for _, ack in client.confirmed("a/1", 100)), "a nack")
    return "40 confirms, the others when there was room"


@row("E12", "memory")
def no_quick_alternation(scene: Scene) -> str:
    """The broker's usage goes up and down about its limit: never blocked and unblocked within 200 ms."""
    client, operator, queue = scene.client, scene.operator, scene.queue("E12")
    operator.fill(queue, 900 * KIB)  # which is below the low mark
    client.open("a/1")
    for number in range(24):
        client.publish("a/1", queue, bodies(150)).end()
        expect(operator.until(lambda: bool(operator.status()["blocked"])), "nothing was held")
        expect(len(operator.take_all(queue, 150)) == 150, "some are missing")
        operator.pass_time(0.3 if number % 4 == 3 else 0.02)
    blocked, unblocked = (partial(client.frames, "a", f"connection.{what}") for what in ("blocked", "unblocked"))
    expect(
        operator.until(lambda: len(unblocked()) == len(blocked()) > 3),
        f"{len(blocked())} blocked, {len(unblocked())} unblocked",
    )
    times = sorted([*blocked(), *unblocked()])
    closest = min(later - sooner for sooner, later in pairwise(times))
    expect(closest > 0.2 - 0.05, f"{closest * 1000:.0f} ms apart")
    return f"{len(times) // 2} pairs, none closer than 200 ms"
