"""What consumers and gets hear, whatever is said: credit, order, answers between deliveries, whole contents.

Behaviour page 2.7 to 2.13. Worlds by seed; what a client may know is written down there, and compared with each frame.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from effort import examples
from pair import OPTIONS, Pair
from pamqp import commands as C
from peer import Peer, cut_at, method, publish

CLOSE = {"reply_code": 200, "class_id": 0, "method_id": 0}
QUEUES = ("a", "b")


@dataclass
class Consumer:
    """`prefetch`: of its own; 0: without a limit. `is_on`: consume-ok has come, and no cancel-ok."""

    queue: str
    no_ack: bool
    prefetch: int
    is_on: bool = False
    last: int = 0


@dataclass
class Line:
    """A channel as its client knows it. `expected`: answers that are to come, in order.

    `out`: delivery tag -> queue, number of the message, and the consumer's tag (None: of a get).
    """

    peer: Peer
    number: int
    expected: list[type[Any]] = field(default_factory=list)
    consumers: dict[str, Consumer] = field(default_factory=dict)
    out: dict[int, tuple[str, int, str | None]] = field(default_factory=dict)
    last_tag: int = 0
    prefetch: int = 0
    shared: int = 0
    is_flowing: bool = True
    tags: int = 0

    def has_credit(self, consumer: Consumer, tag: str) -> bool:
        """Whether one more may come."""
        of_consumers = [one for *_, one in self.out.values() if one is not None]
        if self.shared and len(of_consumers) >= self.shared:
            return False
        return consumer.no_ack or not consumer.prefetch or of_consumers.count(tag) < consumer.prefetch


class World:
    """Two queues, a publisher, two clients with two channels each; the second one takes small frames only.

    `ready`: of each queue the numbers of messages that no client has. `seen`: those that were delivered before.
    """

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.pair = Pair()
        self.publisher = self.pair.open(1)
        for queue in QUEUES:
            self.publisher.call(1, C.Queue.Declare, queue=queue)
        self.ready: dict[str, set[int]] = {queue: set() for queue in QUEUES}
        self.bodies: dict[int, bytes] = {}
        self.keys: dict[int, dict[str, Any]] = {}
        self.seen: set[int] = set()
        self.count = 0
        self.came: dict[str, list[int]] = {}
        self.has_returned = False
        self.lines: list[Line] = []
        for frame_max in (131072, 4096):
            peer = self.pair.open(2, frame_max=frame_max)
            peer.cut = cut_at([chance.randrange(1 << 12) for _ in range(chance.choice((0, 0, 2)))])
            self.lines += [Line(peer, number) for number in (1, 2)]

    # -- what is said -------------------------------------------------------------------------------------------------

    def publish(self) -> None:
        octets = b""
        queue = self.chance.choice(QUEUES)
        size = self.chance.choice((0, 10, 10, 3000, 9000))
        kind: dict[str, Any] = self.chance.choice(({}, {"content_type": "t"}, {"headers": {"h": 1}}))
        for _ in range(self.chance.choice((1, 1, 3, 12))):
            self.count += 1
            self.ready[queue].add(self.count)
            self.bodies[self.count] = b"%d" % self.count + bytes(size)
            self.keys[self.count] = kind
            octets += publish(1, queue, self.bodies[self.count], **kind)
        self.publisher.send(octets)

    def qos(self, line: Line) -> bytes:
        count, is_shared = self.chance.randrange(5), self.chance.random() < 0.3
        if is_shared:
            line.shared = count
        else:
            line.prefetch, line.shared = count, 0  # as in RabbitMQ the former ends the latter
        line.expected.append(C.Basic.QosOk)
        return method(line.number, C.Basic.Qos, prefetch_count=count, global_=is_shared)

    def consume(self, line: Line) -> bytes:
        if len(line.consumers) > 3:
            return b""
        line.tags += 1
        tag, queue, no_ack = f"c{line.tags}", self.chance.choice(QUEUES), self.chance.random() < 0.3
        line.consumers[tag] = Consumer(queue, no_ack, line.prefetch)
        line.expected.append(C.Basic.ConsumeOk)
        return method(line.number, C.Basic.Consume, queue=queue, consumer_tag=tag, no_ack=no_ack)

    def cancel(self, line: Line) -> bytes:
        on = [tag for tag, one in line.consumers.items() if one.is_on]
        if not on:
            return b""
        line.expected.append(C.Basic.CancelOk)
        return method(line.number, C.Basic.Cancel, consumer_tag=self.chance.choice(on))

    def get(self, line: Line) -> bytes:
        line.expected.append(C.Basic.GetOk)
        queue = self.chance.choice(QUEUES)
        self.asked = queue
        self.is_final = self.chance.random() < 0.3
        return method(line.number, C.Basic.Get, queue=queue, no_ack=self.is_final)

    def settle(self, line: Line) -> bytes:
        """One, or all up to it: acknowledged, rejected for good, or given back."""
        if not line.out:
            return b""
        kind = self.chance.choice((C.Basic.Ack, C.Basic.Ack, C.Basic.Nack, C.Basic.Reject))
        tag, is_multiple = self.chance.choice([*line.out]), self.chance.random() < 0.4
        if kind is C.Basic.Reject:
            is_multiple = False
        elif is_multiple and self.is_alone and self.chance.random() < 0.2:
            tag = 0  # also what is under way, of which the client does not know yet
        gone = [one for one in line.out if one == tag or (is_multiple and (one <= tag or not tag))]
        requeue = kind is not C.Basic.Ack and self.chance.random() < 0.6
        self.give_back(line, gone, requeue=requeue)
        fields: dict[str, Any] = {"delivery_tag": tag}
        if kind is not C.Basic.Reject:
            fields["multiple"] = is_multiple
        if kind is not C.Basic.Ack:
            fields["requeue"] = requeue
        return method(line.number, kind, **fields)

    def give_back(self, line: Line, tags: list[int], *, requeue: bool) -> None:
        for tag in tags:
            queue, number, _ = line.out.pop(tag)
            if requeue:
                self.ready[queue].add(number)
                self.has_returned = True

    def recover(self, line: Line) -> bytes:
        line.expected.append(C.Basic.RecoverOk)
        self.give_back(line, [*line.out], requeue=True)
        return method(line.number, C.Basic.Recover, requeue=True)

    def flow(self, line: Line) -> bytes:
        line.expected.append(C.Channel.FlowOk)
        line.is_flowing = not line.is_flowing
        return method(line.number, C.Channel.Flow, active=line.is_flowing)

    def reopen(self, line: Line) -> bytes:
        line.expected += [C.Channel.CloseOk, C.Channel.OpenOk]
        self.give_back(line, [*line.out], requeue=True)
        return method(line.number, C.Channel.Close, **CLOSE) + method(line.number, C.Channel.Open)

    # -- what is heard ------------------------------------------------------------------------------------------------

    def say(self, line: Line, *sayings: Callable[[Line], bytes]) -> None:
        """In one read; what comes is looked at."""
        self.came = {queue: [] for queue in QUEUES}
        self.has_returned, self.is_alone = False, len(sayings) == 1
        line.peer.send(b"".join(saying(line) for saying in sayings))
        self.hear()

    def hear(self) -> None:
        for line in self.lines:
            if line.number == 1:
                for one in line.peer.take():
                    self.heard(line if one.channel == 1 else self.lines[self.lines.index(line) + 1], one)
        for line in self.lines:
            assert not line.expected, f"no answer: {line.expected[0]}"
        for queue in QUEUES:
            ready, came = self.ready[queue], self.came.get(queue, [])
            is_there = self.publisher.call(1, C.Queue.Declare, queue=queue, passive=True).message_count
            assert is_there == len(ready), f"{is_there} of {sorted(ready)} ready in {queue}"
            if came and ready and not self.has_returned:
                assert max(came) < min(ready), "the head goes first"
            if ready:
                for line in self.lines:
                    for tag, consumer in line.consumers.items():
                        if consumer.queue == queue and line.is_flowing:
                            assert not line.has_credit(consumer, tag), f"{tag} waits for nothing"

    def heard(self, line: Line, one: Any) -> None:
        frame = one.frame
        if isinstance(frame, C.Basic.Deliver):
            consumer = line.consumers[frame.consumer_tag]
            assert consumer.is_on, "before its consume-ok, or after its cancel-ok"
            assert line.is_flowing or C.Channel.FlowOk in line.expected, "behind flow-ok"
            assert line.has_credit(consumer, frame.consumer_tag), "more than was asked for"
            self.delivered(line, one, consumer.queue, None if consumer.no_ack else frame.consumer_tag, consumer.no_ack)
            return
        kind = line.expected.pop(0)
        if kind is C.Basic.GetOk:
            if isinstance(frame, C.Basic.GetEmpty):
                assert not self.ready[self.asked]
                return
            assert self.has_returned or int(one.body.rstrip(b"\0")) == min(self.ready[self.asked]), "not the head"
            self.delivered(line, one, self.asked, None, self.is_final)
            assert frame.message_count == len(self.ready[self.asked])
            return
        assert isinstance(frame, kind), f"{frame.name} instead of {kind.name}"
        if kind is C.Basic.ConsumeOk:
            line.consumers[frame.consumer_tag].is_on = True
        elif kind is C.Basic.CancelOk:
            del line.consumers[frame.consumer_tag]
        elif kind is C.Channel.CloseOk:
            line.consumers.clear()
            line.last_tag = line.prefetch = line.shared = 0
            line.is_flowing = True

    def delivered(self, line: Line, one: Any, queue: str, tag: str | None, is_final: bool) -> None:
        frame, number = one.frame, int(one.body.rstrip(b"\0"))
        assert frame.delivery_tag == line.last_tag + 1
        line.last_tag += 1
        assert number in self.ready[queue], "somebody has it already"
        assert one.body == self.bodies[number]
        assert (frame.exchange, frame.routing_key) == ("", queue)
        kind = self.keys[number]
        assert (one.properties.content_type, one.properties.headers) == (kind.get("content_type"), kind.get("headers"))
        assert frame.redelivered == (number in self.seen)
        self.seen.add(number)
        self.ready[queue].discard(number)
        self.came[queue].append(number)
        if not is_final:
            line.out[frame.delivery_tag] = queue, number, tag


@pytest.mark.parametrize("seed", range(examples(20)))
def test_what_consumers_hear(seed: int) -> None:
    """Each message goes to one of them, in order, with credit, whole, and each answer comes where it belongs."""
    chance = Random(seed)
    world = World(chance)
    sayings = [world.consume, world.cancel, world.get, world.settle, world.settle, world.settle, world.recover]
    for _ in range(60):
        if chance.random() < 0.35:
            world.came = {queue: [] for queue in QUEUES}
            world.has_returned = False
            world.publish()
            world.hear()
        line = chance.choice(world.lines)
        alone = chance.choice([*sayings, world.qos, world.flow, world.reopen])
        if chance.random() < 0.6:
            world.say(line, alone)
        else:
            world.say(line, *chance.choices([world.settle, world.settle, world.consume], k=chance.randint(2, 4)))


@pytest.mark.parametrize("settles", ["ack", "reject"])
def test_what_is_ready_before_a_cancel_is_delivered_before_it(settles: str) -> None:
    """In one read, too: what is settled makes room for the next message, or brings the same one back."""
    pair = Pair()
    peer = pair.open(2)
    peer.call(1, C.Queue.Declare, queue="q")
    peer.call(1, C.Basic.Qos, prefetch_count=1)
    peer.call(1, C.Basic.Consume, queue="q", consumer_tag="c")
    peer.send(publish(2, "q", b"first"), publish(2, "q", b"second"))
    peer.take()
    settled = method(1, C.Basic.Ack, delivery_tag=1)
    if settles == "reject":
        settled = method(1, C.Basic.Reject, delivery_tag=1, requeue=True)
    peer.send(settled + method(1, C.Basic.Cancel, consumer_tag="c"))
    delivered, answer = peer.take()
    assert (delivered.body, delivered.frame.redelivered) == (
        (b"second", False) if settles == "ack" else (b"first", True)
    )
    assert isinstance(answer.frame, C.Basic.CancelOk)


def test_what_comes_back_before_a_consumer_does_is_not_for_it() -> None:
    """In one read: the consumer that was there before gets the message again."""
    peer = Pair().open(2)
    peer.call(1, C.Queue.Declare, queue="q")
    peer.call(1, C.Basic.Consume, queue="q", consumer_tag="old")
    peer.send(publish(2, "q", b"x"))
    peer.take()
    peer.send(
        method(1, C.Basic.Nack, delivery_tag=1, requeue=True)
        + method(2, C.Basic.Consume, queue="q", consumer_tag="new")
    )
    delivered, answer = peer.take()
    assert delivered.frame.consumer_tag == "old"
    assert isinstance(answer.frame, C.Basic.ConsumeOk)


def test_a_consumer_that_is_replaced_does_not_count() -> None:
    """Of a leased queue, on a channel that has as many consumers as it may have."""
    pair = Pair(replace(OPTIONS, consumers_per_channel_max=1))
    peer = pair.open()
    peer.call(1, C.Queue.Declare, queue="q", durable=True, arguments={"x-queue-type": "amps"})
    peer.call(1, C.Basic.Consume, queue="q", consumer_tag="c")
    again = peer.call(1, C.Basic.Consume, queue="q", consumer_tag="c", arguments={"x-replace": True})
    assert isinstance(again, C.Basic.ConsumeOk)
    refused = peer.call(1, C.Basic.Consume, queue="q", consumer_tag="d")
    assert "consumers per channel" in refused.reply_text


@pytest.mark.parametrize("size, frame_max", [(1, 131072), (9000, 131072), (9000, 4096)])
def test_messages_of_other_channels_and_frame_sizes_come_as_the_consumer_takes_them(size: int, frame_max: int) -> None:
    """In one run, whatever each was published as: the consumer's frames carry its channel, and no more than it takes.

    Also when they are delivered again.
    """
    pair = Pair()
    large, small, peer = pair.open(3), pair.open(2, frame_max=4096), pair.open(2, frame_max=frame_max)
    peer.call(1, C.Queue.Declare, queue="q")
    bodies = []
    for number in range(12):
        publisher, channel = ((large, 1), (large, 3), (small, 2))[number % 3]
        bodies.append(b"%d" % number + bytes(size))
        publisher.send(
            publish(
                channel, "q", bodies[-1], body_max=4088 if publisher is small else 131064, content_type=str(number % 2)
            )
        )
    for is_again in (False, True):
        peer.send(method(1, C.Basic.Consume, queue="q", consumer_tag=f"c{is_again}"))
        _, *came = peer.take()
        assert [one.channel for one in came] == [1] * 12
        assert [(one.body, one.frame.redelivered) for one in came] == [(body, is_again) for body in bodies]
        assert [one.properties.content_type for one in came if one.properties] == ["0", "1"] * 6
        peer.send(method(1, C.Basic.Cancel, consumer_tag=f"c{is_again}"))
        peer.send(method(1, C.Basic.Nack, delivery_tag=0, multiple=True, requeue=True))
        peer.take()
