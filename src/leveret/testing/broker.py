"""The object that `start_broker` yields: a handle for tests on a running broker."""

import json as json_module
from collections.abc import Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from socket import socket
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import trio

from ..engine import (
    NATIVE,
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
from .broker_assertions import BrokerAssertions, check_exchange, find_queue
from .clock import TestClock
from .engine_clock import ClockMode
from .history import HistoryEvent, PublishedMessage, Record, Recorder
from .leases import LeaseSnapshot, check_leased, leases_in
from .loop_thread import TIMEOUT_S, LoopThread, result_of, turns_of_this_loop
from .nearest_names import nearest_names
from .options import BrokerOptionsError, reachable
from .pending import leaks_of, pending_of
from .plain_form import plain_message, plain_queue
from .queue_surgery import take_ready
from .snapshots import MessageSnapshot, QueueSnapshot, message_of, snapshot_of
from .typos import CLOCKS, KINDS, check_open_name, check_word, missing
from .wire_values import known_properties, wire_property, wire_table

# Imported when the first broker starts: test runs that start none save 25 ms.
if TYPE_CHECKING:
    from .faults import Faults
    from .recording import Recording, Replay
    from .runtime import WatchedRuntime

T = TypeVar("T")
#: Arguments of `inject` besides the names of properties.
_KEYWORDS = ("exchange", "routing_key", "body", "json", "headers", "vhost")


class NotSettled(AssertionError):
    """The virtual host was not settled in time; the text lists the unfinished work."""


@nearest_names
class RunningBroker(BrokerAssertions):
    """A broker on a real socket, in its own thread. Its methods use the default virtual host, or the given `vhost`.

    Methods that do not wait for clients (`queue`, `published`, `inject`, `faults`, `reset`, ...) may be called from
    anywhere, also from event loops. Methods that wait for clients have a variant for event loops, named `..._async`.
    Before each call the broker handles all that clients have sent.
    """

    @property
    def thread(self) -> LoopThread:
        return self.host.thread

    @property
    def runtime(self) -> "WatchedRuntime":
        return self.host.runtime

    @property
    def clock(self) -> TestClock:
        return self.host.clock

    @property
    def recorder(self) -> Recorder:
        return self.host.recorder

    def ask(self, function: Callable[[], T]) -> T:
        """Call a function in the broker's loop, after all input of clients so far is handled."""
        return self.host.ask(function)

    @cached_property
    def faults(self) -> "Faults":
        """Faults that a test can cause."""
        from .faults import Faults

        return Faults(self)

    # -- life -------------------------------------------------------------------------------------------------------

    def start(self) -> "RunningBroker":
        """Start the broker. It accepts connections when the method returns."""
        try:
            self.thread.begin().result(TIMEOUT_S)
        except BaseException:
            self.thread.join()
            raise
        return self

    def stop(self) -> None:
        """Close the connections and stop; no thread, socket or file is left. Idempotent."""
        self.thread.end().result(TIMEOUT_S)
        self.thread.join()

    @property
    def port(self) -> int:
        return self.runtime.port

    @property
    def url(self) -> str:
        """The URL for clients, with the default virtual host."""
        self._create_default()
        host = reachable(self.runtime.options.host)
        return f"amqp://guest:guest@{host}:{self.port}/{quote(self.default_vhost, safe='')}"

    @property
    def management_url(self) -> str:
        """The URL of RabbitMQ's HTTP API, for `start_broker(management=True)`; it ends with a slash."""
        return _url_of(self.runtime.console_listener, "console")

    @property
    def metrics_url(self) -> str:
        """The URL of the metrics for Prometheus, for `start_broker(management=True)`."""
        return _url_of(self.runtime.metrics_listener, "metrics") + "metrics"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on port {self.port}, {self.clock.mode} time>"

    # -- virtual hosts ----------------------------------------------------------------------------------------------

    def vhost(self, name: str | None = None) -> "BrokerAt":
        """This broker with another default virtual host, created if it does not exist; None: the same one."""
        wanted = self.default_vhost if name is None else name
        if wanted not in self.runtime.broker.virtual_hosts:
            self.ask(lambda: self.runtime.broker.virtual_hosts.create(wanted))
        return BrokerAt(self.host, wanted)

    def at(self, vhost: str) -> "BrokerAt":
        """As `vhost`."""
        return self.vhost(vhost)

    def known_vhost(self, name: str | None) -> str:
        if name is None:
            self._create_default()
        return super().known_vhost(name)

    def _create_default(self) -> None:
        self.vhost()

    def reset(self, *, clock: ClockMode | None = None) -> None:
        """Reset the broker to its configuration: connections are reset, history and faults cleared; the port stays.

        Time starts again in the mode of the broker's start, or in `clock`. O(open connections), however many objects
        were declared.
        Raises: ValueError.
        """
        if clock is not None:
            check_word("clock", clock, CLOCKS)

        def again() -> None:
            self.clock.stop_autojumps()
            self.runtime.faults.clear(self.runtime)
            self.runtime.tap = None
            self.runtime.reset(clock or self.host.options.clock)

        self.default_vhost = "/"
        self.ask(again)

    def restart(self, *, durable: bool = True) -> None:
        """Stop the broker without closing handshakes, and start it again at once; see `faults.restart`."""
        self.faults.restart(durable=durable, vhost=None).stop()

    def leaks(self, *, queues: bool = False, vhost: str | None = None, timeout: float = 0.2) -> list[str]:
        """Connections that are still open, with their consumers and unacknowledged deliveries; one line each.

        `queues`: also the queues left in virtual hosts that stay. `timeout`: real seconds to wait for clients that are
        about to close.
        """
        name = self.known_vhost(vhost)

        async def look() -> list[str]:
            await self.runtime.catch_up()
            found = leaks_of(self.runtime, name, queues=queues)
            if self.runtime.endpoints_of(name):
                with trio.move_on_after(timeout):
                    while self.runtime.endpoints_of(name):
                        await self.runtime.wait_for_activity()
                        await self.runtime.catch_up()
                found = leaks_of(self.runtime, name, queues=queues)
            return found

        return self.thread.submit(look).result()

    # -- inspection ---------------------------------------------------------------------------------------------------

    def queue(self, name: str, *, vhost: str | None = None) -> QueueSnapshot:
        """A snapshot of a queue. Raises: LookupError."""
        return self._ask(vhost, lambda host: snapshot_of(find_queue(host, name)))

    def queues(self, *, vhost: str | None = None) -> tuple[QueueSnapshot, ...]:
        """All queues, in order of their declaration."""
        return self._ask(vhost, lambda host: tuple(snapshot_of(queue) for queue in host.queues.values()))

    def published(
        self,
        exchange: str | None = None,
        routing_key: str | None = None,
        *,
        copies: bool = False,
        vhost: str | None = None,
    ) -> Record[PublishedMessage]:
        """The messages that clients and `inject` published, oldest first. `copies`: also dead letters.

        `exchange`, `routing_key`: only messages with these; None: any.

        Raises: LookupError when the exchange's name is misspelled.
        """

        def look(host: VirtualHost) -> Record[PublishedMessage]:
            every = self.recorder.published(host.name, copies=copies)
            found = [
                message
                for message in every
                if exchange in (None, message.exchange) and routing_key in (None, message.routing_key)
            ]
            if not found:
                check_exchange(exchange, host, every)
            return Record(found, every.dropped)

        return self._ask(vhost, look)

    def history(
        self, *kinds: str, queue: str | None = None, message: int | None = None, vhost: str | None = None
    ) -> Record[HistoryEvent]:
        """The events of these kinds (none given: all) of one queue or message (None: any), oldest first.

        Raises: ValueError for an unknown kind; LookupError for a queue's name that is misspelled.
        """
        for kind in kinds:
            check_word("history", kind, KINDS)
        name = self.known_vhost(vhost)

        def wanted(event: Event) -> bool:
            return (
                event.vhost == name
                and (not kinds or event.kind.value in kinds)
                and (queue is None or event.subject == queue)
            )

        def look(host: VirtualHost) -> Record[HistoryEvent]:
            found = self.recorder.events(wanted, message)
            if not found:
                check_open_name("queue", queue, self.recorder.subjects(name) | host.queues.keys())
            return found

        return self._ask(vhost, look)

    def plain(self, *, vhost: str | None = None) -> dict[str, Any]:
        """The published messages and the content of queues, as plain values that are the same in each run.

        For snapshot tests (syrupy, inline-snapshot) and for JSON: see `plain_form`.
        """

        def look(host: VirtualHost) -> dict[str, Any]:
            published = self.recorder.published(host.name, copies=False)
            queues = [plain_queue(snapshot_of(queue)) for queue in host.queues.values()]
            return {"published": [plain_message(message) for message in published], "queues": queues}

        return self._ask(vhost, look)

    def blocked(self, *, vhost: str | None = None) -> tuple[BlockedSnapshot, ...]:
        """Connections whose publishes wait for room, with the limit and the start of the wait; the longest first."""
        return self._ask(vhost, lambda host: blocked_of(self.runtime, host.name))

    def leases(self, queue: str | None = None, *, vhost: str | None = None) -> tuple[LeaseSnapshot, ...]:
        """The leases of a queue by deadline; None: of all queues, queue by queue.

        Raises: LookupError: no such queue; ValueError: the queue is not leased.
        """

        def look(host: VirtualHost) -> tuple[LeaseSnapshot, ...]:
            runtime = self.runtime
            if queue is None:
                return tuple(lease for one in host.queues.values() for lease in leases_in(one, runtime))
            leased = find_queue(host, queue)
            check_leased(leased)
            return leases_in(leased, runtime)

        return self._ask(vhost, look)

    def has_consumer(self, queue: str, *, within: float = 0, vhost: str | None = None) -> bool:
        """Whether the queue exists and has a consumer, now or within these real seconds."""

        name = self.known_vhost(vhost)

        def look() -> bool:
            host = self.runtime.broker.virtual_hosts.get(name)
            found = host.queues.get(queue) if host is not None else None
            return found is not None and bool(found.consumers)

        return self.host.ask_until(look, lambda there: there, within)

    # -- changes ------------------------------------------------------------------------------------------------------

    def inject(
        self,
        exchange: str = "",
        routing_key: str = "",
        body: bytes | str = b"",
        *,
        json: Any = None,
        headers: Mapping[str, Any] | None = None,
        vhost: str | None = None,
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

        def publish(host: VirtualHost) -> bool:
            if exchange not in host.exchanges:
                raise missing("exchange", exchange, host.exchanges, f" in virtual host {host.name!r}")
            envelope = Envelope(exchange, routing_key, scan_properties(header[12:]))
            outcome = publish_by_name(host.context, envelope, [NATIVE.join(header, raw)])
            self.runtime.end_turn()
            if outcome.unroutable and (host.exchanges[exchange].bindings if exchange else routing_key):
                raise _leads_nowhere(host, exchange, routing_key)
            return not outcome.unroutable and not outcome.refused

        return self._ask(vhost, publish)

    def remove(
        self, queue: str, which: "Callable[[MessageSnapshot], bool] | int | None" = None, *, vhost: str | None = None
    ) -> tuple[MessageSnapshot, ...]:
        """Remove ready and scheduled messages of a queue: by id, by a condition, or (None) all.

        Returns: the removed messages. Raises: LookupError; ValueError for messages of a stream.
        """

        def is_meant(message: Message, due_ns: int | None = None) -> bool:
            if which is None or isinstance(which, int):
                return which is None or which == message.id
            return which(message_of(message, due_ns))

        def take(host: VirtualHost) -> tuple[MessageSnapshot, ...]:
            found = find_queue(host, queue)
            gone = take_ready(found, is_meant)
            waiting = [entry for entry in found.scheduled.entries() if is_meant(entry[1], entry[0])]
            taken = (*map(message_of, gone), *(message_of(message, due_ns) for due_ns, message in waiting))
            for _, message in waiting:
                scheduled.cancel(found, message.id)
            self.runtime.end_turn()
            return taken

        return self._ask(vhost, take)

    # -- waiting ----------------------------------------------------------------------------------------------------

    def settled(
        self, timeout: float = 5.0, *, ignore: Sequence[str] = (), due: bool = True, vhost: str | None = None
    ) -> None:
        """Wait until no message is ready, unacknowledged, in flight or scheduled, and the broker is quiet.

        `timeout`: real seconds. `due=False`: scheduled messages may be left. `ignore`: queues that may hold messages
        (a dead-letter queue), wildcards `*` allowed.
        Raises: NotSettled, which prints the unfinished work; WouldBlockTheLoop.
        """
        __tracebackhide__ = True
        pending = self.thread.wait(self._settled(timeout, ignore, due, vhost), "settled")
        if pending:
            raise NotSettled(pending)

    async def settled_async(
        self, timeout: float = 5.0, *, ignore: Sequence[str] = (), due: bool = True, vhost: str | None = None
    ) -> None:
        """`settled` for trio and asyncio."""
        __tracebackhide__ = True
        pending = await result_of(self.thread.submit(self._settled(timeout, ignore, due, vhost)))
        if pending:
            raise NotSettled(pending)

    def _settled(
        self, timeout: float, ignore: Sequence[str], due: bool, vhost: str | None
    ) -> Callable[[], Awaitable[str]]:
        """A function that waits, and returns why the virtual host is not settled; "": it is."""
        # A string is a sequence of letters, too: it means one pattern.
        patterns = [ignore] if isinstance(ignore, str) else ignore
        runtime, turns, name = self.runtime, turns_of_this_loop(), self.known_vhost(vhost)

        def is_ignored(queue: str) -> bool:
            return any(fnmatchcase(queue, pattern) for pattern in patterns)

        async def wait() -> str:
            with trio.move_on_after(timeout):
                while True:
                    await runtime.quiet(turns)
                    seen = runtime.activity
                    if not pending_of(runtime, name, is_ignored, due):
                        return ""
                    if runtime.activity == seen:
                        await runtime.wait_for_activity()
            pending = pending_of(runtime, name, is_ignored, due)
            if not pending:
                return ""
            text = "\n  ".join(pending)
            return f"virtual host {name!r} is not settled after {timeout:g} s:\n  {text}"

        return wait

    # -- recording --------------------------------------------------------------------------------------------------

    def record(self, path: str) -> "Recording":
        """Record what clients send into a file, until the `with` block ends; see `Recording`."""
        from .recording import Recording

        return Recording(self.host, path)

    def replay(self, path: str) -> "Replay":
        """Replay a recording at virtual speed; see `Replay`."""
        from .recording import Replay

        return Replay(self.host, path)

    # -- helpers ----------------------------------------------------------------------------------------------------

    def _ask(self, vhost: str | None, function: Callable[[VirtualHost], T]) -> T:
        """Call a function with a virtual host in the broker's loop. Raises: LookupError."""
        name = self.known_vhost(vhost)

        def look() -> T:
            found = self.runtime.broker.virtual_hosts.get(name)
            if found is None:
                raise LookupError(f"no virtual host {name!r}")
            return function(found)

        return self.ask(look)


class BrokerAt(RunningBroker):
    """A running broker with another default virtual host, whose name is `name`."""

    @property
    def name(self) -> str:
        return self.default_vhost

    def _create_default(self) -> None:
        """No effect: a virtual host that was deleted does not come back."""

    def reset(self, *, clock: ClockMode | None = None) -> None:
        """Reset this virtual host: no connections, history or faults of it, and only the configuration's objects.

        Other virtual hosts and the time are not reset.

        Raises: ValueError for another mode of the clock, which all virtual hosts share.
        """
        if clock not in (None, self.clock.mode):
            raise ValueError(f"reset: {clock!r}: the clock belongs to the whole broker: reset the broker")
        self._clear(self.runtime.reset_vhost)

    def delete(self) -> None:
        """Delete this virtual host with its content."""
        self._clear(self.runtime.remove_vhost)

    def _clear(self, how: Callable[[str], Awaitable[None]]) -> None:
        async def clear() -> None:
            await self.runtime.catch_up()
            self.known_vhost(self.name)
            await how(self.name)
            self.recorder.forget(self.name)

        self.thread.submit(clear).result()


def _url_of(listener: socket | None, what: str) -> str:
    if listener is None:
        raise BrokerOptionsError(f"this broker has no {what}, expected start_broker(management=True)")
    return f"http://127.0.0.1:{listener.getsockname()[1]}/"


def _leads_nowhere(vhost: VirtualHost, exchange: str, routing_key: str) -> LookupError:
    """The error for a message that reaches no queue, with the nearest binding key."""
    where = f" in virtual host {vhost.name!r}"
    if not exchange:
        return missing("queue", routing_key, vhost.queues, where)
    keys = dict.fromkeys(binding.routing_key for binding in vhost.exchanges[exchange].bindings.values())
    hint, listed = nearest(routing_key, keys), ", ".join(map(repr, keys)) or "none"
    return LookupError(
        f"exchange {exchange!r}{where} routes no message with key {routing_key!r} to a queue{hint} "
        f"(its bindings have: {listed})"
    )
