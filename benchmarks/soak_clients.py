"""The clients of the soak test: well-behaved ones with pika, ill-behaved ones with a socket and pamqp's frames.

Every act checks its answers and leaves nothing behind, except that the broker has to clean up after ill-behaved ones.
An act that is not served as AMQP specifies raises; the soak counts that as a failure.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pika
from pamqp import commands, frame
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, UnroutableError
from raw_client import DEADLINE_SECONDS, LOOPBACK, RawClient, Unexpected, publish_octets

POLL_SECONDS = 0.02
BODY_SIZES = (0, 1, 16, 100, 1024, 5000, 40_000, 200_000)
EXCHANGE_TYPES = ("direct", "fanout", "topic", "headers")
NOT_FOUND = 404


@dataclass(slots=True)
class Actor:
    """One client thread: the broker's address, a random generator and names of its own, and its counts."""

    port: int
    chance: random.Random
    name: str
    counts: Counter[str] = field(default_factory=Counter)
    held: list[RawClient] = field(default_factory=list)
    names_made: int = 0

    def fresh_name(self) -> str:
        """A unique name."""
        self.names_made += 1
        return f"soak.{self.name}.{self.names_made}"

    def body(self) -> bytes:
        """A body of a mixed size."""
        return self.chance.randbytes(self.chance.choice(BODY_SIZES))

    def drop_held(self) -> None:
        """Cut the connections that acts left open on purpose."""
        for client in self.held:
            client.reset()
        self.held.clear()

    def raw(self, *, receive_buffer_bytes: int | None = None) -> RawClient:
        """A connection by hand."""
        self.counts["connections"] += 1
        return RawClient(self.port, receive_buffer_bytes=receive_buffer_bytes)

    @contextmanager
    def channel(self) -> Iterator[BlockingChannel]:
        """A channel on a connection of its own, closed in order afterwards."""
        connection = pika.BlockingConnection(
            pika.ConnectionParameters(LOOPBACK, self.port, socket_timeout=DEADLINE_SECONDS, heartbeat=60)
        )
        self.counts["connections"] += 1
        try:
            yield connection.channel()
        finally:
            connection.close()


def check(fact: bool, what: str) -> None:
    """Raises: Unexpected: the fact is false."""
    if not fact:
        raise Unexpected(what)


def wait_for(fact: Callable[[], bool], what: str) -> None:
    """Wait until the fact is true. Raises: Unexpected: it was not in time."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not fact():
        check(time.monotonic() < deadline, f"never: {what}")
        time.sleep(POLL_SECONDS)


def message_count(channel: BlockingChannel, queue: str) -> int:
    """Messages ready in a queue."""
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def is_gone(channel: BlockingChannel, queue: str) -> bool:
    """Whether the queue does not exist; checked on a channel of its own, which a 404 closes."""
    asking = channel.connection.channel()
    try:
        asking.queue_declare(queue, passive=True)
    except ChannelClosedByBroker as error:
        check(error.reply_code == NOT_FOUND, f"{error.reply_code} for a missing queue")
        return True
    asking.close()
    return False


# ------------------------------------------------------------------------------------------------- well-behaved clients


def short_connections(actor: Actor) -> None:
    """Connect and disconnect, some without a channel, some with several."""
    for _ in range(5):
        with actor.channel() as channel:
            for _ in range(actor.chance.randrange(3)):
                channel.connection.channel()


def channels(actor: Actor) -> None:
    """Channels opened and closed, by the client and by an error."""
    with actor.channel() as channel:
        for _ in range(15):
            if actor.chance.random() < 0.3:
                check(is_gone(channel, "soak.there-is-none"), "a missing queue was found")
            else:
                channel.connection.channel().close()
        actor.counts["channels"] += 15


def queues(actor: Actor) -> None:
    """Exclusive, server-named, auto-delete and limited queues are declared and deleted, each in its own way."""
    with actor.channel() as channel:
        for _ in range(5):
            exclusive = channel.queue_declare("", exclusive=True).method.queue
            check(exclusive.startswith("amq.gen"), f"server-named queue {exclusive}")
            with_limits = actor.fresh_name()
            limits = {"x-message-ttl": 50, "x-max-length": 10, "x-expires": 60_000}
            channel.queue_declare(with_limits, durable=actor.chance.random() < 0.5, arguments=limits)
            for _ in range(20):
                channel.basic_publish("", with_limits, actor.body()[:1000])
            channel.queue_delete(with_limits)
            with_consumer = actor.fresh_name()
            channel.queue_declare(with_consumer, auto_delete=True)
            tag = channel.basic_consume(with_consumer, lambda *_: None, auto_ack=True)
            channel.basic_cancel(tag)
            check(is_gone(channel, with_consumer), "an auto-delete queue outlived its consumer")
            actor.counts["queues"] += 3


def exchanges(actor: Actor) -> None:
    """Every exchange type, reached through another exchange, with confirms and returns."""
    with actor.channel() as channel:
        channel.confirm_delivery()
        for kind in EXCHANGE_TYPES:
            front, back = actor.fresh_name(), actor.fresh_name()
            arguments = {"x-match": "all", "kind": "order"} if kind == "headers" else None
            channel.exchange_declare(front, "fanout", auto_delete=True)
            channel.exchange_declare(back, kind, auto_delete=True)
            channel.exchange_bind(back, front)
            queue = channel.queue_declare("", exclusive=True).method.queue
            channel.queue_bind(queue, back, "orders.*" if kind == "topic" else "orders.eu", arguments)
            properties = pika.BasicProperties(headers={"kind": "order", "n": 1}, content_type="text/plain")
            bodies = [actor.body() for _ in range(12)]
            for body in bodies:
                channel.basic_publish(front, "orders.eu", body, properties, mandatory=True)
            if kind != "fanout":
                with suppress(UnroutableError):
                    channel.basic_publish(front, "elsewhere", b"", mandatory=True)
                    raise Unexpected("an unroutable message was not returned")
            check(_drained(channel, queue) == bodies, f"{kind}: other messages than were published")
            channel.queue_unbind(queue, back, "orders.*" if kind == "topic" else "orders.eu", arguments)
            channel.queue_delete(queue)
            actor.counts["messages"] += len(bodies)


def _drained(channel: BlockingChannel, queue: str) -> list[bytes]:
    """The bodies of all messages in a queue, acknowledged."""
    bodies: list[bytes] = []
    while True:
        method, _, body = channel.basic_get(queue)
        if method is None:
            return bodies
        bodies.append(body)
        channel.basic_ack(method.delivery_tag)


def consumers(actor: Actor) -> None:
    """Consumers with prefetch, acks singly and many at once."""
    with actor.channel() as channel:
        queue = channel.queue_declare("", exclusive=True).method.queue
        bodies = [actor.body() for _ in range(60)]
        for body in bodies:
            channel.basic_publish("", queue, body)
        channel.basic_qos(prefetch_count=actor.chance.choice((1, 7, 50)))
        received: list[bytes] = []
        for method, _, body in channel.consume(queue, inactivity_timeout=DEADLINE_SECONDS):
            check(method is not None, f"only {len(received)} of {len(bodies)} messages came")
            received.append(body)
            channel.basic_ack(method.delivery_tag, multiple=actor.chance.random() < 0.3)
            if len(received) == len(bodies):
                break
        channel.cancel()
        check(received == bodies, "messages came in another order or changed")
        actor.counts["messages"] += len(bodies)


def requeues(actor: Actor) -> None:
    """Nack, reject and recover put messages back, marked as redelivered, or drop them."""
    with actor.channel() as channel:
        queue = channel.queue_declare("", exclusive=True).method.queue
        for _ in range(10):
            channel.basic_publish("", queue, actor.body())
        for _ in range(10):
            method, _, _ = channel.basic_get(queue)
            check(method is not None, "a message is missing")
            actor.chance.choice((channel.basic_nack, channel.basic_reject))(method.delivery_tag, requeue=True)
            method, _, _ = channel.basic_get(queue)
            check(method is not None and method.redelivered, "a requeued message is not marked as redelivered")
            channel.basic_nack(method.delivery_tag, requeue=False)
        channel.basic_publish("", queue, b"recovered")
        channel.basic_get(queue)
        channel.basic_recover(requeue=True)
        check(_drained(channel, queue) == [b"recovered"], "basic.recover did not put a message back")
        actor.counts["messages"] += 11


def transactions(actor: Actor) -> None:
    """After a rollback nothing is published; after a commit everything is."""
    with actor.channel() as channel:
        channel.tx_select()
        queue = channel.queue_declare("", exclusive=True).method.queue
        for commit in (False, True):
            for _ in range(5):
                channel.basic_publish("", queue, actor.body())
            check(message_count(channel, queue) == 0, "visible before the commit")
            (channel.tx_commit if commit else channel.tx_rollback)()
            expected = 5 if commit else 0
            count = message_count(channel, queue)
            check(count == expected, f"{count} messages instead of {expected}")
        check(len(_drained(channel, queue)) == 5, "committed messages are missing")
        channel.tx_commit()
        actor.counts["messages"] += 10


# -------------------------------------------------------------------------------------------------- ill-behaved clients


def killed_consumer(actor: Actor) -> None:
    """A consumer is cut off with unacknowledged messages: all of them are requeued, in order."""
    queue, bodies = actor.fresh_name(), [b"%d" % number for number in range(30)]
    with actor.channel() as channel:
        channel.queue_declare(queue)
        for body in bodies:
            channel.basic_publish("", queue, body)
        victim = actor.raw()
        victim.handshake()
        victim.send(commands.Basic.Qos(prefetch_count=actor.chance.choice((0, 1, 10))))
        victim.expect(commands.Basic.QosOk)
        victim.send(commands.Basic.Consume(queue=queue))
        victim.expect(commands.Basic.ConsumeOk)
        victim.expect(commands.Basic.Deliver)
        victim.leave(actor.chance)
        wait_for(lambda: message_count(channel, queue) == len(bodies), "messages of a killed consumer come back")
        check(_drained(channel, queue) == bodies, "they came back in another order")
        channel.queue_delete(queue)
        actor.counts["messages"] += len(bodies)


def killed_publisher(actor: Actor) -> None:
    """A publisher is cut off within a message: only the complete messages are enqueued."""
    with actor.channel() as channel:
        queue = channel.queue_declare("", exclusive=True).method.queue
        victim = actor.raw()
        victim.handshake()
        whole = publish_octets("", queue, b"whole")
        half = publish_octets("", queue, bytes(5000))
        victim.write(whole * 3 + half[: actor.chance.randrange(1, len(half))])
        wait_for(lambda: message_count(channel, queue) == 3, "whole messages before a half one are delivered")
        victim.leave(actor.chance)
        check(_drained(channel, queue) == [b"whole"] * 3, "a half message was delivered")


def half_written_frames(actor: Actor) -> None:
    """Handshakes and methods that stop in the middle; some connections stay open for a while."""
    for octets in (b"", b"AMQ", b"AMQP\0\0\x09\x01", b"AMQP\0\0\x09\x01\x01\0\0\0\0\0\xff\0\x0a"):
        client = actor.raw()
        client.write(octets)
        actor.chance.choice((client.finish, client.reset, lambda client=client: actor.held.append(client)))()
    client = actor.raw()
    client.handshake()
    declare = frame.marshal(commands.Queue.Declare(queue=actor.fresh_name(), exclusive=True), 1)
    client.write(declare + declare[: actor.chance.randrange(1, len(declare))])
    client.expect(commands.Queue.DeclareOk)
    client.leave(actor.chance)


def nonsense(actor: Actor) -> None:
    """Another protocol, and a frame with a wrong end: the broker answers with an error and closes."""
    client = actor.raw()
    client.write(b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n")
    check(client.read_to_end()[:4] == b"AMQP", "no protocol header for a client of another protocol")
    client.finish()
    client = actor.raw()
    client.handshake()
    client.write(frame.marshal(commands.Channel.Close(200, "", 0, 0), 1)[:-1] + b"\0")
    client.expect(commands.Connection.Close)
    client.leave(actor.chance)


def deaf_consumer(actor: Actor) -> None:
    """A consumer that never reads gets more than its socket buffers, and is cut; its exclusive queue is deleted."""
    with actor.channel() as channel:
        deaf = actor.raw(receive_buffer_bytes=4096)
        deaf.handshake()
        queue = actor.fresh_name()
        deaf.send(commands.Queue.Declare(queue=queue, exclusive=True))
        deaf.expect(commands.Queue.DeclareOk)
        deaf.send(commands.Basic.Consume(queue=queue, no_ack=True))
        deaf.expect(commands.Basic.ConsumeOk)
        for _ in range(60):
            channel.basic_publish("", queue, bytes(50_000))
        channel.queue_declare("", exclusive=True)  # a round trip: all of them have arrived
        deaf.leave(actor.chance)
        wait_for(lambda: is_gone(channel, queue), "the exclusive queue of a killed connection is deleted")
        actor.counts["messages"] += 60


def deaf_publisher(actor: Actor) -> None:
    """A publisher that reads neither returns nor confirms, and is cut."""
    deaf = actor.raw(receive_buffer_bytes=4096)
    deaf.handshake()
    deaf.send(commands.Confirm.Select())
    deaf.expect(commands.Confirm.SelectOk)
    deaf.write(publish_octets("", "soak.there-is-none", bytes(1000), mandatory=True) * 300)
    deaf.leave(actor.chance)
    actor.counts["messages"] += 300


ACTS: tuple[Callable[[Actor], None], ...] = (
    short_connections,
    channels,
    queues,
    exchanges,
    consumers,
    requeues,
    transactions,
    killed_consumer,
    killed_publisher,
    half_written_frames,
    nonsense,
    deaf_consumer,
    deaf_publisher,
)
