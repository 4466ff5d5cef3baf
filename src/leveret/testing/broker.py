"""The object that `start_broker` yields: a handle for tests on a running broker."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import trio

from .assertions import _UNSAID, Contents
from .blocked import BlockedSnapshot
from .engine_clock import ClockMode
from .history import HistoryEvent, PublishedMessage, Record
from .host import Host
from .leases import LeaseSnapshot
from .loop_thread import TIMEOUT_S
from .matching import Body, Wanted
from .nearest_names import nearest_names
from .options import BrokerOptionsError
from .pending import leaks_of
from .snapshots import MessageSnapshot, QueueSnapshot
from .typos import CLOCKS, check_word
from .vhost_view import VirtualHostView

# Imported when the first broker starts: 25 ms that many test runs save.
if TYPE_CHECKING:
    from .faults import Faults
    from .recording import Recording, Replay


@nearest_names
class RunningBroker(Host):
    """A broker on a real socket, in its own thread.

    Methods that do not wait for clients (`queue`, `published`, `inject`, `faults`, `reset`, ...) may be called from
    anywhere, also from event loops. Methods that wait for clients have a variant for event loops, named `..._async`.
    """

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
    def url(self) -> str:
        """The URL for clients, with the default virtual host."""
        return self.vhost().url

    @property
    def management_url(self) -> str:
        """The URL of RabbitMQ's HTTP API, for `start_broker(management=True)`; it ends with a slash."""
        listener = self.edge.console_listener
        if listener is None:
            raise BrokerOptionsError("this broker has no console, expected start_broker(management=True)")
        return f"http://127.0.0.1:{listener.getsockname()[1]}/"

    @property
    def metrics_url(self) -> str:
        """The URL of the metrics for Prometheus, for `start_broker(management=True)`."""
        listener = self.edge.metrics_listener
        if listener is None:
            raise BrokerOptionsError("this broker has no metrics, expected start_broker(management=True)")
        return f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"

    def __repr__(self) -> str:
        return f"<RunningBroker on port {self.port}, {self.clock.mode} time>"

    # -- virtual hosts ----------------------------------------------------------------------------------------------

    def vhost(self, name: str | None = None) -> VirtualHostView:
        """A virtual host by name, created if it does not exist; None: the default one."""
        wanted = self.default_vhost if name is None else name
        if wanted not in self.edge.broker.virtual_hosts:
            self.ask(lambda: self.edge.broker.virtual_hosts.create(wanted))
        return VirtualHostView(self, wanted)

    def _there(self, name: str | None) -> VirtualHostView:
        """An existing virtual host, because a misspelt name must not create one. Raises: LookupError."""
        return self.vhost() if name is None else VirtualHostView(self, self.known_vhost(name))

    def at(self, vhost: str) -> "BrokerAt":
        """The same broker with another default virtual host, created if needed. Its `reset` resets only that host."""
        self.vhost(vhost)
        return BrokerAt(self, vhost)

    def reset(self, *, clock: ClockMode | None = None) -> None:
        """Reset the broker: connections are reset, declared objects deleted, history and faults cleared.

        Time starts again (`clock`: in another mode). The port stays. O(open connections), however many objects were
        declared.
        Raises: ValueError.
        """
        if clock is not None:
            check_word("clock", clock, CLOCKS)

        def again() -> None:
            self.clock.stop_autojumps()
            self.edge.faults.clear(self.edge)
            self.edge.tap = None
            self.edge.reset(clock or self._options.clock)

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
            await self.edge.catch_up()
            found = leaks_of(self.edge, name, queues=queues)
            if self.edge.endpoints_of(name):
                with trio.move_on_after(timeout):
                    while self.edge.endpoints_of(name):
                        await self.edge.wait_for_activity()
                        await self.edge.catch_up()
                found = leaks_of(self.edge, name, queues=queues)
            return found

        return self.thread.submit(look).result()

    # -- methods of VirtualHostView, for one virtual host -------------------------------------------------------------

    def queue(self, name: str, *, vhost: str | None = None) -> QueueSnapshot:
        return self._there(vhost).queue(name)

    def queues(self, *, vhost: str | None = None) -> tuple[QueueSnapshot, ...]:
        return self._there(vhost).queues()

    def published(
        self,
        exchange: str | None = None,
        routing_key: str | None = None,
        *,
        copies: bool = False,
        vhost: str | None = None,
    ) -> Record[PublishedMessage]:
        return self._there(vhost).published(exchange, routing_key, copies=copies)

    def history(
        self, *kinds: str, queue: str | None = None, message: int | None = None, vhost: str | None = None
    ) -> Record[HistoryEvent]:
        return self._there(vhost).history(*kinds, queue=queue, message=message)

    def plain(self, *, vhost: str | None = None) -> dict[str, Any]:
        return self._there(vhost).plain()

    def blocked(self, *, vhost: str | None = None) -> tuple[BlockedSnapshot, ...]:
        return self._there(vhost).blocked()

    def assert_blocked(
        self,
        destination: str = "",
        *,
        connection: str = "",
        limit: str | None = None,
        count: int | None = None,
        within: float = 0,
        vhost: str | None = None,
    ) -> tuple[BlockedSnapshot, ...]:
        __tracebackhide__ = True
        return self._there(vhost).assert_blocked(
            destination, connection=connection, limit=limit, count=count, within=within
        )

    def leases(self, queue: str | None = None, *, vhost: str | None = None) -> tuple[LeaseSnapshot, ...]:
        return self._there(vhost).leases(queue)

    def assert_leased(
        self,
        queue: str,
        body: Body = _UNSAID,
        *,
        consumer: str | None = None,
        connection: str = "",
        count: int | None = None,
        within: float = 0,
        vhost: str | None = None,
    ) -> tuple[LeaseSnapshot, ...]:
        __tracebackhide__ = True
        return self._there(vhost).assert_leased(
            queue, body, consumer=consumer, connection=connection, count=count, within=within
        )

    def assert_lease_ended(
        self,
        queue: str,
        why: str | None = None,
        *,
        message: int | None = None,
        count: int | None = None,
        within: float = 0,
        vhost: str | None = None,
    ) -> tuple[HistoryEvent, ...]:
        __tracebackhide__ = True
        return self._there(vhost).assert_lease_ended(queue, why, message=message, count=count, within=within)

    def assert_published(
        self,
        exchange: Wanted = None,
        routing_key: Wanted = None,
        body: Body = _UNSAID,
        *,
        headers: Wanted = None,
        count: int | None = None,
        within: float = 0,
        vhost: str | None = None,
        **properties: Any,
    ) -> PublishedMessage | None:
        __tracebackhide__ = True
        return self._there(vhost).assert_published(
            exchange, routing_key, body, headers=headers, count=count, within=within, **properties
        )

    def assert_not_published(
        self,
        exchange: Wanted = None,
        routing_key: Wanted = None,
        body: Body = _UNSAID,
        *,
        headers: Wanted = None,
        within: float = 0,
        vhost: str | None = None,
        **properties: Any,
    ) -> None:
        __tracebackhide__ = True
        self._there(vhost).assert_not_published(
            exchange, routing_key, body, headers=headers, within=within, **properties
        )

    def assert_queue(
        self,
        name: str,
        *,
        ready: Contents = None,
        unacked: Contents = None,
        scheduled: Contents = None,
        consumers: int | None = None,
        within: float = 0,
        vhost: str | None = None,
    ) -> QueueSnapshot:
        __tracebackhide__ = True
        return self._there(vhost).assert_queue(
            name, ready=ready, unacked=unacked, scheduled=scheduled, consumers=consumers, within=within
        )

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
        return self._there(vhost).inject(exchange, routing_key, body, json=json, headers=headers, **properties)

    def remove(
        self,
        queue: str,
        which: "Callable[[MessageSnapshot], bool] | int | None" = None,
        *,
        vhost: str | None = None,
    ) -> tuple[MessageSnapshot, ...]:
        return self._there(vhost).remove(queue, which)

    def settled(
        self, timeout: float = 5.0, *, ignore: Sequence[str] = (), due: bool = True, vhost: str | None = None
    ) -> None:
        __tracebackhide__ = True
        self._there(vhost).settled(timeout, ignore=ignore, due=due)

    def settled_async(
        self, timeout: float = 5.0, *, ignore: Sequence[str] = (), due: bool = True, vhost: str | None = None
    ) -> Awaitable[None]:
        return self._there(vhost).settled_async(timeout, ignore=ignore, due=due)

    # -- recording --------------------------------------------------------------------------------------------------

    def record(self, path: str) -> "Recording":
        """Record what clients send into a file, until the `with` block ends; see `Recording`."""
        from .recording import Recording

        return Recording(self, path)

    def replay(self, path: str) -> "Replay":
        """Replay a recording at virtual speed; see `Replay`."""
        from .recording import Replay

        return Replay(self, path)


class BrokerAt(RunningBroker):
    """A running broker with another default virtual host; all else is the broker's."""

    def __init__(self, broker: RunningBroker, vhost: str) -> None:
        self._whole = broker
        self.default_vhost = vhost
        self.thread = broker.thread
        self._options = broker._options

    def __getattr__(self, name: str) -> Any:
        if name not in ("clock", "edge", "recorder"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        return getattr(self._whole, name)

    def reset(self, *, clock: ClockMode | None = None) -> None:
        """Reset only its virtual host. Raises: ValueError for another mode of the clock, which all hosts share."""
        if clock not in (None, self.clock.mode):
            raise ValueError(f"reset: {clock!r}: the clock belongs to the whole broker, reset that")
        self.vhost().reset()
