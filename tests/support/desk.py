"""A client at a desk: one vocabulary for conformance rows, whatever carries it to the broker.

    desk = VirtualDesk('[[address-setting]]\nmatch = "q"\ndefault-ring-size = 3')
    desk.declare()
    desk.publish(*"ABCD")
    assert desk.all() == "BCD"

`VirtualDesk` speaks to a broker face to face in virtual time. The same rows run through real sockets with pika
(`pika_desk.py`). Queue `q` is meant where none is named; publishes are confirmed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pair import Pair
from pamqp import commands
from peer import Peer, method, publish

from leveret.engine import VirtualHost
from leveret.operator.control import ControlTable
from leveret.testing.harness import load

C = commands
GETS, PUBLISHES, TRANSACTS = 1, 2, 3  # channels


class Refused(Exception):
    """The broker closed the channel. `code`, `text`."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text


@dataclass(slots=True)
class Got:
    """A delivery."""

    tag: int
    body: str
    redelivered: bool
    exchange: str
    routing_key: str
    properties: Any
    headers: dict[str, Any] = field(default_factory=dict)
    consumer: str = ""


#: Makes a broker with settings (TOML) and a connection to it, with the queue `q` declared with these arguments.
Make = Callable[..., "Desk"]


def dashed(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by the names that they have on the wire."""
    return {name.replace("_", "-"): value for name, value in arguments.items()}


class Desk(ABC):
    """What rows say. Arguments have underscores for dashes; times are milliseconds."""

    @abstractmethod
    def declare(self, queue: str = "q", *, passive: bool = False, **arguments: Any) -> int:
        """A durable queue. Returns how many messages are ready. Raises: Refused."""

    @abstractmethod
    def exchange(self, name: str, kind: str = "fanout", **arguments: Any) -> None:
        """A durable exchange. Raises: Refused."""

    @abstractmethod
    def bind(self, queue: str, exchange: str, key: str = "") -> None:
        """queue.bind."""

    @abstractmethod
    def publish(
        self, *bodies: str, exchange: str = "", key: str = "q", mandatory: bool = False, **properties: Any
    ) -> list[str]:
        """Publish each. Returns what became of it: ack, nack or returned."""

    @abstractmethod
    def get(self, queue: str = "q", *, no_ack: bool = False) -> Got | None:
        """basic.get. Raises: Refused."""

    @abstractmethod
    def ack(self, got: Got | int) -> None:
        """basic.ack."""

    @abstractmethod
    def nack(self, got: Got | int, *, multiple: bool = False, requeue: bool = True) -> None:
        """basic.nack; tag 0 with `multiple`: all."""

    @abstractmethod
    def reject(self, got: Got, *, requeue: bool = True) -> None:
        """basic.reject."""

    @abstractmethod
    def recover(self) -> None:
        """basic.recover(requeue=true)."""

    @abstractmethod
    def consume(
        self, queue: str = "q", *, prefetch: int = 0, no_ack: bool = False, tag: str = "t", **arguments: Any
    ) -> None:
        """basic.qos and basic.consume. Raises: Refused."""

    @abstractmethod
    def cancel(self, tag: str = "t") -> None:
        """basic.cancel."""

    @abstractmethod
    def taken(self) -> list[Got]:
        """Deliveries to consumers since the last look."""

    @abstractmethod
    def reopen_channel(self) -> None:
        """Close the channel that consumes and gets, cleanly, and open it again."""

    @abstractmethod
    def drop(self) -> None:
        """The TCP connection is lost; nothing can be said here afterwards."""

    @abstractmethod
    def other(self) -> Desk:
        """Another connection to the same broker."""

    @abstractmethod
    def purge(self, queue: str = "q") -> int:
        """How many messages went."""

    @abstractmethod
    def delete(self, queue: str = "q", *, if_empty: bool = False) -> int:
        """How many messages went. Raises: Refused."""

    @abstractmethod
    def select(self) -> None:
        """A transaction on the channel that consumes and gets."""

    @abstractmethod
    def publish_in_transaction(self, *bodies: str, key: str = "q") -> None:
        """Publish on that channel."""

    @abstractmethod
    def commit(self) -> None:
        """tx.commit."""

    @abstractmethod
    def roll_back(self) -> None:
        """tx.rollback."""

    @abstractmethod
    def advance_ms(self, ms: float) -> None:
        """Time passes."""

    @abstractmethod
    def reload(self, settings: str) -> None:
        """The configuration is another one now."""

    @abstractmethod
    def command(self, name: str, /, **arguments: Any) -> Any:
        """Of the control table."""

    @property
    @abstractmethod
    def wall_ms(self) -> int:
        """The broker's clock."""

    # -- what follows from these ------------------------------------------------------------------------------------

    def all(self, queue: str = "q") -> str:
        """Bodies of everything ready, joined; they are gone then."""
        bodies = ""
        while (got := self.get(queue, no_ack=True)) is not None:
            bodies += got.body
        return bodies

    def must_get(self, queue: str = "q") -> Got:
        """A message that has to be there."""
        got = self.get(queue)
        assert got is not None, f"nothing ready in {queue}"
        return got

    def _facts(self, queue: str) -> dict[str, Any]:
        (facts,) = (one for one in self.command("queues") if one["name"] == queue)
        assert isinstance(facts, dict)
        return facts

    def counts(self, queue: str = "q") -> tuple[int, int, int]:
        """(ready, unacked, scheduled)."""
        facts = self._facts(queue)
        return facts["ready"], facts["unacked"], facts["scheduled"]

    def counter(self, name: str, queue: str = "q") -> int:
        """One of the queue's counters."""
        return int(self._facts(queue)["counters"][name])

    def exists(self, queue: str) -> bool:
        """Whether there is such a queue."""
        return any(one["name"] == queue for one in self.command("queues"))


class VirtualDesk(Desk):
    """A broker on virtual time and one connection to it, without sockets. `broker`: see `Harness`."""

    def __init__(
        self, settings: str = "", *, beside: VirtualDesk | None = None, heartbeat_s: int = 0, **broker: Any
    ) -> None:
        if beside is None:
            self.pair = self._make_pair({"settings": settings, **broker})
        else:
            self.pair = beside.pair
        self.peer: Peer = self.pair.open(channels=3, heartbeat_s=heartbeat_s)
        self.peer.call(PUBLISHES, C.Confirm.Select)
        self._deliveries: list[Got] = []
        self._control = ControlTable()
        self._control.operator.attach(self.pair.broker, self.pair.objects)

    def _make_pair(self, broker: dict[str, Any]) -> Pair:
        return Pair(broker=broker)

    @property
    def vhost(self) -> VirtualHost:
        """The engine's own."""
        return self.pair.broker.virtual_hosts["/"]

    def _call(self, channel: int, kind: Any, **fields: Any) -> Any:
        """Send a method; its answer, while deliveries are put aside. Raises: Refused."""
        self.peer.send(method(channel, kind, **fields))
        answer = None
        for received in self.peer.take():
            if isinstance(received.frame, C.Basic.Deliver):
                self._deliveries.append(got_of(received))
            else:
                assert answer is None, received
                answer = received
        if answer is not None and isinstance(answer.frame, C.Channel.Close):
            self.peer.send(method(channel, C.Channel.CloseOk), method(channel, C.Channel.Open))
            self.peer.take()
            raise Refused(answer.frame.reply_code, answer.frame.reply_text)
        return answer

    def declare(self, queue: str = "q", *, passive: bool = False, **arguments: Any) -> int:
        table = dashed(arguments)
        answer = self._call(GETS, C.Queue.Declare, queue=queue, durable=True, passive=passive, arguments=table)
        return int(answer.frame.message_count)

    def exchange(self, name: str, kind: str = "fanout", **arguments: Any) -> None:
        table = dashed(arguments)
        self._call(GETS, C.Exchange.Declare, exchange=name, exchange_type=kind, durable=True, arguments=table)

    def bind(self, queue: str, exchange: str, key: str = "") -> None:
        self._call(GETS, C.Queue.Bind, queue=queue, exchange=exchange, routing_key=key)

    def publish(
        self, *bodies: str, exchange: str = "", key: str = "q", mandatory: bool = False, **properties: Any
    ) -> list[str]:
        outcomes = []
        for body in bodies:
            octets = publish(PUBLISHES, key, body.encode(), exchange=exchange, mandatory=mandatory, **properties)
            self.peer.send(octets)
            outcome = ""
            for received in self.peer.take():
                if isinstance(received.frame, C.Basic.Deliver):
                    self._deliveries.append(got_of(received))
                elif isinstance(received.frame, C.Basic.Return):
                    outcome = "returned"
                else:
                    assert isinstance(received.frame, C.Basic.Ack | C.Basic.Nack), received
                    outcome = outcome or ("ack" if isinstance(received.frame, C.Basic.Ack) else "nack")
            outcomes.append(outcome)
        return outcomes

    def get(self, queue: str = "q", *, no_ack: bool = False) -> Got | None:
        answer = self._call(GETS, C.Basic.Get, queue=queue, no_ack=no_ack)
        return None if isinstance(answer.frame, C.Basic.GetEmpty) else got_of(answer)

    def ack(self, got: Got | int) -> None:
        self._call(GETS, C.Basic.Ack, delivery_tag=tag_of(got))

    def nack(self, got: Got | int, *, multiple: bool = False, requeue: bool = True) -> None:
        self._call(GETS, C.Basic.Nack, delivery_tag=tag_of(got), multiple=multiple, requeue=requeue)

    def reject(self, got: Got, *, requeue: bool = True) -> None:
        self._call(GETS, C.Basic.Reject, delivery_tag=got.tag, requeue=requeue)

    def recover(self) -> None:
        self._call(GETS, C.Basic.Recover, requeue=True)

    def consume(
        self, queue: str = "q", *, prefetch: int = 0, no_ack: bool = False, tag: str = "t", **arguments: Any
    ) -> None:
        table = dashed(arguments)
        self._call(GETS, C.Basic.Qos, prefetch_count=prefetch)
        self._call(GETS, C.Basic.Consume, queue=queue, consumer_tag=tag, no_ack=no_ack, arguments=table)

    def cancel(self, tag: str = "t") -> None:
        self._call(GETS, C.Basic.Cancel, consumer_tag=tag)

    def taken(self) -> list[Got]:
        self._deliveries += [got_of(received) for received in self.peer.take()]
        taken, self._deliveries = self._deliveries, []
        return taken

    def reopen_channel(self) -> None:
        self._call(GETS, C.Channel.Close, reply_code=200, reply_text="", class_id=0, method_id=0)
        self._call(GETS, C.Channel.Open)

    def drop(self) -> None:
        self.peer.hang_up()

    def other(self) -> VirtualDesk:
        return VirtualDesk(beside=self)

    def purge(self, queue: str = "q") -> int:
        return int(self._call(GETS, C.Queue.Purge, queue=queue).frame.message_count)

    def delete(self, queue: str = "q", *, if_empty: bool = False) -> int:
        return int(self._call(GETS, C.Queue.Delete, queue=queue, if_empty=if_empty).frame.message_count)

    def select(self) -> None:
        self._call(GETS, C.Tx.Select)

    def publish_in_transaction(self, *bodies: str, key: str = "q") -> None:
        for body in bodies:
            self.peer.send(publish(GETS, key, body.encode()))

    def commit(self) -> None:
        self._call(GETS, C.Tx.Commit)

    def roll_back(self) -> None:
        self._call(GETS, C.Tx.Rollback)

    def advance_ms(self, ms: float) -> None:
        self.pair.advance(ms)

    def reload(self, settings: str) -> None:
        self.pair.objects.apply(load(settings))

    def command(self, name: str, /, **arguments: Any) -> Any:
        result = self._control.run(name, arguments)
        self.pair.end_turn()
        return result

    @property
    def wall_ms(self) -> int:
        return self.pair.clock.wall_ms()


def tag_of(got: Got | int) -> int:
    return got if isinstance(got, int) else got.tag


def got_of(received: Any) -> Got:
    frame = received.frame
    return Got(
        frame.delivery_tag,
        received.body.decode(),
        frame.redelivered,
        frame.exchange,
        frame.routing_key,
        received.properties,
        received.properties.headers or {},
        getattr(frame, "consumer_tag", ""),
    )
