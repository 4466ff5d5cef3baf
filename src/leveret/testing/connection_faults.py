"""Faults of connections: dropped, not read, not written, closed, refused, slow, and a broker that disappears."""

import random
from typing import TYPE_CHECKING

from pamqp import commands

from ..amqp_frontend.wire.codec import INDEX_OF
from ..amqp_frontend.wire.events import ConnectionMethod, ProtocolEvent
from ..engine import PREDECLARED, ServiceExchange, errors, scheduled
from .fault import Fault, FaultScope, channel_of, method_of
from .queue_surgery import take_ready
from .server import WatchedEndpoint, frames_of

if TYPE_CHECKING:
    from .runtime import WatchedRuntime


class DropConnection(Fault):
    """Reset the TCP connection: at once, when a method is received, or when one is sent (perhaps in part)."""

    def __init__(self, scope: FaultScope, on: str | None, *, is_outgoing: bool, mid_frame: bool, seed: int) -> None:
        super().__init__(scope)
        self._on = on
        self._is_outgoing = is_outgoing
        self._mid_frame = mid_frame
        self._dice = random.Random(seed)

    def begin(self, runtime: "WatchedRuntime") -> None:
        if self._on is None and not self._mid_frame:  # otherwise `on_event` or `on_send` acts
            for endpoint in list(runtime.server.endpoints):
                if self.scope.covers(endpoint) and self.scope.count_occasion():
                    self.hit(f"dropped {endpoint.name}")
                    endpoint.abort()

    def on_event(self, endpoint: WatchedEndpoint, event: ProtocolEvent) -> ProtocolEvent | None:
        """See `Fault`. The method is lost with its connection."""
        if self._is_outgoing or self._on != method_of(event) or not self.scope.count_occasion():
            return event
        self.hit(f"dropped {endpoint.name} on {self._on}")
        endpoint.abort()
        return None

    def on_send(self, endpoint: WatchedEndpoint, data: bytes | memoryview) -> tuple[int, bool]:
        """See `Fault`. Send up to the frame, or up to a random octet inside it, and end the connection."""
        if not self._is_outgoing:
            return len(data), False
        wanted = INDEX_OF.get(self._on or "", -1)
        for start, end, index in frames_of(data):
            if (self._on is None or index == wanted) and end <= len(data) and self.scope.count_occasion():
                cut = start + self._dice.randrange(1, end - start) if self._mid_frame else start
                self.hit(f"dropped {endpoint.name} after {cut - start} of {end - start} octets of a frame")
                return cut, True
        return len(data), False


class HalfOpen(Fault):
    """Stop reading or writing while the TCP connection stays open, as with a dead peer."""

    def __init__(self, scope: FaultScope, *, reads: bool, writes: bool) -> None:
        super().__init__(scope)
        self._reads = reads
        self._writes = writes

    def on_send(self, endpoint: WatchedEndpoint, data: bytes | memoryview) -> tuple[int, bool]:
        if self._writes:
            return len(data), False
        self.hit(f"kept {len(data)} octets from {endpoint.name}")
        return 0, False

    def may_read(self, endpoint: WatchedEndpoint) -> bool:
        return self._reads

    def may_write(self, endpoint: WatchedEndpoint) -> bool:
        return self._writes


class CloseByServer(Fault):
    """Send channel.close or connection.close with a code: at once, or as the answer to a method."""

    def __init__(self, scope: FaultScope, on: str | None, *, closes_channel: bool, code: int, text: str) -> None:
        super().__init__(scope)
        self._on = on
        self._closes_channel = closes_channel
        self._code = code
        self._text = text

    def begin(self, runtime: "WatchedRuntime") -> None:
        if self._on is not None:
            return
        for endpoint in list(runtime.server.endpoints):
            if endpoint.client is None or not self.scope.covers(endpoint):
                continue
            if self._closes_channel:
                for channel in endpoint.open_channels():
                    if self.scope.count_occasion():
                        self.hit(f"closed channel {channel.number} of {endpoint.name}")
                        endpoint.session.closing.close_channel(channel, self._code, self._text, 0, 0)
            elif self.scope.count_occasion():
                self.hit(f"closed {endpoint.name}")
                endpoint.session.closing.close_connection(self._code, self._text)
            endpoint.flush()
        runtime.end_turn()

    def on_event(self, endpoint: WatchedEndpoint, event: ProtocolEvent) -> ProtocolEvent | None:
        """See `Fault`. The method is refused."""
        channel = channel_of(event)
        if self._on is None or self._on != method_of(event) or channel is None or not self.scope.count_occasion():
            return event
        ids = event.ids
        if self._closes_channel:
            self.hit(f"closed channel {channel.number} of {endpoint.name} on {self._on}")
            endpoint.session.closing.close_channel(channel, self._code, self._text, *ids)
        else:
            self.hit(f"closed {endpoint.name} on {self._on}")
            endpoint.session.closing.close_connection(self._code, self._text, *ids)
        return None


class RefuseConnections(Fault):
    """Refuse new connections (ECONNREFUSED); open ones stay."""

    def begin(self, runtime: "WatchedRuntime") -> None:
        runtime.close_listener()

    def end(self, runtime: "WatchedRuntime") -> None:
        runtime.open_listener()


class RefuseLogin(Fault):
    """Refuse logins as if the password were wrong. `connection`: part of the name in the client's properties."""

    def __init__(self, scope: FaultScope, connection: str) -> None:
        super().__init__(scope)
        self._connection = connection

    def on_event(self, endpoint: WatchedEndpoint, event: ProtocolEvent) -> ProtocolEvent | None:
        if not isinstance(event, ConnectionMethod) or not isinstance(event.method, commands.Connection.StartOk):
            return event
        login = endpoint.session.login
        login.note_properties(event.method.client_properties)
        if self._connection not in endpoint.name or not self.scope.count_occasion():
            return event
        self.hit(f"refused the login of {endpoint.name}")
        endpoint.session.closing.refuse(errors.LoginRefused(mechanism=event.method.mechanism), None)
        return None


class BrokerOutage(RefuseConnections):
    """The broker disappears without closing its connections, and returns with its durable state, or with nothing."""

    def __init__(self, scope: FaultScope, *, durable: bool) -> None:
        super().__init__(scope)
        self._durable = durable

    def begin(self, runtime: "WatchedRuntime") -> None:
        super().begin(runtime)
        for endpoint in list(runtime.server.endpoints):
            self.hit(f"dropped {endpoint.name}")
            endpoint.abort()
            endpoint.session.handle_end()  # requeues its messages before `delete_lost`
        runtime.end_turn()
        if runtime.has_data or not self._durable:
            runtime.start_again(durable=self._durable)
        else:
            delete_lost(runtime)
            runtime.end_turn()


def delete_lost(runtime: "WatchedRuntime") -> None:
    """Delete what a restart loses: transient messages, and queues and exchanges that are not durable."""
    predeclared = {name for name, _, _ in PREDECLARED}
    for vhost in runtime.broker.virtual_hosts.values():
        for queue in list(vhost.queues.values()):
            if not queue.durable:
                vhost.queues.remove(queue)
                continue
            take_ready(queue, lambda message: not message.envelope.summary.persistent)
            for _, message in queue.scheduled.entries():
                if not message.envelope.summary.persistent:
                    scheduled.cancel(queue, message.id)
        for exchange in list(vhost.exchanges.values()):
            is_ours = exchange.name in predeclared or isinstance(exchange, ServiceExchange)
            if not is_ours and not exchange.durable:
                vhost.exchanges.delete(exchange.name)
    runtime.apply_configuration()


class SlowNetwork(Fault):
    """Delay each read and write by `latency_s` real seconds. Each moves at most `octets_max` octets."""

    def __init__(self, scope: FaultScope, latency_s: float, octets_max: int) -> None:
        super().__init__(scope)
        self._latency_s = latency_s
        self._octets_max = octets_max
        self._may_send: set[WatchedEndpoint] = set()

    def read_size(self, endpoint: WatchedEndpoint, size: int) -> int:
        return min(size, self._octets_max)

    def read_delay_s(self, endpoint: WatchedEndpoint) -> float:
        return self._latency_s

    def write_delay_s(self, endpoint: WatchedEndpoint) -> float:
        """See `Fault`. An endpoint that has waited may send once."""
        self._may_send.add(endpoint)
        return self._latency_s

    def on_send(self, endpoint: WatchedEndpoint, data: bytes | memoryview) -> tuple[int, bool]:
        if endpoint not in self._may_send:
            return 0, False
        self._may_send.discard(endpoint)
        self.hit(f"sent {min(len(data), self._octets_max)} octets to {endpoint.name}")
        return min(len(data), self._octets_max), False
