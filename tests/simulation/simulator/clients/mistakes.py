"""What a client may do wrong, and the close by which the broker answers: behaviour page 8, and the pages that say when.

Beside one frame that is wrong at once there are mistakes that need something before them, which a client prepares by
methods that are not answered: a queue that it has for itself, a consumer there, a binding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from leveret.interop.wire.raw_codec import FRAME_END, frame, method_frame

from .wire import BODY, HEARTBEAT, content, properties, publish_method, settle


class Slip(NamedTuple):
    """Where a mistake is made: the channel, a queue that is there, a name that only this connection uses."""

    channel: int
    queue: str
    own: str
    frame_max: int

    def method(self, name: str, **arguments: object) -> bytes:
        """One method on the channel."""
        return method_frame(self.channel, name, **arguments)

    def publish(self, exchange: str, routing_key: str = "", **of: object) -> bytes:
        """A publish without a body."""
        head = content(self.channel, properties(persistent=False, **of), b"", self.frame_max)
        return publish_method(self.channel, exchange, routing_key) + head

    def own_queue(self) -> bytes:
        """Of this connection alone; it goes with it."""
        return self.method("queue.declare", queue=self.own, exclusive=True, nowait=True, arguments={})

    def consume(self, tag: str, **more: object) -> bytes:
        """The queue of this connection."""
        return self.method("basic.consume", queue=self.own, consumer_tag=tag, nowait=True, arguments={}, **more)

    def own_exchange(self, **more: object) -> bytes:
        """With a binding to the queue of this connection, without which it goes."""
        declared = self.method(
            "exchange.declare", exchange=self.own, type="direct", auto_delete=True, nowait=True, arguments={}, **more
        )
        bound = self.method("queue.bind", queue=self.own, exchange=self.own, routing_key="", nowait=True, arguments={})
        return self.own_queue() + declared + bound


class Mistake(NamedTuple):
    """The close that comes names its code, text, and the method that failed. OWN and QUEUE stand for the names."""

    code: int
    text: str
    method: tuple[int, int]
    octets: Callable[[Slip], bytes]

    def text_of(self, slip: Slip) -> str:
        """What the text of the close begins with."""
        return self.text.replace("OWN", slip.own).replace("QUEUE", slip.queue)


_NO_QUEUE = "NOT_FOUND - no queue 'no.such' in vhost '/'"
_NO_EXCHANGE = "NOT_FOUND - no exchange 'no.such' in vhost '/'"
_DEFAULT_EXCHANGE = "ACCESS_REFUSED - operation not permitted on the default exchange"

#: What closes the channel.
OF_CHANNEL = {
    "no such exchange": Mistake(404, _NO_EXCHANGE, (60, 40), lambda slip: slip.publish("no.such")),
    "unknown tag": Mistake(
        406,
        "PRECONDITION_FAILED - unknown delivery tag 1000000",
        (60, 80),
        lambda slip: settle(80, slip.channel, 1_000_000, 0),
    ),
    "unknown tag to give back": Mistake(
        406,
        "PRECONDITION_FAILED - unknown delivery tag 1000000",
        (60, 120),
        lambda slip: settle(120, slip.channel, 1_000_000, 2),
    ),
    "unknown tag to reject": Mistake(
        406,
        "PRECONDITION_FAILED - unknown delivery tag 1000000",
        (60, 90),
        lambda slip: settle(90, slip.channel, 1_000_000, 1),
    ),
    "no such queue": Mistake(
        404,
        _NO_QUEUE,
        (50, 10),
        lambda slip: slip.method("queue.declare", queue="no.such", passive=True, arguments={}),
    ),
    "nothing to consume": Mistake(
        404, _NO_QUEUE, (60, 20), lambda slip: slip.method("basic.consume", queue="no.such", arguments={})
    ),
    "nothing to get": Mistake(404, _NO_QUEUE, (60, 70), lambda slip: slip.method("basic.get", queue="no.such")),
    "nothing to purge": Mistake(404, _NO_QUEUE, (50, 30), lambda slip: slip.method("queue.purge", queue="no.such")),
    "nothing to bind": Mistake(
        404,
        _NO_QUEUE,
        (50, 20),
        lambda slip: slip.method("queue.bind", queue="no.such", exchange="amq.direct", arguments={}),
    ),
    "nothing to bind to": Mistake(
        404,
        _NO_EXCHANGE,
        (50, 20),
        lambda slip: slip.method("queue.bind", queue=slip.queue, exchange="no.such", arguments={}),
    ),
    "a reserved name": Mistake(
        403,
        "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'",
        (50, 10),
        lambda slip: slip.method("queue.declare", queue="amq.mine", durable=True, arguments={}),
    ),
    "another property": Mistake(
        406,
        "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'QUEUE' in vhost '/': received 'false'",
        (50, 10),
        lambda slip: slip.method("queue.declare", queue=slip.queue, durable=False, arguments={}),
    ),
    "another argument": Mistake(
        406,
        "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'QUEUE' in vhost '/': received the value",
        (50, 10),
        lambda slip: slip.method(
            "queue.declare", queue=slip.queue, durable=True, arguments={"x-message-ttl": ("I", 1)}
        ),
    ),
    "another type": Mistake(
        406,
        "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'amq.direct' in vhost '/': received 'topic'",
        (40, 10),
        lambda slip: slip.method("exchange.declare", exchange="amq.direct", type="topic", durable=True, arguments={}),
    ),
    "the default exchange": Mistake(
        403, _DEFAULT_EXCHANGE, (40, 20), lambda slip: slip.method("exchange.delete", exchange="")
    ),
    "a queue in use": Mistake(
        406,
        "PRECONDITION_FAILED - queue 'OWN' in vhost '/' in use",
        (50, 40),
        lambda slip: (
            slip.own_queue() + slip.consume("one") + slip.method("queue.delete", queue=slip.own, if_unused=True)
        ),
    ),
    "exclusive beside another": Mistake(
        403,
        "ACCESS_REFUSED - queue 'OWN' in vhost '/' in exclusive use",
        (60, 20),
        lambda slip: slip.own_queue() + slip.consume("one") + slip.consume("two", exclusive=True),
    ),
    "beside an exclusive one": Mistake(
        403,
        "ACCESS_REFUSED - queue 'OWN' in vhost '/' in exclusive use",
        (60, 20),
        lambda slip: slip.own_queue() + slip.consume("one", exclusive=True) + slip.consume("two"),
    ),
    "an exchange in use": Mistake(
        406,
        "PRECONDITION_FAILED - exchange 'OWN' in vhost '/' in use",
        (40, 20),
        lambda slip: slip.own_exchange() + slip.method("exchange.delete", exchange=slip.own, if_unused=True),
    ),
    "an internal exchange": Mistake(
        403,
        "ACCESS_REFUSED - cannot publish to internal exchange 'OWN.inner' in vhost '/'",
        (60, 40),
        lambda slip: (
            slip._replace(own=f"{slip.own}.inner").own_exchange(internal=True) + slip.publish(f"{slip.own}.inner")
        ),
    ),
    "no transaction": Mistake(
        406,
        "PRECONDITION_FAILED - channel is not transactional",
        (90, 20),
        lambda slip: slip.method("tx.commit"),
    ),
    "a transaction behind confirms": Mistake(
        406,
        "PRECONDITION_FAILED - cannot switch from confirm to tx mode",
        (90, 10),
        lambda slip: slip.method("tx.select"),
    ),
    "nobody to reply to": Mistake(
        406,
        "PRECONDITION_FAILED - fast reply consumer does not exist",
        (60, 40),
        lambda slip: slip.publish("", slip.queue, reply_to="amq.rabbitmq.reply-to"),
    ),
    "another user": Mistake(
        406,
        "PRECONDITION_FAILED - user_id property set to 'other' but authenticated user was 'guest'",
        (60, 40),
        lambda slip: slip.publish("", slip.queue, user_id="other"),
    ),
    "no number": Mistake(
        406,
        "PRECONDITION_FAILED - invalid expiration 'soon': no_integer",
        (60, 40),
        lambda slip: slip.publish("", slip.queue, expiration="soon"),
    ),
}
#: Of a client that has as many channels as it agreed to.
MORE_CHANNELS = "more channels than agreed"
#: What closes the connection.
OF_CONNECTION = {
    "a heartbeat on a channel": Mistake(
        505, "UNEXPECTED_FRAME - type 8, all octets = <<>>", (0, 0), lambda slip: frame(HEARTBEAT, slip.channel, b"")
    ),
    "an ack instead of a body": Mistake(
        505,
        "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead",
        (60, 40),
        lambda slip: publish_method(slip.channel, "", slip.queue) + settle(80, slip.channel, 1, 0),
    ),
    "a body without a header": Mistake(
        505,
        "UNEXPECTED_FRAME - expected method frame, got non method frame instead",
        (0, 0),
        lambda slip: frame(BODY, slip.channel, b"body"),
    ),
    "a channel that is not open": Mistake(
        504,
        "CHANNEL_ERROR - expected 'channel.open'",
        (60, 10),
        lambda slip: method_frame(77, "basic.qos", prefetch_count=1),
    ),
    "a channel that is open": Mistake(
        504, "CHANNEL_ERROR - second 'channel.open' seen", (20, 10), lambda slip: slip.method("channel.open")
    ),
    MORE_CHANNELS: Mistake(
        530,
        "NOT_ALLOWED - number of channels opened (1) has reached the negotiated channel_max (1)",
        (0, 0),
        lambda slip: method_frame(77, "channel.open"),
    ),
    "a method of the broker": Mistake(
        503,
        "COMMAND_INVALID - unimplemented method",
        (50, 11),
        lambda slip: slip.method("queue.declare-ok", queue="", message_count=0, consumer_count=0),
    ),
    "a tag in use": Mistake(
        530,
        "NOT_ALLOWED - attempt to reuse consumer tag 'one'",
        (60, 20),
        lambda slip: slip.own_queue() + slip.consume("one") + slip.consume("one"),
    ),
    "recover without requeue": Mistake(
        540, "NOT_IMPLEMENTED - requeue=false", (60, 110), lambda slip: slip.method("basic.recover", requeue=False)
    ),
    "a frame of no type": Mistake(501, "FRAME_ERROR - type 99,", (0, 0), lambda slip: frame(99, slip.channel, b"abc")),
    "a frame that is too large": Mistake(
        501,
        "FRAME_ERROR - type 3, all octets = <<>>: {frame_too_large,",
        (0, 0),
        lambda slip: frame(BODY, slip.channel, bytes(slip.frame_max + 1)),
    ),
    "a method without its end": Mistake(
        501, "FRAME_ERROR - type 1,", (0, 0), lambda slip: _with_wrong_end(publish_method(slip.channel, "", slip.queue))
    ),
    "a publish without its end": Mistake(
        501,
        "FRAME_ERROR - type 1,",
        (0, 0),
        lambda slip: _with_wrong_end(publish_method(slip.channel, "", slip.queue)) + _whole(slip),
    ),
    "a header without its end": Mistake(
        501,
        "FRAME_ERROR - type 2,",
        (0, 0),
        lambda slip: (
            publish_method(slip.channel, "", slip.queue)
            + _with_wrong_end(content(slip.channel, properties(persistent=False), b"", slip.frame_max))
        ),
    ),
    "a body without its end": Mistake(
        501,
        "FRAME_ERROR - type 3,",
        (0, 0),
        lambda slip: publish_method(slip.channel, "", slip.queue) + _with_wrong_end(_whole(slip)),
    ),
}
CODES = tuple({mistake.code for mistake in OF_CONNECTION.values()})


def _with_wrong_end(octets: bytes) -> bytes:
    """The last frame ends with another octet than all do."""
    assert octets[-1] == FRAME_END
    return octets[:-1] + b"\0"


def _whole(slip: Slip) -> bytes:
    return content(slip.channel, properties(persistent=False), b"body", slip.frame_max)
