"""A queue with other settings: the recorded arrivals and consumers, through the real engine in virtual time.

The model of consumers: each recorded delivery was credit for one message; unused credit remains until a message
arrives. A message takes as long as its last recorded delivery did, and fails as often. So consumers that were absent
are absent again, and none are assumed to be faster than they were.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from ...engine import PLAIN, Broker, Envelope, ManualClock, PropertyFacts, User, Users, encode_header
from ...settings import SettingsRepository, load_configuration

MS = 1_000_000
#: Counters that are compared.
WHAT = ("enqueued", "acknowledged", "requeued", "expired", "killed", "replaced", "dropped")


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message: its time (milliseconds) and properties. `failures`: how often it was requeued."""

    ms: int
    size_bytes: int = 0
    priority: int = 0
    expiration_ms: int | None = None
    service_ms: int = 0
    failures: int = 0


def simulate(queue_name: str, arrivals: Iterable[Arrival], offers_ms: Iterable[int], settings: str) -> dict[str, int]:
    """Counters of the queue, and `open`: the messages in it at the end.

    `settings`: TOML as `leveret serve --config` reads it. Raises: ValueError (faulty settings).
    """
    configuration, faults = load_configuration([("settings", settings)])
    if faults:
        raise ValueError("; ".join(map(str, faults)))
    simulation = _Simulation(queue_name, configuration.repository)
    simulation.plan(arrivals, offers_ms)
    simulation.run()
    return simulation.counters()


class _Simulation:
    """One queue in a broker on virtual time, and what is still to happen to it."""

    def __init__(self, queue_name: str, repository: SettingsRepository) -> None:
        self.clock = ManualClock()
        guest = User("guest")
        self.broker = Broker(self.clock, Users([guest]), settings=repository)
        client = self.broker.connect("/", guest, name="what if", flush=lambda: None)
        self.session = client.open_session()
        vhost = self.broker.virtual_hosts["/"]
        vhost.declare_queue(queue_name, client=client)
        self.queue = vhost.queue(queue_name)
        self.route = vhost.route("", queue_name, guest)
        self.known: dict[int, Arrival] = {}  # by message id
        self.tries: dict[int, int] = {}  # settled deliveries, by message id
        self.unacked: dict[int, int] = {}  # delivery tag -> message id
        self.credit = 0
        #: A heap of (ms, order, delivery tag, arrival); tag -1: credit for one.
        self.steps: list[tuple[int, int, int, Arrival | None]] = []
        self.order = 0

    def plan(self, arrivals: Iterable[Arrival], offers_ms: Iterable[int]) -> None:
        """Arrivals first: at one instant they come before credit."""
        for order, arrival in enumerate(arrivals):
            self.steps.append((arrival.ms, order, 0, arrival))
        base = len(self.steps)
        self.steps += [(ms, base + order, -1, None) for order, ms in enumerate(offers_ms)]
        heapq.heapify(self.steps)
        self.order = len(self.steps)

    def run(self) -> None:
        """Step by step, until nothing is left."""
        begin = self.steps[0][0] if self.steps else 0
        while self.steps:
            ms, _, tag, arrival = heapq.heappop(self.steps)
            _advance(self.broker, self.clock, (ms - begin) * MS)
            if arrival is not None:
                self._publish(arrival)
            elif tag < 0:
                self.credit += 1
            else:
                self._settle(tag)
            self.broker.end_turn()
            self._deliver(ms)

    def counters(self) -> dict[str, int]:
        """`WHAT`, and `open`."""
        counters = self.broker.statistics().counters
        found = {name: counters[name] for name in WHAT}
        found["open"] = found["enqueued"] - sum(
            found[name] for name in ("acknowledged", "expired", "killed", "replaced")
        )
        return found

    def _publish(self, arrival: Arrival) -> None:
        self.known[self.broker.next_id] = arrival
        expiration = None if arrival.expiration_ms is None else b"%d" % max(arrival.expiration_ms, 0)
        facts = PropertyFacts(persistent=True, priority=arrival.priority or None, expiration=expiration)
        blob = PLAIN.join(encode_header(arrival.size_bytes), bytes(arrival.size_bytes))
        self.session.publish(self.route, Envelope("", self.queue.name, facts), [blob], mandatory=False)

    def _settle(self, tag: int) -> None:
        id_ = self.unacked.pop(tag)
        self.tries[id_] = self.tries.get(id_, 0) + 1
        if self.tries[id_] <= self.known[id_].failures:
            self.session.reject(tag, requeue=True)
        else:
            self.session.ack(tag)

    def _deliver(self, now_ms: int) -> None:
        """As many as there is credit for; each is settled after its service time."""
        while self.credit and (got := self.session.get(self.queue, no_ack=False)) is not None:
            tag, message, *_ = got
            self.credit -= 1
            self.unacked[tag] = message.id
            self.order += 1
            heapq.heappush(self.steps, (now_ms + self.known[message.id].service_ms, self.order, tag, None))


def _advance(broker: Broker, clock: ManualClock, until_ns: int) -> None:
    """Advance deadline by deadline."""
    while (due := broker.next_deadline_ns()) is not None and due <= until_ns:
        clock.advance_ns(max(0, due - clock.monotonic_ns()))
        broker.advance()
        broker.end_turn()
    clock.advance_ns(max(0, until_ns - clock.monotonic_ns()))
