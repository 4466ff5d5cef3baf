"""The base of faults, and the faults in force. A fault is a deliberate failure, from its start until it is stopped."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from ..amqp_frontend.peer.channel import Channel
from ..amqp_frontend.wire.codec import NAME_OF
from ..amqp_frontend.wire.events import (
    AcksReceived,
    ChannelMethod,
    ConnectionMethod,
    MixedReceived,
    ProtocolEvent,
    PublishReceived,
)
from .nearest_names import nearest_names
from .server import Confirms, WatchedEndpoint

if TYPE_CHECKING:
    from .runtime import WatchedRuntime


class FaultScope:
    """The connections and the occasions of a fault.

    `vhost`: None for all. `connection`: part of the name that a client gave its connection, or of its address if it
    gave none; "": any. An occasion is one chance to act. `after`: number of first occasions without an action. `times`:
    number of actions; None: no limit.
    """

    def __init__(self, vhost: str | None, connection: str = "", *, after: int = 0, times: int | None = None) -> None:
        self.vhost = vhost
        self.connection = connection
        self._passes_left = after
        self._actions_left = times

    def covers(self, endpoint: WatchedEndpoint) -> bool:
        """Whether the fault concerns this connection; before its login, only faults without a virtual host do."""
        client = endpoint.client
        if self.vhost is not None and (client is None or client.vhost.name != self.vhost):
            return False
        return not self.connection or self.connection in endpoint.name

    def count_occasion(self) -> bool:
        """Count an occasion. Returns whether the fault acts on it."""
        if self._passes_left > 0:
            self._passes_left -= 1
            return False
        if self._actions_left is None:
            return True
        self._actions_left -= 1
        return self._actions_left >= 0


@nearest_names
class Fault:
    """One fault in force. It ends with its `with` block, by `stop`, or with the broker's reset. A fault of one virtual
    host ends also when that is reset or removed.

    `hits`: a line for each action so far, so that a test can assert them. `uses_hooks`: False: only `begin` and `end`
    do something.
    """

    uses_hooks = True

    def __init__(self, scope: FaultScope) -> None:
        self.scope = scope
        self.hits: list[str] = []
        self._stopper: Callable[[Fault], None] | None = None

    def started(self, stopper: "Callable[[Fault], None]") -> None:
        """Note that the fault is in force, and that `stopper` ends it."""
        self._stopper = stopper

    def __enter__(self) -> "Fault":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the fault. Idempotent."""
        stopper, self._stopper = self._stopper, None
        if stopper is not None:
            stopper(self)

    def hit(self, what: str) -> None:
        """Record an action."""
        self.hits.append(what)

    # -- hooks, which subclasses override; called in the broker's loop -------------------------------------------------

    def begin(self, runtime: "WatchedRuntime") -> None:
        """Make the changes of the fault, which comes into force."""

    def end(self, runtime: "WatchedRuntime") -> None:
        """Undo the changes of the fault, which ends."""

    def on_event(self, endpoint: WatchedEndpoint, event: ProtocolEvent) -> ProtocolEvent | None:
        """Called with an event before its session; returns the event, or None to drop it."""
        return event

    def on_confirms(self, endpoint: WatchedEndpoint, channel: Channel, taken: Confirms) -> Confirms:
        """Called with confirms before they are sent; returns those to send."""
        return taken

    def on_send(self, endpoint: WatchedEndpoint, data: bytes | memoryview) -> tuple[int, bool]:
        """The number of octets that may be sent now, and whether the connection ends after them."""
        return len(data), False

    def may_read(self, endpoint: WatchedEndpoint) -> bool:
        """Whether the broker reads from this connection."""
        return True

    def may_write(self, endpoint: WatchedEndpoint) -> bool:
        """Whether the broker writes to this connection."""
        return True

    def read_size(self, endpoint: WatchedEndpoint, size: int) -> int:
        """The maximum octets of one read."""
        return size

    def read_delay_s(self, endpoint: WatchedEndpoint) -> float:
        """The delay of a read, in real seconds."""
        return 0.0

    def write_delay_s(self, endpoint: WatchedEndpoint) -> float:
        """The delay of a write, in real seconds."""
        return 0.0


class FaultTable:
    """The faults in force, in the order of their start; true if one of them uses the hooks."""

    def __init__(self) -> None:
        self._faults: dict[Fault, None] = {}
        self._changed = trio.Event()
        self._uses_hooks = False

    def __bool__(self) -> bool:
        return self._uses_hooks

    def __contains__(self, fault: Fault) -> bool:
        return fault in self._faults

    def add(self, fault: Fault, runtime: "WatchedRuntime") -> None:
        self._faults[fault] = None
        self._tell()
        fault.begin(runtime)

    def remove(self, fault: Fault, runtime: "WatchedRuntime") -> None:
        if fault in self._faults:
            del self._faults[fault]
            fault.end(runtime)
            self._tell()

    def clear(self, runtime: "WatchedRuntime") -> None:
        for fault in list(self._faults):
            self.remove(fault, runtime)

    def clear_of(self, vhost: str, runtime: "WatchedRuntime") -> None:
        """End the faults of one virtual host."""
        for fault in list(self._faults):
            if fault.scope.vhost == vhost:
                self.remove(fault, runtime)

    def _tell(self) -> None:
        self._uses_hooks = any(fault.uses_hooks for fault in self._faults)
        self._changed.set()
        self._changed = trio.Event()

    async def changed(self) -> None:
        """Wait until a fault begins or ends."""
        await self._changed.wait()

    def _covering(self, endpoint: WatchedEndpoint) -> list[Fault]:
        return [fault for fault in self._faults if fault.scope.covers(endpoint)]

    def on_event(self, endpoint: WatchedEndpoint, event: ProtocolEvent) -> ProtocolEvent | None:
        kept: ProtocolEvent | None = event
        for fault in self._covering(endpoint):
            if kept is not None:
                kept = fault.on_event(endpoint, kept)
        return kept

    def on_confirms(self, endpoint: WatchedEndpoint, channel: Channel, taken: Confirms) -> Confirms:
        for fault in self._covering(endpoint):
            taken = fault.on_confirms(endpoint, channel, taken)
        return taken

    def on_send(self, endpoint: WatchedEndpoint, data: bytes | memoryview) -> tuple[int, bool]:
        """See `Fault`. The strictest fault decides."""
        allowed, is_last = len(data), False
        for fault in self._covering(endpoint):
            fewer, ends = fault.on_send(endpoint, data[:allowed])
            allowed, is_last = min(allowed, fewer), is_last or ends
        return allowed, is_last

    def may_read(self, endpoint: WatchedEndpoint) -> bool:
        return all(fault.may_read(endpoint) for fault in self._covering(endpoint))

    def may_write(self, endpoint: WatchedEndpoint) -> bool:
        return all(fault.may_write(endpoint) for fault in self._covering(endpoint))

    def read_size(self, endpoint: WatchedEndpoint, size: int) -> int:
        return min((fault.read_size(endpoint, size) for fault in self._covering(endpoint)), default=size)

    def read_delay_s(self, endpoint: WatchedEndpoint) -> float:
        """See `Fault`. Delays add up."""
        return sum(fault.read_delay_s(endpoint) for fault in self._covering(endpoint))

    def write_delay_s(self, endpoint: WatchedEndpoint) -> float:
        """See `Fault`. Delays add up."""
        return sum(fault.write_delay_s(endpoint) for fault in self._covering(endpoint))


def method_of(event: ProtocolEvent) -> str:
    """The method of an event, spelled as in the specification (basic.publish, queue.declare); "": it has none."""
    if isinstance(event, PublishReceived | MixedReceived):
        return "basic.publish"
    if isinstance(event, AcksReceived):
        return "basic.ack"
    if isinstance(event, ChannelMethod | ConnectionMethod):
        return NAME_OF[event.method.index]
    return ""


def channel_of(event: ProtocolEvent) -> Channel | None:
    """The channel of an event, in any state; None: there is none, or it was never opened."""
    channel = getattr(event, "channel", None)
    return channel if isinstance(channel, Channel) else None
