"""Clients of a simulated world: publishers with confirms, and a consumer. They remember what they were told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .node import NodeBroker
    from .world import World

MS = 1_000_000


class Client:
    """It is connected to a broker that serves, to any of those that believe that they lead."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.broker: NodeBroker | None = None
        self.session: Any = None

    def begin(self) -> None:
        """Act now and then."""
        if self.broker is not None and not self.broker.is_connected:
            self.broker = None
            self.lost()
        if self.broker is None:
            self._connect()
        elif not self.broker.node.is_paused:
            broker = self.broker
            broker.node.soon(self.world.latency_ns(), lambda: self._act_at(broker))
        self.world.at(self.world.chance.uniform(20, 150) * MS, self.begin)

    def _act_at(self, broker: NodeBroker) -> None:
        if broker is self.broker and broker.answers:
            assert not broker.is_closed, f"{broker.node.name} resigned, and still serves"
            self.world.check_served(broker)
            self.act(broker)

    def _connect(self) -> None:
        serving = [node.broker for node in self.world.nodes.values() if node.is_alive and not node.is_paused]
        brokers = [broker for broker in serving if broker is not None and broker.answers]
        if brokers:
            self.broker = self.world.chance.choice(brokers)
            self.session = self.broker.connect(f"{type(self).__name__}")
            self.connected(self.broker)

    def connected(self, broker: NodeBroker) -> None:
        """It has a session."""

    def lost(self) -> None:
        """The connection is closed."""

    def act(self, broker: NodeBroker) -> None:
        """Do something."""

    def more_is_safe(self, broker: NodeBroker) -> None:
        """More of what this broker recorded is agreed."""


class Publisher(Client):
    """Persistent messages, each once. `confirmed`: bodies for which a confirm came."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world)
        self.number = number
        self.count = 0
        self.rests = False
        self.confirmed: set[str] = set()
        self.unanswered: dict[int, tuple[str, int]] = {}  # delivery tag -> body, LSN behind its records
        self._tag = 0

    def connected(self, broker: NodeBroker) -> None:
        self.session.select_confirms()
        self._tag = 0

    def lost(self) -> None:
        self.unanswered.clear()

    def act(self, broker: NodeBroker) -> None:
        if not self.rests and not broker.is_held:
            for _ in range(self.world.chance.randint(1, 3)):
                self.count += 1
                body = f"{self.number}.{self.count}"
                self._tag += 1
                octets = body + "," + "x" * self.world.chance.choice([0, 100, 3000])
                broker.publish(octets, by=self.session, delivery_mode=2)
                self.unanswered[self._tag] = (body, broker.journal.next_lsn)
        self._take(broker)

    def more_is_safe(self, broker: NodeBroker) -> None:
        if broker is self.broker:
            self._take(broker)

    def _take(self, broker: NodeBroker) -> None:
        confirmed = 0
        for tag, is_multiple, is_ack in self.session.confirms.take(broker.recorder.safe_lsn):
            assert is_ack
            for one in sorted(self.unanswered):
                if one == tag or (is_multiple and one < tag):
                    body, lsn = self.unanswered.pop(one)
                    self.confirmed.add(body)
                    confirmed = max(confirmed, lsn)
        if confirmed:
            self.world.check_confirm(broker.node, confirmed)


class Consumer(Client):
    """It acknowledges most of what it gets. `seen`: bodies it acknowledged; `gone`: whose acknowledgement is agreed."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.seen: set[str] = set()
        self.gone: set[str] = set()
        self._acked: list[tuple[str, int]] = []

    def connected(self, broker: NodeBroker) -> None:
        broker.consume("q", by=self.session, prefetch=5)
        self._acked = []

    def act(self, broker: NodeBroker) -> None:
        deliveries, broker.deliveries = broker.deliveries, []
        for delivery in deliveries:
            body = delivery.body.split(b",")[0].decode()
            assert body not in self.gone, f"{body} was acknowledged, and is back"
            self.session.ack(delivery.tag)
            broker.end_turn()
            self.seen.add(body)
            self._acked.append((body, broker.journal.next_lsn))

    def more_is_safe(self, broker: NodeBroker) -> None:
        if broker is self.broker:
            safe_lsn = broker.recorder.safe_lsn
            self.gone |= {body for body, lsn in self._acked if lsn <= safe_lsn}
            self._acked = [one for one in self._acked if one[1] > safe_lsn]

    def drain(self, leader: Any) -> None:
        """Get what is left."""
        broker = leader.broker
        if self.broker is not broker:
            self.broker, self.session = broker, broker.connect("last")
            self.connected(broker)
        broker.end_turn()
        while broker.deliveries:
            self.act(broker)
