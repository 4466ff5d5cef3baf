"""Clients of a cluster that keep books of what it promised, and what the books say at the end.

Each client is a thread with one connection at a time, through one node after the other. A message is a number in one
queue. What is not confirmed is open: it may be there, once.
"""

import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import pika
from cluster_nodes import LOOK_S, LOST, NAMES, ClusterNodes, stretches, until

#: Queues and their arguments. Messages of the first three are consumed and acknowledged while the rounds go on.
CONSUMED: dict[str, dict[str, object]] = {
    "classic": {},
    "quorum": {"x-queue-type": "quorum"},
    "leased": {"x-queue-type": "amps", "x-lease-period": 3_600_000, "x-max-backlog-per-consumer": 20},
}
KEPT: dict[str, dict[str, object]] = {"stream": {"x-queue-type": "stream"}, "committed": {}, "once": {}}
QUEUES = CONSUMED | KEPT
#: Copies of a message in a transaction.
COPIES = 5
#: Deliveries that are acknowledged together.
ACKNOWLEDGED = 10
PERSISTENT = pika.BasicProperties(delivery_mode=2)
#: Pauses of the clients that do not measure the longest time without a confirm.
PAUSE_S = 0.02


class Client:
    """Works on one connection after the other, until it is stopped."""

    def __init__(self, nodes: ClusterNodes, through: tuple[str, ...] = NAMES) -> None:
        self.nodes, self.through = nodes, through
        self.is_over = threading.Event()
        self.fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Raises: AssertionError when it does not end, or did before."""
        self.is_over.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), f"{type(self).__name__} does not end"
        assert self.fault is None, f"{type(self).__name__}: {self.fault!r}"

    def _run(self) -> None:
        turn = 0
        while not self.is_over.is_set():
            name = self.through[turn % len(self.through)]
            turn += 1
            with suppress(*LOST):
                connection = pika.BlockingConnection(
                    pika.ConnectionParameters(
                        "127.0.0.1", self.nodes.ports[name],
                        socket_timeout=5, stack_timeout=10, heartbeat=10, blocked_connection_timeout=20,
                    )
                )  # fmt: skip
                try:
                    self.work(connection)
                except AssertionError as fault:
                    self.fault = fault
                    return
                finally:
                    with suppress(*LOST):
                        connection.close()
            self.is_over.wait(LOOK_S)

    def work(self, connection: pika.BlockingConnection) -> None:
        """Until `is_over`. Raises: as pika does when the connection ends; AssertionError for what must not be."""
        raise NotImplementedError

    def declare(self, channel: pika.channel.Channel, *queues: str) -> None:
        """Declare some of the queues."""
        for name in queues:
            channel.queue_declare(name, durable=True, arguments=QUEUES[name])


class Publishing(Client):
    """One confirmed message after the other, to a queue of each kind in turn."""

    KINDS = ("classic", "quorum", "leased", "stream")

    def __init__(self, nodes: ClusterNodes) -> None:
        super().__init__(nodes)
        self.confirmed: dict[str, set[int]] = {name: set() for name in self.KINDS}
        self.sent = self.count = 0
        self.longest_gap_s = 0.0
        self._confirmed_at = time.monotonic()

    def work(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        self.declare(channel, *self.KINDS)
        channel.confirm_delivery()
        while not self.is_over.is_set():
            number, queue = self.sent, self.KINDS[self.sent % len(self.KINDS)]
            self.sent += 1
            channel.basic_publish("", queue, str(number).encode(), PERSISTENT)
            now = time.monotonic()
            self.longest_gap_s = max(self.longest_gap_s, now - self._confirmed_at)
            self._confirmed_at = now
            self.confirmed[queue].add(number)
            self.count += 1

    def await_confirms(self, count: int) -> None:
        """Wait until so many more messages are confirmed than now."""
        wanted = self.count + count
        until(lambda: self.count >= wanted or self.fault, f"{count} confirms")


class Committing(Client):
    """Transactions, of which each puts one number into a queue several times."""

    def __init__(self, nodes: ClusterNodes) -> None:
        super().__init__(nodes)
        self.committed: set[int] = set()
        self.sent = 0

    def work(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        self.declare(channel, "committed")
        channel.tx_select()
        while not self.is_over.wait(PAUSE_S):
            number = self.sent
            self.sent += 1
            for _ in range(COPIES):
                channel.basic_publish("", "committed", str(number).encode(), PERSISTENT)
            channel.tx_commit()
            self.committed.add(number)


class Repeating(Client):
    """Publishes with a duplicate id, again and again until it is confirmed: each message is there once."""

    def __init__(self, nodes: ClusterNodes) -> None:
        super().__init__(nodes)
        self.confirmed = self.repeated = 0
        self.is_sent = False  # the next one was sent, and not confirmed

    def work(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        self.declare(channel, "once")
        channel.confirm_delivery()
        while not self.is_over.wait(PAUSE_S):
            body = str(self.confirmed)
            self.repeated += self.is_sent
            self.is_sent = True
            channel.basic_publish(
                "", "once", body.encode(), pika.BasicProperties(delivery_mode=2, headers={"_AMQ_DUPL_ID": body})
            )
            self.confirmed += 1
            self.is_sent = False


class Consuming(Client):
    """Acknowledges what it gets. An acknowledgement is sure when a durable declaration behind it was answered: of what
    comes behind that answer none is acknowledged.
    """

    def __init__(self, nodes: ClusterNodes) -> None:
        super().__init__(nodes, NAMES[::-1])
        self.seen: dict[str, set[int]] = {name: set() for name in CONSUMED}
        self.acknowledged: dict[str, set[int]] = {name: set() for name in CONSUMED}
        self.faults: list[str] = []

    def work(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        self.declare(channel, *CONSUMED)
        channel.basic_qos(prefetch_count=20)
        waiting: list[tuple[str, int, int]] = []

        def take(queue: str, _: object, method: pika.spec.Basic.Deliver, __: object, body: bytes) -> None:
            self.note(queue, int(body), is_redelivered=method.redelivered)
            waiting.append((queue, int(body), method.delivery_tag))

        for queue in CONSUMED:
            channel.basic_consume(queue, partial(take, queue))
        while not self.is_over.is_set():
            connection.process_data_events(0.1)
            while waiting:
                some, waiting[:] = waiting[:ACKNOWLEDGED], waiting[ACKNOWLEDGED:]
                for _, _, tag in some:
                    channel.basic_ack(tag)
                channel.queue_declare("mark", durable=True)
                # A leased message whose site was away for a moment may have crossed its acknowledgement: it was
                # handed out again before that was read, and comes before the answer.
                connection.process_data_events(0)
                for queue, number, _ in some:
                    self.acknowledged[queue].add(number)

    def note(self, queue: str, number: int, *, is_redelivered: bool) -> None:
        """A delivery: of none that is acknowledged, and flagged if it is not the first."""
        if number in self.acknowledged[queue]:
            self.faults.append(f"{queue}: {number} was acknowledged and came again")
        if number in self.seen[queue] and not is_redelivered:
            self.faults.append(f"{queue}: {number} came again without the flag")
        self.seen[queue].add(number)


class Reading(Client):
    """Reads a stream as it grows: an offset never means two messages, also to who was faster than the disks."""

    def __init__(self, nodes: ClusterNodes, through: tuple[str, ...] = NAMES) -> None:
        super().__init__(nodes, through)
        self.numbers: dict[int, int] = {}  # by offset
        self.faults: list[str] = []

    def work(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        self.declare(channel, "stream")
        channel.basic_qos(prefetch_count=100)
        begin: object = max(self.numbers, default=None)

        def take(_: object, method: pika.spec.Basic.Deliver, properties: pika.BasicProperties, body: bytes) -> None:
            offset = int(properties.headers["x-stream-offset"])
            before = self.numbers.setdefault(offset, int(body))
            if before != int(body):
                self.faults.append(f"stream: offset {offset} was {before}, and is {int(body)}")
            channel.basic_ack(method.delivery_tag)

        channel.basic_consume("stream", take, arguments={"x-stream-offset": "first" if begin is None else begin})
        while not self.is_over.is_set():
            connection.process_data_events(0.2)


@dataclass
class Books:
    """All clients. `faults`: what is wrong, once `close` has looked."""

    nodes: ClusterNodes
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        nodes = self.nodes
        self.publishing, self.committing, self.repeating = Publishing(nodes), Committing(nodes), Repeating(nodes)
        self.consuming, self.reading = Consuming(nodes), Reading(nodes)
        self._kept: dict[str, int] = {}
        self._clients: tuple[Client, ...] = (
            self.publishing, self.committing, self.repeating, self.consuming, self.reading,
        )  # fmt: skip

    def __enter__(self) -> "Books":
        for one in self._clients:
            one.start()
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._clients:
            one.is_over.set()

    def close(self) -> None:
        """Stop the clients, and compare what is in the queues with the books."""
        for one in self._clients:
            one.stop()
        self.faults += self.consuming.faults + self.reading.faults
        leader = self.nodes.leader()
        for queue in CONSUMED:
            self._check_consumed(queue, self._drain(leader, queue))
        self._check_committed(committed := self._drain(leader, "committed"))
        self._check_once(once := self._drain(leader, "once"))
        self._kept = {"committed": len(committed), "once": len(once)}
        self._check_stream(leader)

    def _drain(self, leader: str, queue: str) -> list[int]:
        """The numbers that are left in a queue, and are acknowledged now."""
        found: list[int] = []
        with self.nodes.channel(leader) as channel:
            count = channel.queue_declare(queue, durable=True, passive=True).method.message_count
            channel.basic_qos(prefetch_count=1000)
            if count:
                for method, _, body in channel.consume(queue, inactivity_timeout=20):
                    if method is None:
                        self.faults.append(f"{queue}: {count - len(found)} messages are ready and do not come")
                        break
                    found.append(int(body))
                    if queue in CONSUMED:
                        self.consuming.note(queue, int(body), is_redelivered=method.redelivered)
                    channel.basic_ack(method.delivery_tag)
                    if len(found) == count:
                        break
                channel.cancel()
                channel.queue_declare("mark", durable=True)  # answered behind the acknowledgements
            left = channel.queue_declare(queue, durable=True, passive=True).method.message_count
        if left:
            self.faults.append(f"{queue}: {left} more messages")
        return found

    def counts(self) -> dict[str, tuple[int, int]]:
        """How many messages of each queue the journal must have, at least and at most, after `close`.

        A classic queue delivers what is not agreed yet: it may have been seen, and be gone with its leader.
        """
        confirmed, seen = self.publishing.confirmed, self.consuming.seen
        return {
            **{queue: (len(confirmed[queue] & seen[queue]), len(seen[queue])) for queue in CONSUMED},
            **{queue: (count, count) for queue, count in self._kept.items()},
        }

    def _check_consumed(self, queue: str, rest: list[int]) -> None:
        self._lost(queue, self.publishing.confirmed[queue] - set(rest) - self.consuming.seen[queue])
        self._doubled(queue, rest)

    def _check_committed(self, found: list[int]) -> None:
        counts = Counter(found)
        self._lost("committed", self.committing.committed - set(counts))
        if torn := {number for number, count in counts.items() if count != COPIES}:
            self.faults.append(f"committed: {len(torn)} transactions are there in part: {stretches(torn)}")

    def _check_once(self, found: list[int]) -> None:
        self._lost("once", set(range(self.repeating.confirmed)) - set(found))
        self._doubled("once", found)

    def _check_stream(self, leader: str) -> None:
        """Read it once more from its beginning, and compare each offset with what was read before."""
        before, again = self.reading.numbers, Reading(self.nodes, (leader,))
        confirmed = self.publishing.confirmed["stream"]
        again.start()
        with suppress(AssertionError):
            until(lambda: confirmed <= set(again.numbers.values()) and before.keys() <= again.numbers.keys(), "", 30)
        again.stop()
        self._kept["stream"] = len(again.numbers)
        self._lost("stream", confirmed - set(again.numbers.values()))
        self._doubled("stream", list(again.numbers.values()))
        wrong = {offset for offset, number in before.items() if again.numbers.get(offset) != number}
        if wrong:
            self.faults.append(f"stream: {len(wrong)} offsets mean other messages, or none: {stretches(wrong)}")

    def _lost(self, queue: str, lost: set[int]) -> None:
        if lost:
            self.faults.append(f"{queue}: {len(lost)} confirmed messages are lost: {stretches(lost)}")

    def _doubled(self, queue: str, found: list[int]) -> None:
        if doubled := {number for number, count in Counter(found).items() if count > 1}:
            self.faults.append(f"{queue}: {len(doubled)} messages are there twice: {stretches(doubled)}")

    def summary(self) -> str:
        """In one line."""
        acknowledged = sum(map(len, self.consuming.acknowledged.values()))
        return (
            f"{self.publishing.count} confirmed, {acknowledged} acknowledged, {len(self.committing.committed)} "
            f"transactions, {self.repeating.confirmed} once ({self.repeating.repeated} repeated)"
        )
