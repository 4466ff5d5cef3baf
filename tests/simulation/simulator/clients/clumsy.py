"""A publisher that makes mistakes: behind some publishes comes what the broker refuses, then more that is thrown away.

What was published before a mistake, in the same read or not, is published and confirmed before the close comes; what
stands behind it never is. So it is where the client itself closes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from leveret.interop.wire.raw_codec import Method, method_frame

from ..ledger import Broken
from .channel import Channel
from .client import FRAME_MAX, Client
from .knowledge import body_of, key_of, publisher_of
from .wire import content, properties, publish_method, settle


class Mistake(NamedTuple):
    """`octets`: of a channel and its queue. The close that comes names its code, text, and the method that failed."""

    code: int
    text: str
    method: tuple[int, int]
    octets: Callable[[int, str], bytes]


#: What closes the channel, as the behaviour page has it.
OF_CHANNEL = {
    "no such exchange": Mistake(
        404,
        "NOT_FOUND - no exchange 'no.such' in vhost '/'",
        (60, 40),
        lambda number, queue: publish_method(number, "no.such", "") + _empty(number),
    ),
    "unknown tag": Mistake(
        406,
        "PRECONDITION_FAILED - unknown delivery tag 1000000",
        (60, 80),
        lambda number, queue: settle(80, number, 1_000_000, 0),
    ),
    "no such queue": Mistake(
        404,
        "NOT_FOUND - no queue 'no.such' in vhost '/'",
        (50, 10),
        lambda number, queue: _declare(number, "no.such", passive=True),
    ),
    "nothing to consume": Mistake(
        404,
        "NOT_FOUND - no queue 'no.such' in vhost '/'",
        (60, 20),
        lambda number, queue: method_frame(number, "basic.consume", queue="no.such"),
    ),
    "nothing to bind": Mistake(
        404,
        "NOT_FOUND - no queue 'no.such' in vhost '/'",
        (50, 20),
        lambda number, queue: method_frame(number, "queue.bind", queue="no.such", exchange="amq.direct"),
    ),
    "a reserved name": Mistake(
        403,
        "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'",
        (50, 10),
        lambda number, queue: _declare(number, "amq.mine"),
    ),
}
#: What closes the connection.
OF_CONNECTION = {
    "a heartbeat on a channel": Mistake(
        505,
        "UNEXPECTED_FRAME - type 8, all octets = <<>>",
        (0, 0),
        lambda number, queue: b"\x08" + number.to_bytes(2, "big") + b"\0\0\0\0\xce",
    ),
    "an ack instead of a body": Mistake(
        505,
        "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead",
        (60, 40),
        lambda number, queue: publish_method(number, "", queue) + settle(80, number, 1, 0),
    ),
    "a channel that is not open": Mistake(
        504,
        "CHANNEL_ERROR - expected 'channel.open'",
        (60, 10),
        lambda number, queue: method_frame(77, "basic.qos", prefetch_count=1),
    ),
}
CODES = tuple({mistake.code for mistake in OF_CONNECTION.values()})


class Clumsy(Channel):
    """`options`: queue. Its publishes are transient, so that confirms do not wait for the disk."""

    connection_ends = CODES

    def __init__(self, client: Client, number: int, options: dict[str, Any], seed: int) -> None:
        super().__init__(client, number, options, seed)
        self._queue = client.world.plan.queue(options["queue"])
        self._published = 0  # over all connections
        self._tag = 0
        self._unconfirmed: dict[int, bytes] = {}
        self._expected: Mistake | None = None  # by which a close is to come
        self._sent_ns = 0  # the last batch
        self._is_ready = False

    def opened(self) -> None:
        self._tag = 0
        self.declare(self._queue, lambda _: None)
        self.ask("confirm.select", "confirm.select-ok", self._begin)

    def _begin(self, _: Method) -> None:
        self._is_ready = True

    def lost(self) -> None:
        self._is_ready = False
        self._expected = None
        self._unconfirmed.clear()

    # -- what it does -------------------------------------------------------------------------------------------------

    def act(self) -> None:
        if not self._is_ready or self._expected is not None or self.client.waiting:
            return
        chance, number = self.chance, self.number
        self._sent_ns = self.world.schedule.now_ns
        before = b"".join(self._publish(keeps=True) for _ in range(chance.randint(0, 8)))
        luck = chance.random()
        if luck < 0.6:
            self.send(before)
        elif luck < 0.9:
            name = chance.choice(list(OF_CHANNEL) * 3 + list(OF_CONNECTION))
            self.world.knowledge.happened[f"mistake: {name}"] += 1
            self._expected = (OF_CHANNEL | OF_CONNECTION)[name]
            behind = b"".join(self._publish(keeps=False) for _ in range(chance.randint(0, 4)))
            self.send(before + self._expected.octets(number, self._queue.name) + behind)
        elif luck < 0.97:
            self._is_ready = False
            self.send(before)
            self.ask("channel.close", "channel.close-ok", self._closed, reply_code=200, reply_text="bye")
        else:
            self.send(before)
            self.client.close()

    def _publish(self, *, keeps: bool) -> bytes:
        self._published += 1
        key = key_of(publisher_of(self.client.number, self.number, self.client.life), self._published)
        knowledge = self.world.knowledge
        knowledge.publish(key, 10)
        knowledge.operations += 1
        if keeps:
            self._tag += 1
            self._unconfirmed[self._tag] = key
        else:
            self.world.books.routing.never.add(key)
        head = content(self.number, properties(persistent=False), body_of(key, 10), FRAME_MAX)
        return publish_method(self.number, "", self._queue.name) + head

    # -- answers ------------------------------------------------------------------------------------------------------

    def confirmed(self, tag: int, multiple: bool, *, is_ack: bool) -> None:
        tags = [one for one in self._unconfirmed if one <= tag] if multiple else [tag]
        for one in tags:
            key = self._unconfirmed.pop(one, None)
            if key is None or (is_ack and key not in self.world.books.routing.seen):
                raise Broken(f"client {self.client.number} got a confirm for {one}, which was not published")

    def closed(self, code: int, text: str) -> None:
        self.connection_closed(code, text)
        self._check_confirmed("an error")

    def connection_closed(self, code: int, text: str) -> None:
        """Of publishes before an error of the connection nothing is said."""
        mistake, method = self._expected, self.client.closes
        if mistake is None or code != mistake.code or not text.startswith(mistake.text) or method != mistake.method:
            told = None if mistake is None else mistake[:3]
            raise Broken(f"client {self.client.number} was to be closed by {told}, and was: {code} {text} {method}")

    def said_goodbye(self) -> None:
        self._check_confirmed("the end of the connection")

    def _closed(self, _: Method) -> None:
        self._check_confirmed("the end of the channel")
        self.lost()
        self.client.open_channel(self.number)

    def _check_confirmed(self, what: str) -> None:
        """Unless they waited for the disk, for what was before them, when the broker closed."""
        if self._unconfirmed and self.world.knowledge.unsafe_ns < self._sent_ns:
            raise Broken(f"client {self.client.number}: {len(self._unconfirmed)} confirms did not come before {what}")


def _empty(number: int) -> bytes:
    return content(number, properties(persistent=False), b"", FRAME_MAX)


def _declare(number: int, queue: str, *, passive: bool = False) -> bytes:
    return method_frame(number, "queue.declare", queue=queue, passive=passive, durable=True, arguments={})
