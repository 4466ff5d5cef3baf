"""The object that `start_broker` yields: a running broker, seen from a test."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import trio

from .assertions import _UNSAID, Body
from .blocked import BlockedSnapshot
from .history import HistoryEvent, PublishedMessage, Record
from .host import Host
from .loop_thread import PATIENCE_S
from .pending import leaks_of
from .snapshots import MessageSnapshot, QueueSnapshot
from .vhost_view import VirtualHostView
from .virtual_clock import ClockMode

# What needs the frontend is imported when the first broker starts: 25 ms that a test run may never need.
if TYPE_CHECKING:
    from .faults import Faults
    from .recording import Recording, Replay


class RunningBroker(Host):
    """A broker on a real socket, in a thread of its own.

    What looks or acts without waiting for clients (`queue`, `published`, `inject`, `faults`, `reset`, ...) may be
    called from anywhere, also from event loops. What waits for them has a twin for event loops: `..._async`.
    """

    @cached_property
    def faults(self) -> "Faults":
        """What can go wrong on purpose."""
        from .faults import Faults

        return Faults(self)

    # -- life -------------------------------------------------------------------------------------------------------

    def start(self) -> "RunningBroker":
        """Bound and accepting when it returns."""
        try:
            self.thread.begin().result(PATIENCE_S)
        except BaseException:
            self.thread.join()
            raise
        return self

    def stop(self) -> None:
        """Say goodbye to clients and end; no thread, socket or file is left. Once more changes nothing."""
        self.thread.end().result(PATIENCE_S)
        self.thread.join()

    @property
    def url(self) -> str:
        """For clients, with the default virtual host."""
        return self.vhost().url

    def __repr__(self) -> str:
        return f"<RunningBroker on port {self.port}, {self.clock.mode} time>"

    # -- virtual hosts ----------------------------------------------------------------------------------------------

    def vhost(self, name: str | None = None) -> VirtualHostView:
        """A virtual host by name, made if it is not there; None: the default one."""
        wanted = self.default_vhost if name is None else name
        if wanted not in self.edge.broker.virtual_hosts:
            self.ask(lambda: self.edge.broker.create_virtual_host(wanted))
        return VirtualHostView(self, wanted)

    def reset(self, *, clock: ClockMode | None = None) -> None:
        """As new: connections are reset, everything declared is gone, the history is empty, faults are over.

        Time starts again (`clock`: in another mode). The port stays. O(open connections), however much was declared.
        """

        def again() -> None:
            self.clock.stop_autojumps()
            self.edge.faults.clear(self.edge)
            self.edge.tap = None
            self.edge.reset(clock or self._options.clock)

        self.default_vhost = "/"
        self.ask(again)

    def restart(self, *, durable: bool = True) -> None:
        """The broker disappears without a goodbye and is back at once; see `faults.restart`."""
        self.faults.restart(durable=durable, vhost=None).stop()

    def leaks(self, *, vhost: str | None = None, patience: float = 0.2) -> list[str]:
        """What was left behind: connections, consumers, unacked messages, queues; a line each.

        `patience`: real seconds for clients that are about to close.
        """
        name = self.default_vhost if vhost is None else vhost

        async def look() -> list[str]:
            await self.edge.catch_up()
            found = leaks_of(self.edge, name)
            if self.edge.endpoints_of(name):
                with trio.move_on_after(patience):
                    while self.edge.endpoints_of(name):
                        await self.edge.happened()
                        await self.edge.catch_up()
                found = leaks_of(self.edge, name)
            return found

        return self.thread.submit(look).result()

    # -- of one virtual host: see VirtualHostView -------------------------------------------------------------------

    def queue(self, name: str, *, vhost: str | None = None) -> QueueSnapshot:
        """See `VirtualHostView.queue`."""
        return self.vhost(vhost).queue(name)

    def queues(self, *, vhost: str | None = None) -> tuple[QueueSnapshot, ...]:
        """See `VirtualHostView.queues`."""
        return self.vhost(vhost).queues()

    def published(
        self,
        exchange: str | None = None,
        routing_key: str | None = None,
        *,
        copies: bool = False,
        vhost: str | None = None,
    ) -> Record[PublishedMessage]:
        """See `VirtualHostView.published`."""
        return self.vhost(vhost).published(exchange, routing_key, copies=copies)

    def history(
        self, *kinds: str, queue: str | None = None, message: int | None = None, vhost: str | None = None
    ) -> Record[HistoryEvent]:
        """See `VirtualHostView.history`."""
        return self.vhost(vhost).history(*kinds, queue=queue, message=message)

    def blocked(self, *, vhost: str | None = None) -> tuple[BlockedSnapshot, ...]:
        """See `VirtualHostView.blocked`."""
        return self.vhost(vhost).blocked()

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
        """See `VirtualHostView.assert_blocked`."""
        return self.vhost(vhost).assert_blocked(
            destination, connection=connection, limit=limit, count=count, within=within
        )

    def assert_published(
        self,
        exchange: str | None = None,
        routing_key: str | None = None,
        body: Body = _UNSAID,
        *,
        headers: Mapping[str, Any] | None = None,
        count: int | None = None,
        within: float = 0,
        vhost: str | None = None,
        **properties: Any,
    ) -> PublishedMessage | None:
        """See `VirtualHostView.assert_published`."""
        return self.vhost(vhost).assert_published(
            exchange, routing_key, body, headers=headers, count=count, within=within, **properties
        )

    def assert_queue(
        self,
        name: str,
        *,
        ready: "int | Sequence[Body] | None" = None,
        unacked: "int | Sequence[Body] | None" = None,
        scheduled: "int | Sequence[Body] | None" = None,
        consumers: int | None = None,
        within: float = 0,
        vhost: str | None = None,
    ) -> QueueSnapshot:
        """See `VirtualHostView.assert_queue`."""
        return self.vhost(vhost).assert_queue(
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
        """See `VirtualHostView.inject`."""
        return self.vhost(vhost).inject(exchange, routing_key, body, json=json, headers=headers, **properties)

    def remove(
        self,
        queue: str,
        which: "Callable[[MessageSnapshot], bool] | int | None" = None,
        *,
        vhost: str | None = None,
    ) -> tuple[MessageSnapshot, ...]:
        """See `VirtualHostView.remove`."""
        return self.vhost(vhost).remove(queue, which)

    def settled(
        self, timeout: float = 5.0, *, ignore: Sequence[str] = (), due: bool = True, vhost: str | None = None
    ) -> None:
        """See `VirtualHostView.settled`."""
        self.vhost(vhost).settled(timeout, ignore=ignore, due=due)

    def settled_async(
        self, timeout: float = 5.0, *, ignore: Sequence[str] = (), due: bool = True, vhost: str | None = None
    ) -> Awaitable[None]:
        """See `VirtualHostView.settled_async`."""
        return self.vhost(vhost).settled_async(timeout, ignore=ignore, due=due)

    # -- recording --------------------------------------------------------------------------------------------------

    def record(self, path: str) -> "Recording":
        """Write what clients send from now on into a file, until the `with` block ends; see `Recording`."""
        from .recording import Recording

        return Recording(self, path)

    def replay(self, path: str) -> "Replay":
        """Do what a recording holds, at virtual speed; see `Replay`."""
        from .recording import Replay

        return Replay(self, path)
