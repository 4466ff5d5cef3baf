"""One virtual host of a test broker: inspection and changes without a client."""

import json as json_module
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import trio

from ..engine import (
    PLAIN,
    Envelope,
    Event,
    Message,
    VirtualHost,
    encode_header,
    publish_by_name,
    scan_properties,
    scheduled,
)
from ..settings.faults import nearest
from .blocked import BlockedSnapshot, blocked_of
from .broker_assertions import VirtualHostAssertions, find_queue
from .history import HistoryEvent, PublishedMessage, Record
from .leases import LeaseSnapshot, check_leased, leases_in
from .loop_thread import result_of, turns_of_this_loop
from .nearest_names import nearest_names
from .pending import pending_of
from .plain_form import plain_message, plain_queue
from .queue_surgery import take_ready
from .snapshots import MessageSnapshot, QueueSnapshot, message_of, snapshot_of
from .typos import check_kinds, check_open_name, missing
from .wire_values import known_properties, wire_property, wire_table

T = TypeVar("T")


#: Arguments of `inject` beside the names of properties.
_KEYWORDS = ("exchange", "routing_key", "body", "json", "headers", "vhost")


class NotSettled(AssertionError):
    """The virtual host was not settled in time; the text lists the unfinished work."""


@nearest_names
class VirtualHostView(VirtualHostAssertions):
    """What a test sees and changes in one virtual host. Before each call, the broker handles all that clients sent."""

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"amqp://guest:guest@127.0.0.1:{self._broker.port}/{quote(self.name, safe='')}"

    def __repr__(self) -> str:
        return f"<VirtualHostView {self.name!r}>"

    # -- inspection ---------------------------------------------------------------------------------------------------

    def queue(self, name: str) -> QueueSnapshot:
        """A snapshot of a queue. Raises: LookupError."""
        return self._ask(lambda vhost: snapshot_of(find_queue(vhost, name), self._broker.edge.clock))

    def queues(self) -> tuple[QueueSnapshot, ...]:
        """All queues, in order of their declaration."""
        return self._ask(
            lambda vhost: tuple(snapshot_of(queue, self._broker.edge.clock) for queue in vhost.queues.values())
        )

    def published(
        self, exchange: str | None = None, routing_key: str | None = None, *, copies: bool = False
    ) -> Record[PublishedMessage]:
        """The messages that clients (and `inject`) published, oldest first; None: any. `copies`: also dead letters.

        Raises: LookupError when the exchange's name is misspelled.
        """

        def look(vhost: VirtualHost) -> Record[PublishedMessage]:
            every = self._broker.recorder.published(self.name, copies=copies)
            found = [
                message
                for message in every
                if exchange in (None, message.exchange) and routing_key in (None, message.routing_key)
            ]
            if not found:
                self.check_exchange(exchange, vhost, every)
            return Record(found, every.dropped)

        return self._ask(look)

    def history(self, *kinds: str, queue: str | None = None, message: int | None = None) -> Record[HistoryEvent]:
        """The events of these kinds (none given: all) of one queue or message (None: any), oldest first.

        Raises: ValueError for an unknown kind; LookupError for a queue's name that is misspelled.
        """

        check_kinds(kinds)

        def wanted(event: Event) -> bool:
            return (
                event.vhost == self.name
                and (not kinds or event.kind.value in kinds)
                and (queue is None or event.subject == queue)
            )

        def look(vhost: VirtualHost) -> Record[HistoryEvent]:
            found = self._broker.recorder.events(wanted, message)
            if not found:
                check_open_name("queue", queue, self._broker.recorder.subjects(self.name) | vhost.queues.keys())
            return found

        return self._ask(look)

    def plain(self) -> dict[str, Any]:
        """The published messages and the content of queues, as plain values that are the same in each run.

        For snapshot tests (syrupy, inline-snapshot) and for JSON: see `plain_form`.
        """

        def look(vhost: VirtualHost) -> dict[str, Any]:
            clock = self._broker.edge.clock
            published = self._broker.recorder.published(self.name, copies=False)
            queues = [plain_queue(snapshot_of(queue, clock)) for queue in vhost.queues.values()]
            return {"published": [plain_message(message) for message in published], "queues": queues}

        return self._ask(look)

    def blocked(self) -> tuple[BlockedSnapshot, ...]:
        """Connections whose publishes wait for room, with the limit and the start of the wait; the longest first."""
        return self._ask(lambda vhost: blocked_of(self._broker.edge, vhost.name))

    def leases(self, queue: str | None = None) -> tuple[LeaseSnapshot, ...]:
        """The leases of a queue by deadline; None: of all queues, queue by queue.

        Raises: LookupError: no such queue; ValueError: the queue is not leased.
        """

        def look(vhost: VirtualHost) -> tuple[LeaseSnapshot, ...]:
            edge = self._broker.edge
            if queue is None:
                return tuple(lease for one in vhost.queues.values() for lease in leases_in(one, edge))
            there = find_queue(vhost, queue)
            check_leased(there)
            return leases_in(there, edge)

        return self._ask(look)

    def has_consumer(self, queue: str, *, within: float = 0) -> bool:
        """Whether the queue exists and has a consumer, now or within these real seconds."""

        def look() -> bool:
            vhost = self._broker.edge.broker.virtual_hosts.get(self.name)
            found = vhost.queues.get(queue) if vhost is not None else None
            return found is not None and bool(found.consumers)

        return self._broker.ask_until(look, lambda there: there, within)

    # -- changes ------------------------------------------------------------------------------------------------------

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
        """Publish a message as a client does. `json`: instead of a body.

        Returns: whether all queues took it; False: one refused it, because it is full, or nothing is bound to the
            exchange.
        Raises: LookupError when there is no such exchange or queue, or the exchange's bindings lead elsewhere (the
            message counts as published nevertheless); TypeError for an unknown property.
        """
        if json is not None:
            body = json_module.dumps(json).encode()
            properties.setdefault("content_type", "application/json")
        raw = body.encode() if isinstance(body, str) else body
        known = {name: wire_property(value) for name, value in known_properties(properties, beside=_KEYWORDS).items()}
        if headers:
            known["headers"] = wire_table(headers)
        header = encode_header(len(raw), known)

        def publish(vhost: VirtualHost) -> bool:
            if exchange not in vhost.exchanges:
                raise missing("exchange", exchange, vhost.exchanges, f" in virtual host {self.name!r}")
            envelope = Envelope(exchange, routing_key, scan_properties(header[12:]))
            outcome = publish_by_name(vhost.context, envelope, [PLAIN.join(header, raw)])
            self._broker.edge.end_turn()
            if outcome.unroutable and (vhost.exchanges[exchange].bindings if exchange else routing_key):
                raise _leads_nowhere(vhost, exchange, routing_key)
            return not outcome.unroutable and not outcome.refused

        return self._ask(publish)

    def remove(
        self, queue: str, which: "Callable[[MessageSnapshot], bool] | int | None" = None
    ) -> tuple[MessageSnapshot, ...]:
        """Remove ready and scheduled messages of a queue: by id, by a condition, or (None) all.

        Returns: the removed messages. Raises: LookupError; ValueError for messages of a stream.
        """

        def is_meant(message: Message, due_ns: int | None = None) -> bool:
            if which is None or isinstance(which, int):
                return which is None or which == message.id
            return which(message_of(message, due_ns))

        def take(vhost: VirtualHost) -> tuple[MessageSnapshot, ...]:
            found = find_queue(vhost, queue)
            gone = take_ready(found, is_meant)
            waiting = [entry for entry in found.scheduled.entries() if is_meant(entry[1], entry[0])]
            taken = (*map(message_of, gone), *(message_of(message, due_ns) for due_ns, message in waiting))
            for _, message in waiting:
                scheduled.cancel(found, message.id)
            self._broker.edge.end_turn()
            return taken

        return self._ask(take)

    def reset(self) -> None:
        """Reset this virtual host: no connections, objects or history. Other virtual hosts, and time, go on."""
        self._broker.thread.submit(self._clear(self._broker.edge.reset_vhost)).result()

    def delete(self) -> None:
        """Delete this virtual host with its content."""
        self._broker.thread.submit(self._clear(self._broker.edge.remove_vhost)).result()

    def _clear(self, how: Callable[[str], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        async def clear() -> None:
            await self._broker.edge.catch_up()
            self._broker.known_vhost(self.name)
            await how(self.name)
            self._broker.recorder.forget(self.name)

        return clear

    # -- waiting ----------------------------------------------------------------------------------------------------

    def settled(self, timeout: float = 5.0, *, ignore: Sequence[str] = (), due: bool = True) -> None:
        """Wait until no message is ready, unacknowledged, in flight or scheduled, and the broker is quiet.

        `timeout`: real seconds. `due=False`: scheduled messages may be left. `ignore`: queues that may hold messages
        (a dead-letter queue), wildcards `*` allowed.
        Raises: NotSettled, which prints the unfinished work; WouldBlockTheLoop.
        """
        __tracebackhide__ = True
        pending = self._broker.thread.wait(self._settled(timeout, ignore, due), "settled")
        if pending:
            raise NotSettled(pending)

    async def settled_async(self, timeout: float = 5.0, *, ignore: Sequence[str] = (), due: bool = True) -> None:
        """`settled` for trio and asyncio."""
        __tracebackhide__ = True
        pending = await result_of(self._broker.thread.submit(self._settled(timeout, ignore, due)))
        if pending:
            raise NotSettled(pending)

    def _settled(self, timeout: float, ignore: Sequence[str], due: bool) -> Callable[[], Awaitable[str]]:
        """A function that waits, and returns why the virtual host is not settled; "": it is."""
        from fnmatch import fnmatchcase

        # A string is a sequence of letters, too: it means one pattern.
        patterns = [ignore] if isinstance(ignore, str) else ignore
        edge, turns = self._broker.edge, turns_of_this_loop()

        def is_ignored(name: str) -> bool:
            return any(fnmatchcase(name, pattern) for pattern in patterns)

        async def wait() -> str:
            with trio.move_on_after(timeout):
                while True:
                    await edge.quiet(turns)
                    seen = edge.activity
                    if not pending_of(edge, self.name, is_ignored, due):
                        return ""
                    if edge.activity == seen:
                        await edge.wait_for_activity()
            pending = pending_of(edge, self.name, is_ignored, due)
            if not pending:
                return ""
            text = "\n  ".join(pending)
            return f"virtual host {self.name!r} is not settled after {timeout:g} s:\n  {text}"

        return wait

    # -- helpers ----------------------------------------------------------------------------------------------------

    def _ask(self, function: Callable[[VirtualHost], T]) -> T:
        def look() -> T:
            vhost = self._broker.edge.broker.virtual_hosts.get(self.name)
            if vhost is None:
                raise LookupError(f"no virtual host {self.name!r}")
            return function(vhost)

        return self._broker.ask(look)


def _leads_nowhere(vhost: VirtualHost, exchange: str, routing_key: str) -> LookupError:
    """The error for a message that reaches no queue, with the nearest binding key."""
    where = f" in virtual host {vhost.name!r}"
    if not exchange:
        return missing("queue", routing_key, vhost.queues, where)
    keys = dict.fromkeys(binding.routing_key for binding in vhost.exchanges[exchange].bindings.values())
    hint, there = nearest(routing_key, keys), ", ".join(map(repr, keys)) or "none"
    return LookupError(
        f"exchange {exchange!r}{where} leads no message with routing key {routing_key!r} to a queue{hint} "
        f"(its bindings have: {there})"
    )
