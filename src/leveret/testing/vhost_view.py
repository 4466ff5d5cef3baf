"""One virtual host of a test broker, looked at and handled behind its clients' backs."""

import json as json_module
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import trio

from ..engine import (
    PLAIN,
    Envelope,
    Event,
    Field,
    FieldTable,
    Message,
    PropertyValue,
    Queue,
    VirtualHost,
    encode_header,
    publish_by_name,
    scan_properties,
)
from .assertions import _UNSAID, Body, Expected, publish_failure, queue_failure
from .blocked import BlockedSnapshot, blocked_failure, blocked_of
from .history import HistoryEvent, PublishedMessage, Record
from .host import Host
from .loop_thread import result_of, turns_of_this_loop
from .pending import pending_of
from .queue_surgery import take_ready
from .snapshots import MessageSnapshot, Properties, QueueSnapshot, message_of, snapshot_of

T = TypeVar("T")


class NotSettled(AssertionError):
    """Something is still to be done after the time that was given; the text lists it."""


class VirtualHostView:
    """What a test may know and do in one virtual host. Everything clients have sent by now is taken into account."""

    def __init__(self, broker: Host, name: str) -> None:
        self._broker = broker
        self.name = name

    @property
    def url(self) -> str:
        """For clients."""
        return f"amqp://guest:guest@127.0.0.1:{self._broker.port}/{quote(self.name, safe='')}"

    def __repr__(self) -> str:
        return f"<VirtualHostView {self.name!r}>"

    # -- looking ----------------------------------------------------------------------------------------------------

    def queue(self, name: str) -> QueueSnapshot:
        """A picture of a queue as it is now. Raises: LookupError."""
        return self._ask(lambda vhost: snapshot_of(_find(vhost, name), self._broker.edge.clock))

    def queues(self) -> tuple[QueueSnapshot, ...]:
        """All queues, in order of their declaration."""
        return self._ask(
            lambda vhost: tuple(snapshot_of(queue, self._broker.edge.clock) for queue in vhost.queues.values())
        )

    def published(
        self, exchange: str | None = None, routing_key: str | None = None, *, copies: bool = False
    ) -> Record[PublishedMessage]:
        """What clients (and `inject`) published, oldest first; None: any. `copies`: also what was dead-lettered."""

        def look(vhost: VirtualHost) -> Record[PublishedMessage]:
            every = self._broker.recorder.published(self.name, copies=copies)
            return Record(
                [
                    message
                    for message in every
                    if exchange in (None, message.exchange) and routing_key in (None, message.routing_key)
                ],
                every.dropped,
            )

        return self._ask(look)

    def history(self, *kinds: str, queue: str | None = None, message: int | None = None) -> Record[HistoryEvent]:
        """What happened, oldest first: of these kinds (none: all), to one queue or message (None: any)."""

        def wanted(event: Event) -> bool:
            return (
                event.vhost == self.name
                and (not kinds or event.kind.value in kinds)
                and (queue is None or event.subject == queue)
            )

        return self._ask(lambda vhost: self._broker.recorder.events(wanted, message))

    def blocked(self) -> tuple[BlockedSnapshot, ...]:
        """Connections whose publishes are held for want of room: for what, and since when; the longest first."""
        return self._ask(lambda vhost: blocked_of(self._broker.edge, vhost.name))

    # -- asserting --------------------------------------------------------------------------------------------------

    def assert_published(
        self,
        exchange: str | None = None,
        routing_key: str | None = None,
        body: Body = _UNSAID,
        *,
        headers: Mapping[str, Any] | None = None,
        count: int | None = None,
        within: float = 0,
        **properties: Any,
    ) -> PublishedMessage | None:
        """That a message like this was published (`count`: exactly so many); what is not given may be anything.

        `body`: bytes, text, or what its JSON should be. `properties`: by name, as in `Properties`. `within`: wait so
        many real seconds for it. Returns: the newest such message; None with `count=0`. Raises: AssertionError.
        """
        expected = Expected(exchange, routing_key, body, headers or {}, _known(properties))

        def look() -> tuple[bool, Sequence[PublishedMessage], list[PublishedMessage], int]:
            every = self._broker.recorder.published(self.name, copies=False)
            like = [message for message in every if not expected.differences(message)]
            return (len(like) == count if count is not None else bool(like)), every, like, every.dropped

        is_right, every, like, dropped = self._broker.ask_until(look, lambda found: found[0], within)
        if not is_right:
            raise AssertionError(publish_failure(expected, count, every, len(like), dropped))
        return like[-1] if like else None

    def assert_queue(
        self,
        name: str,
        *,
        ready: "int | Sequence[Body] | None" = None,
        unacked: "int | Sequence[Body] | None" = None,
        scheduled: "int | Sequence[Body] | None" = None,
        consumers: int | None = None,
        within: float = 0,
    ) -> QueueSnapshot:
        """That a queue holds so many messages, or these bodies in this order. Raises: AssertionError, LookupError.

        `within`: wait so many real seconds until it does.
        """
        expected = {"ready": ready, "unacked": unacked, "scheduled": scheduled}

        def look() -> tuple[QueueSnapshot, str]:
            vhost = self._broker.edge.broker.virtual_hosts.get(self.name)
            snapshot = snapshot_of(_find(vhost, name), self._broker.edge.clock)
            return snapshot, queue_failure(snapshot, expected, consumers)

        snapshot, failure = self._broker.ask_until(look, lambda found: not found[1], within)
        if failure:
            raise AssertionError(failure)
        return snapshot

    def assert_blocked(
        self,
        destination: str = "",
        *,
        connection: str = "",
        limit: str | None = None,
        count: int | None = None,
        within: float = 0,
    ) -> tuple[BlockedSnapshot, ...]:
        """That publishes of a connection are held (`count`: of exactly so many connections; 0: of none).

        `destination`, `connection`: part of the name. `limit`: as in `BlockedSnapshot`. `within`: wait so many real
        seconds for it. Returns: those that are. Raises: AssertionError.
        """
        edge = self._broker.edge

        def look() -> tuple[bool, tuple[BlockedSnapshot, ...], str]:
            every = blocked_of(edge, self.name)
            like = tuple(one for one in every if one.is_like(destination, connection, limit))
            if len(like) == count if count is not None else like:
                return True, like, ""
            wanted = f"{'a connection' if count is None else f'{count} connections'} to be blocked"
            parts = (("by", destination), ("called", connection), ("for the limit", limit or ""))
            wanted += "".join(f" {word} {value!r}" for word, value in parts if value)
            return False, like, blocked_failure(every, wanted, edge)

        is_right, like, failure = self._broker.ask_until(look, lambda found: found[0], within)
        if not is_right:
            raise AssertionError(failure)
        return like

    # -- doing ------------------------------------------------------------------------------------------------------

    def inject(
        self,
        exchange: str = "",
        routing_key: str = "",
        body: bytes | str = b"",
        *,
        json: Any = None,
        headers: Mapping[str, Any] | None = None,
        **properties: Any,
    ) -> bool:
        """Publish a message as if a client had. `json`: instead of a body. Returns: whether a queue took it.

        Raises: LookupError when there is no such exchange; TypeError for an unknown property.
        """
        if json is not None:
            body = json_module.dumps(json).encode()
            properties.setdefault("content_type", "application/json")
        raw = body.encode() if isinstance(body, str) else body
        known = {name: _wire(value) for name, value in _known(properties).items()}
        if headers:
            known["headers"] = _table(headers)
        header = encode_header(len(raw), known)

        def publish(vhost: VirtualHost) -> bool:
            if exchange not in vhost.exchanges:
                raise LookupError(f"no exchange {exchange!r} in virtual host {self.name!r}")
            envelope = Envelope(exchange, routing_key, scan_properties(header[12:]))
            outcome = publish_by_name(vhost, envelope, [PLAIN.join(header, raw)])
            self._broker.edge.end_turn()
            return not outcome.unroutable and not outcome.refused

        return self._ask(publish)

    def remove(
        self, queue: str, which: "Callable[[MessageSnapshot], bool] | int | None" = None
    ) -> tuple[MessageSnapshot, ...]:
        """Take messages out of a queue's ready and scheduled ones: by id, by a condition, or (None) all of them.

        Returns: what was taken. Raises: LookupError.
        """

        def is_meant(message: Message, due_ns: int | None = None) -> bool:
            if which is None or isinstance(which, int):
                return which is None or which == message.id
            return which(message_of(message, due_ns))

        def take(vhost: VirtualHost) -> tuple[MessageSnapshot, ...]:
            found = _find(vhost, queue)
            gone = take_ready(found, is_meant)
            waiting = [entry for entry in found.scheduled.entries() if is_meant(entry[1], entry[0])]
            taken = (*map(message_of, gone), *(message_of(message, due_ns) for due_ns, message in waiting))
            for _, message in waiting:
                found.cancel_scheduled(message.id)
            self._broker.edge.end_turn()
            return taken

        return self._ask(take)

    # -- waiting ----------------------------------------------------------------------------------------------------

    def settled(self, timeout: float = 5.0, *, ignore: Sequence[str] = (), due: bool = True) -> None:
        """Wait until nothing is ready, unacked, in flight or (`due`) scheduled, and the broker is quiet.

        `timeout`: real seconds. `ignore`: queues that may hold messages, wildcards `*` allowed (a dead-letter queue).
        Raises: NotSettled, which prints what is pending; WouldBlockTheLoop.
        """
        self._broker.thread.wait(self._settled(timeout, ignore, due), "settled")

    async def settled_async(self, timeout: float = 5.0, *, ignore: Sequence[str] = (), due: bool = True) -> None:
        """`settled` for trio and asyncio."""
        await result_of(self._broker.thread.submit(self._settled(timeout, ignore, due)))

    def _settled(self, timeout: float, ignore: Sequence[str], due: bool) -> Callable[[], Awaitable[None]]:
        from fnmatch import fnmatchcase

        edge, turns = self._broker.edge, turns_of_this_loop()

        def is_ignored(name: str) -> bool:
            return any(fnmatchcase(name, pattern) for pattern in ignore)

        async def wait() -> None:
            with trio.move_on_after(timeout):
                while True:
                    await edge.quiet(turns)
                    seen = edge.activity
                    if not pending_of(edge, self.name, is_ignored, due):
                        return
                    if edge.activity == seen:
                        await edge.happened()
            pending = pending_of(edge, self.name, is_ignored, due)
            if pending:
                text = "\n  ".join(pending)
                raise NotSettled(f"virtual host {self.name!r} is not settled after {timeout:g} s:\n  {text}")

        return wait

    # -- helpers ----------------------------------------------------------------------------------------------------

    def _ask(self, function: Callable[[VirtualHost], T]) -> T:
        def look() -> T:
            vhost = self._broker.edge.broker.virtual_hosts.get(self.name)
            if vhost is None:
                raise LookupError(f"no virtual host {self.name!r}")
            return function(vhost)

        return self._broker.ask(look)


def _find(vhost: VirtualHost | None, name: str) -> Queue:
    if vhost is None:
        raise LookupError("the virtual host is gone")
    queue = vhost.queues.get(name)
    if queue is None:
        from difflib import get_close_matches

        near = get_close_matches(name, vhost.queues, 1)
        hint = f", did you mean {near[0]!r}?" if near else ""
        there = ", ".join(map(repr, vhost.queues)) or "none"
        raise LookupError(f"no queue {name!r} in virtual host {vhost.name!r}{hint} (there are: {there})")
    return queue


def _known(properties: Mapping[str, Any]) -> dict[str, Any]:
    for name in properties:
        if name not in Properties.__dataclass_fields__ or name == "headers":
            from difflib import get_close_matches

            near = get_close_matches(name, Properties.__dataclass_fields__, 1)
            raise TypeError(f"unknown property {name!r}" + (f", did you mean {near[0]!r}?" if near else ""))
    return dict(properties)


def _wire(value: Any) -> PropertyValue:
    return value.encode() if isinstance(value, str) else value


def _table(values: Mapping[str, Any]) -> FieldTable:
    return {key: _field(value) for key, value in values.items()}


def _field(value: Any) -> Field:
    """A Python value with the tag that clients give it."""
    if isinstance(value, bool):
        return Field("t", value)
    if isinstance(value, int):
        return Field("I" if -(2**31) <= value < 2**31 else "l", value)
    if isinstance(value, float):
        return Field("d", value)
    if isinstance(value, bytes):
        return Field("x", value)
    if isinstance(value, Mapping):
        return Field("F", _table(value))
    if isinstance(value, list | tuple):
        return Field("A", [_field(item) for item in value])
    return Field("V", None) if value is None else Field("S", str(value).encode())
