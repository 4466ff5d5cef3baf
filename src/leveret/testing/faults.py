"""`broker.faults`: deliberate failures.

Each method starts a fault at once and returns it: use it in a `with` statement, or `stop` it. The broker's reset stops
all faults. `vhost`: None: the test's virtual host; "*": all. `connection`: part of the name that a client gave its
connection. `after`: occasions that succeed before the first failure; `times`: number of failures; None: no limit.
`on`: a method by its name in the specification, such as "basic.publish".
"""

from ..amqp_frontend.wire.codec import INDEX_OF
from ..settings import entry
from ..settings.faults import nearest
from ..settings.values import size_bytes
from .broker_assertions import BrokerAssertions
from .connection_faults import (
    BrokerOutage,
    CloseByServer,
    DropConnection,
    HalfOpen,
    RefuseConnections,
    RefuseLogin,
    SlowNetwork,
)
from .fault import Fault, FaultScope
from .loop_thread import BrokerStopped
from .memory_limit import MemoryLimit
from .message_faults import Block, CancelConsumers, Chaos, HoldConfirms, LoseAcks, NackConfirms
from .nearest_names import nearest_names
from .typos import missing

#: Methods that only a broker sends. All other methods are recognized in the input of clients.
OUTGOING = frozenset(
    {"basic.deliver", "basic.return", "basic.get-empty", "connection.start", "connection.tune", "connection.blocked"}
)


@nearest_names
class Faults:
    """The faults that a test can start."""

    def __init__(self, broker: BrokerAssertions) -> None:
        self._broker = broker

    # -- connections ------------------------------------------------------------------------------------------------

    def drop_connection(
        self,
        on: str | None = None,
        *,
        mid_frame: bool = False,
        after: int = 0,
        times: int | None = 1,
        seed: int = 0,
        connection: str = "",
        vhost: str | None = None,
    ) -> Fault:
        """Reset TCP connections: all at once, or one when the method `on` is received or sent; the method is lost.

        `mid_frame`: reset it inside a frame that the broker sends: the frame of `on`, or any. `seed` decides where.
        """
        _check_method(on)
        is_outgoing = mid_frame or (on is not None and (on in OUTGOING or on.endswith("-ok")))
        if on is None and not mid_frame:
            times = None
        scope = self._scope_of(vhost, connection, after, times)
        return self._start(DropConnection(scope, on, is_outgoing=is_outgoing, mid_frame=mid_frame, seed=seed))

    def stop_reading(self, *, connection: str = "", vhost: str | None = None) -> Fault:
        """Read nothing from clients: their sends block, and requests get no answers."""
        return self._start(HalfOpen(self._scope_of(vhost, connection), reads=False, writes=True))

    def stop_writing(self, *, connection: str = "", vhost: str | None = None) -> Fault:
        """Write nothing, not even heartbeats; when the fault ends, all output is sent."""
        return self._start(HalfOpen(self._scope_of(vhost, connection), reads=True, writes=False))

    def half_open(self, *, connection: str = "", vhost: str | None = None) -> Fault:
        """Neither read nor write, and keep the sockets open."""
        return self._start(HalfOpen(self._scope_of(vhost, connection), reads=False, writes=False))

    def close_channel(
        self,
        code: int = 406,
        text: str = "PRECONDITION_FAILED - closed by a fault",
        *,
        on: str | None = None,
        after: int = 0,
        times: int | None = 1,
        connection: str = "",
        vhost: str | None = None,
    ) -> Fault:
        """Send channel.close: on all open channels at once, or as the answer to the method `on`."""
        _check_method(on)
        scope = self._scope_of(vhost, connection, after, None if on is None else times)
        return self._start(CloseByServer(scope, on, closes_channel=True, code=code, text=text))

    def close_connection(
        self,
        code: int = 320,
        text: str = "CONNECTION_FORCED - closed by a fault",
        *,
        on: str | None = None,
        after: int = 0,
        times: int | None = 1,
        connection: str = "",
        vhost: str | None = None,
    ) -> Fault:
        """Send connection.close: on all connections at once, or as the answer to the method `on`."""
        _check_method(on)
        scope = self._scope_of(vhost, connection, after, None if on is None else times)
        return self._start(CloseByServer(scope, on, closes_channel=False, code=code, text=text))

    def refuse_connections(self) -> Fault:
        """Refuse new connections of any virtual host; open ones stay."""
        return self._start(RefuseConnections(FaultScope(None)))

    def refuse_login(self, *, after: int = 0, times: int | None = None, connection: str = "") -> Fault:
        """Refuse logins of new connections with 403, as for a wrong user or password; open connections stay.

        As with RabbitMQ, a client that cannot read the reason only sees its connection end.
        """
        return self._start(RefuseLogin(FaultScope(None, after=after, times=times), connection))

    def restart(self, *, durable: bool = True, vhost: str | None = None) -> Fault:
        """Stop the broker without closing handshakes. It is back on its port when the fault ends.

        Transient messages, and queues and exchanges that are not durable, are lost; without `durable`, everything but
        the configuration is lost. All virtual hosts restart, whatever `vhost`. `broker.restart()` stops and starts the
        broker in one call.
        """
        return self._start(BrokerOutage(FaultScope(None), durable=durable))

    def slow_network(
        self, latency: float = 0.05, *, octets: int = 1400, connection: str = "", vhost: str | None = None
    ) -> Fault:
        """Let each read and write of the broker wait `latency` real seconds and move at most `octets` octets."""
        return self._start(SlowNetwork(self._scope_of(vhost, connection), latency, max(1, octets)))

    # -- messages ---------------------------------------------------------------------------------------------------

    def nack_confirms(
        self,
        *,
        keep: bool = False,
        after: int = 0,
        times: int | None = None,
        connection: str = "",
        vhost: str | None = None,
    ) -> Fault:
        """Answer publishes in confirm mode by basic.nack. `keep`: the message is enqueued nevertheless."""
        return self._start(NackConfirms(self._scope_of(vhost, connection, after, times), keep=keep))

    def delay_confirms(
        self,
        seconds: float,
        *,
        after: int = 0,
        times: int | None = None,
        connection: str = "",
        vhost: str | None = None,
    ) -> Fault:
        """Delay publisher confirms by these seconds of the broker's clock."""
        scope = self._scope_of(vhost, connection, after, times)
        return self._start(HoldConfirms(scope, delay_ms=round(seconds * 1000), loses=False))

    def withhold_confirms(
        self,
        *,
        lose: bool = False,
        after: int = 0,
        times: int | None = None,
        connection: str = "",
        vhost: str | None = None,
    ) -> Fault:
        """Hold publisher confirms back until the fault ends; with `lose` drop them."""
        return self._start(HoldConfirms(self._scope_of(vhost, connection, after, times), delay_ms=None, loses=lose))

    def lose_acks(
        self, *, after: int = 0, times: int | None = None, connection: str = "", vhost: str | None = None
    ) -> Fault:
        """Drop basic.ack, basic.nack and basic.reject of consumers."""
        return self._start(LoseAcks(self._scope_of(vhost, connection, after, times)))

    def block(self, reason: str = "low on memory", *, connection: str = "", vhost: str | None = None) -> Fault:
        """Send connection.blocked with a reason. Publishes wait until the fault ends; everything else is served."""
        return self._start(Block(self._scope_of(vhost, connection), reason))

    def memory_limit(
        self,
        size: int | str,
        address: str | None = None,
        *,
        fails: bool | None = None,
        fails_after: float | None = None,
        vhost: str | None = None,
    ) -> Fault:
        """Block publishes while messages in memory take `size` octets ("64 KiB", or a number) or more.

        `address`: a queue, or a pattern as in an address-setting; None: all queues of all virtual hosts together.
        `fails`: refuse messages without room instead; `fails_after`: refuse them after this wait, in seconds of the
        broker's clock. Without both, as configured. One message is accepted whatever its size, and each counts at least
        minimum-message-size (1 KiB). Raises: ValueError.
        """
        octets = size_bytes(size)
        if not octets:
            raise ValueError("memory_limit: 0 is no limit; `faults.block` holds every publish")
        if address is not None:  # `entry` refuses an invalid match
            entry(address, wildcards=self._broker.host.runtime.configuration.repository.wildcards)
        after_ms = None
        if fails_after is not None:
            fails, after_ms = bool(fails), round(fails_after * 1000)
        return self._start(
            MemoryLimit(self._scope_of(vhost, ""), octets, address, fails=fails, fails_after_ms=after_ms)
        )

    def cancel_consumers(self, queue: str, *, times: int | None = None, vhost: str | None = None) -> Fault:
        """Cancel the current consumers of a queue with basic.cancel. Raises: LookupError."""
        scope = self._scope_of(vhost, "", 0, times)
        hosts = self._broker.host.runtime.broker.virtual_hosts
        where = hosts.values() if scope.vhost is None else [hosts[scope.vhost]]
        if not any(queue in each.queues for each in where):
            raise missing("queue", queue, [name for each in where for name in each.queues])
        return self._start(CancelConsumers(scope, queue))

    def chaos(
        self,
        seed: int,
        *,
        drop: float = 0.01,
        close: float = 0.01,
        nack: float = 0.02,
        lose: float = 0.02,
        cut: float = 0.005,
        connection: str = "",
        vhost: str | None = None,
    ) -> Fault:
        """Let any event fail at random, reproducibly: see `message_faults.Chaos`. Chances are from 0 to 1, for each
        event.

        Raises: ValueError.
        """
        for name, chance in (("drop", drop), ("close", close), ("nack", nack), ("lose", lose), ("cut", cut)):
            if not 0 <= chance <= 1:
                raise ValueError(f"{name}: {chance!r} is invalid, expected a chance from 0 to 1")
        scope = self._scope_of(vhost, connection)
        return self._start(Chaos(scope, seed, drop=drop, close=close, nack=nack, lose=lose, cut=cut))

    # -- helpers ----------------------------------------------------------------------------------------------------

    def _scope_of(self, vhost: str | None, connection: str, after: int = 0, times: int | None = None) -> FaultScope:
        name = None if vhost == "*" else self._broker.known_vhost(vhost)
        return FaultScope(name, connection, after=after, times=times)

    def _start(self, fault: Fault) -> Fault:
        runtime = self._broker.host.runtime

        def start() -> Fault:
            runtime.faults.add(fault, runtime)
            fault.started(self._stop)
            return fault

        return self._broker.host.ask(start)

    def _stop(self, fault: Fault) -> None:
        runtime = self._broker.host.runtime
        try:
            self._broker.host.ask(lambda: runtime.faults.remove(fault, runtime))
        except BrokerStopped:
            pass  # its faults have ended with it


def _check_method(name: str | None) -> None:
    if name is not None and name not in INDEX_OF:
        raise ValueError(f"no method {name!r}{nearest(name, INDEX_OF)}")
