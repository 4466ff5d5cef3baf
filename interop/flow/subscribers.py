"""Rows about slow subscribers of topics, slow consumers of queues, and consumers that pause."""

from __future__ import annotations

import time

from .client import bodies, delivered, number_of
from .row import Scene, expect, row

TOPICS = "amq.topic"


class Subscriber:
    """A connection with an exclusive queue, bound to a topic, and one consumer with this prefetch (0: no limit)."""

    def __init__(self, scene: Scene, name: str, topic: str, *, prefetch: int = 0) -> None:
        self._hand, self.place, self.name = scene.client, f"{name}/1", name
        self.got: list[int] = []
        self._last = 0
        self._at_once = prefetch or 1000
        self._hand.open(self.place, prefetch=prefetch)
        self.queue = f"{scene.name}-{name}"
        self._hand.do(self.place, "queue.declare", queue=self.queue, exclusive=True)
        self._hand.do(self.place, "queue.bind", queue=self.queue, exchange=TOPICS, routing_key=topic)
        self._hand.do(self.place, "basic.consume", queue=self.queue, consumer_tag="c")

    def receive(self, count: int, quiet: float = 0.4) -> list[int]:
        """The next `count` messages, or fewer."""
        events = self._hand.events(self.place, "delivery", count, quiet)
        if events:
            self._last = events[-1]["delivery_tag"]
        new = [number_of(delivered(event)) for event in events]
        self.got += new
        return new

    def receive_all(self, count: int) -> list[int]:
        """Receive and acknowledge messages until there are `count` in all, or no more come. Returns all."""
        while len(self.got) < count:
            self.ack()
            if not self.receive(min(self._at_once, count - len(self.got))):
                break
        self.ack()
        self.receive(1)
        return self.got

    def ack(self) -> None:
        """Acknowledge all messages that were received."""
        if self._last:
            self._hand.do(self.place, "basic.ack", delivery_tag=self._last, multiple=True)
            self._last = 0


def _publish(scene: Scene, topic: str, count: int, size: int = 10, **arguments: object) -> None:
    """Publish messages, which are all confirmed, because no subscriber holds a publisher."""
    scene.client.select_confirms("p/1")
    scene.client.publish("p/1", topic, bodies(count, size), exchange=TOPICS, **arguments).end()
    expect(len(scene.client.confirmed("p/1", count)) == count, "the publisher was held")


def _kept(scene: Scene, kind: str, prefetch: int) -> list[int]:
    """The messages of 100 that a slow subscriber gets in the end."""
    topic = scene.queue(kind)
    slow = Subscriber(scene, "slow", topic, prefetch=prefetch)
    _publish(scene, topic, 100)
    expect(slow.receive(prefetch, 10) == list(range(prefetch)), f"{slow.got} at first")
    return slow.receive_all(200)


@row("E19", "addresses")
def constant_limit(scene: Scene) -> str:
    """pending-message-limit = 10, prefetch 5: a slow subscriber ends with 5 and the newest 10, a fast one gets all."""
    fast = Subscriber(scene, "fast", scene.queue("constant"))
    got = _kept(scene, "constant", 5)
    expect(got == [*range(5), *range(90, 100)], got)
    everything = fast.receive(100, 10)
    expect(everything == list(range(100)), f"the fast one got {len(everything)}")
    return "5 and the newest 10; the fast one all 100; the publisher is never held"


@row("E20", "addresses")
def rate_limit(scene: Scene) -> str:
    """pending-message-limit-prefetch-rate = 2.5, prefetch 10: 10 and the newest 25."""
    got = _kept(scene, "rate", 10)
    expect(got == [*range(10), *range(75, 100)], got)
    return "10 and the newest 25"


@row("E21", "addresses")
def last_of_each_value(scene: Scene) -> str:
    """unique-property: the last message of each of three symbols survives."""
    client, topic = scene.client, scene.queue("unique")
    slow = Subscriber(scene, "slow", topic, prefetch=1)
    client.select_confirms("p/1")
    for number in range(50):
        body, headers = f":{number}".encode(), {"symbol": {"S": "ABC"[number % 3]}}
        client.publish("p/1", topic, [body], exchange=TOPICS, headers=headers).end()
    expect(len(client.confirmed("p/1", 50)) == 50, "the publisher was held")
    expect(slow.receive(1, 10) == [0], slow.got)
    got = slow.receive_all(50)
    expect(len(got) <= 11 and got[-3:] == [47, 48, 49], got)
    return f"the last of each symbol, {len(got)} messages in all"


@row("E23", "addresses")
def no_limit_and_nothing(scene: Scene) -> str:
    """-1 keeps all 100, 0 only the prefetch."""
    for kind, first, count in (("all", 10, 100), ("none", 10, 10)):
        topic = scene.queue(kind)
        slow = Subscriber(scene, kind, topic, prefetch=first)
        scene.client.select_confirms(f"p{kind}/1")
        scene.client.publish(f"p{kind}/1", topic, bodies(100, 10), exchange=TOPICS).end()
        expect(len(scene.client.confirmed(f"p{kind}/1", 100)) == 100, "the publisher was held")
        expect(slow.receive(first, 10) == list(range(first)), slow.got)
        got = slow.receive_all(200)
        expect(got == list(range(count)), f"{kind}: {got}")
    return "100; 10"


@row("E24", "addresses")
def slow_consumer_is_cancelled(scene: Scene) -> str:
    """A consumer that never acknowledges: basic.cancel within 3 s, and another gets its messages."""
    client, operator, queue = scene.client, scene.operator, scene.queue("abort")
    operator.declare(queue)
    client.open("a/1", prefetch=5)
    client.do("a/1", "basic.consume", queue=queue, consumer_tag="c")
    begin = time.monotonic()
    operator.fill(queue, 20 * 10, 10)
    cancelled = client.events("a/1", "cancel", 1, 10)
    waited = time.monotonic() - begin
    expect(len(cancelled) == 1 and waited <= 3.0 + scene.slack, f"{len(cancelled)} cancels after {waited:.1f} s")
    expect(len(operator.take_all(queue, 20)) == 20, "some stay with it")
    return "basic.cancel within 3 s; all 20 go to another"


@row("E25", "addresses")
def slow_connection_is_closed(scene: Scene) -> str:
    """The same with abort-slow-consumer-connection: connection.close 320."""
    client, operator, queue = scene.client, scene.operator, scene.queue("close")
    operator.declare(queue)
    client.open("a/1", prefetch=5)
    client.do("a/1", "basic.consume", queue=queue, consumer_tag="c")
    operator.fill(queue, 20 * 10, 10)
    closed = client.events("a/1", "closed", 1, 10)
    expect([(one["scope"], one["code"]) for one in closed] == [("connection", 320)], closed)
    return f"{closed[0]['code']} {closed[0]['text'].partition(' - ')[0]}"


@row("E29", "temp")
def slow_subscriber_spools(scene: Scene) -> str:
    """Without producer flow control: a fast subscriber gets ten times the limit at once, a slow one all of it later."""
    operator, topic = scene.operator, scene.queue("E29")
    fast, slow = Subscriber(scene, "fast", topic), Subscriber(scene, "slow", topic, prefetch=40)
    _publish(scene, topic, 640, 1024, properties={"delivery_mode": 1})
    got = fast.receive(640, 20)
    expect(got == list(range(640)), f"the fast one got {len(got)}")
    fast.ack()
    spooled = operator.used("temp")
    expect(spooled > 400 * 1024, f"{spooled} octets in the temp store")
    everything = slow.receive_all(640)
    expect(everything == list(range(640)), f"the slow one got {len(everything)}, or out of order")
    expect(operator.until(lambda: operator.used("temp") == 0), f"{operator.used('temp')} octets are left")
    return f"all in order for both, {spooled // 1024} KiB spooled, none left"


@row("E30", "temp")
def slow_subscriber_dies(scene: Scene) -> str:
    """The same, and the slow subscriber's connection dies: its queue and what it spooled are gone."""
    operator, topic = scene.operator, scene.queue("E30")
    slow = Subscriber(scene, "slow", topic, prefetch=40)
    _publish(scene, topic, 640, 1024, properties={"delivery_mode": 1})
    expect(operator.used("temp") > 400 * 1024, "nothing was spooled")
    scene.client.tap(slow.name).cut()
    expect(operator.until(lambda: slow.queue not in operator.queues()), "its queue is there")
    expect(operator.until(lambda: operator.used("temp") == 0), f"{operator.used('temp')} octets are left")
    return "queue and spool gone"


@row("E32", "addresses", "channel.flow")
def pauses_its_deliveries(scene: Scene) -> str:
    """channel.flow(false): flow-ok, no deliveries, basic.get as ever; flow(true): they go on."""
    client, operator, queue = scene.client, scene.operator, f"plain.{scene.name}"
    operator.declare(queue)
    client.open("a/1")
    client.do("a/1", "basic.consume", queue=queue, consumer_tag="c", no_ack=True)
    expect(client.do("a/1", "channel.flow", active=False) == {"active": False}, "no flow-ok")
    operator.fill(queue, 30, 10)
    expect(not client.events("a/1", "delivery", 1, 0.5), "a delivery while it was paused")
    got = client.do("a/1", "basic.get", queue=queue, no_ack=True)
    expect(not got.get("empty"), "basic.get got nothing")
    client.do("a/1", "channel.flow", active=True)
    expect(len(client.events("a/1", "delivery", 2, 10)) == 2, "no deliveries afterwards")
    return "paused, basic.get works, resumed"
