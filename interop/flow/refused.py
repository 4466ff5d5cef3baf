"""Rows in which publishes are refused: at once, after a time, or with their transaction or connection."""

from __future__ import annotations

from .client import Differs, Refused, bodies
from .row import Scene, expect, row

KIB = 1024


@row("T5", "addresses")
def nacks(scene: Scene) -> str:
    """With send-fail-if-no-space, on a channel with confirms: nacks, and nothing of these is stored."""
    client, operator, queue = scene.client, scene.operator, scene.queue("fails")
    operator.declare(queue)
    client.select_confirms("a/1")
    client.publish("a/1", queue, bodies(1200)).end()
    confirmed = client.confirmed("a/1", 1200)
    acks = sum(ack for _, ack in confirmed)
    expect([seq for seq, _ in confirmed] == list(range(1, 1201)), f"{len(confirmed)} confirms, or out of order")
    expect(all(ack == (seq <= acks) for seq, ack in confirmed), "a nack between acks")
    expect(900 <= acks <= 1024 and operator.count(queue) == acks, f"{acks} acks, {operator.count(queue)} stored")
    return f"{acks} acks, {1200 - acks} nacks"


@row("E03", "addresses")
def returns(scene: Scene) -> str:
    """Mandatory, without confirms: basic.return 506."""
    client, operator, queue = scene.client, scene.operator, scene.queue("fails")
    operator.declare(queue)
    client.open("a/1")
    client.publish("a/1", queue, bodies(1200), mandatory=True).end()
    client.do("a/1", "queue.declare", queue=queue, passive=True)
    count = len(client.frames("a", "basic.return"))
    expect(count == 1200 - operator.count(queue) and 176 <= count <= 300, f"{count} returns")
    heard = client.all_events("a/1", "return")
    if not client.lacks("scenario:publish-mandatory-returned"):
        expect(len(heard) == count, f"{len(heard)} of {count} returns")
    if heard and not client.lacks("return=code"):
        expect({one["code"] for one in heard} == {506}, {one["code"] for one in heard})
        texts = {one["text"] for one in heard}
        expect(texts == {f"RESOURCE_ERROR - queue '{queue}' in vhost '/': memory limit"}, texts)
        return f"{count} returns, 506 RESOURCE_ERROR"
    return f"{count} returns; {client.lacks('scenario:publish-mandatory-returned') or client.lacks('return=code')}"


@row("E04", "addresses")
def closes_the_channel(scene: Scene) -> str:
    """Not mandatory, without confirms: channel.close 406 RESOURCE_ERROR; other channels go on."""
    client, operator, queue = scene.client, scene.operator, scene.queue("fails")
    operator.fill(queue, 1024 * KIB)
    client.open("a/1")
    client.open_channel("a/2")
    client.publish("a/1", queue, bodies(1)).end()
    seen = (client.events("a/1", "closed") or [{}])[0]
    expect(seen.get("scope") == "channel" and seen.get("code") == 406, seen)
    expect(str(seen["text"]).startswith(f"RESOURCE_ERROR - queue '{queue}'"), seen)
    expect(client.do("a/2", "queue.declare", queue=queue, passive=True)["message_count"] >= 900, "channel 2")
    return f"channel closed, {seen['code']} RESOURCE_ERROR; channel 2 goes on"


@row("E05", "addresses")
def nacks_after_a_while(scene: Scene) -> str:
    """With send-fail-if-no-space-after = 500: the first nack 500 ms after the first held publish, give or take 150."""
    client, operator, queue = scene.client, scene.operator, scene.queue("later")
    operator.fill(queue, 1024 * KIB + KIB)
    client.select_confirms("a/1")
    calls = client.publish("a/1", queue, bodies(3))
    calls.end()
    expect(client.confirmed("a/1", 3) == [(1, False), (2, False), (3, False)], "not three nacks")
    waited = client.frames("a", "basic.nack")[0] - client.frames("a", "basic.publish", by="client")[0]
    expect(0.35 <= waited <= 0.5 + scene.slack, f"{waited * 1000:.0f} ms")
    return "nack after 500 ms, within 150"


@row("FAIL", "addresses")
def size_in_messages(scene: Scene) -> str:
    """An address with FAIL and max-size-messages = 40 nacks what is too much."""
    client, operator, queue = scene.client, scene.operator, scene.queue("fail")
    operator.declare(queue)
    client.select_confirms("a/1")
    client.publish("a/1", queue, bodies(100, 10)).end()
    acks = [ack for _, ack in client.confirmed("a/1", 100)]
    expect(acks == [True] * 40 + [False] * 60 and operator.count(queue) == 40, f"{sum(acks)} acks")
    return "40 acks, 60 nacks"


@row("T13", "addresses", "tx.select", "tx.commit")
def transactions(scene: Scene) -> str:
    """A commit is held as one and answered when there is room; refused, it closes the channel with 406."""
    client, operator = scene.client, scene.operator
    held, refused = scene.queue("small"), scene.queue("fails")
    first = operator.fill(held, 64 * KIB + KIB)
    client.open("a/1")
    client.do("a/1", "tx.select")
    client.publish("a/1", held, bodies(3)).end()
    commit = client.calls(("a/1", "tx.commit", {}))
    expect(commit.wait_until_quiet() == 0, "the commit was not held")
    operator.take(held, first)
    commit.end()
    expect(operator.count(held) == 3, f"{operator.count(held)} of 3")
    count = operator.fill(refused, 1024 * KIB + KIB)
    client.open_channel("a/2")
    client.do("a/2", "tx.select")
    client.publish("a/2", refused, bodies(3)).end()
    try:
        client.do("a/2", "tx.commit")
        raise Differs("the commit was not refused")
    except Refused as error:
        seen = error.answer
    expect(seen["scope"] == "channel" and seen["code"] == 406, seen)
    expect(operator.count(refused) <= count, "something of it was stored")
    return "the commit waits; refused, it closes the channel with 406"


@row("T12", "stall")
def closes_the_connection(scene: Scene) -> str:
    """With max-stall = 1 s a connection that is left unread without any progress is closed with 506."""
    client, operator, queue = scene.client, scene.operator, scene.queue("T12")
    operator.fill(queue, 1024 * KIB + KIB)
    client.connect("a", tapped=False)
    client.open_channel("a/1")
    calls = client.publish("a/1", queue, bodies(1000, 16 * KIB))
    try:
        calls.end()
    except Refused:
        pass
    closed = client.events("a/1", "closed")
    seen = (closed or [{}])[0] if calls.refusal is None or closed else calls.refusal.answer
    expect(seen.get("scope") == "connection" and seen.get("code") == 506, seen)
    return f"connection closed, {seen['code']} {str(seen['text']).partition(' - ')[0]}"
