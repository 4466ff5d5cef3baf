"""A queue with other settings: the recorded arrivals and consumers, through the real engine in virtual time.

The model of consumers: each recorded delivery was credit for one message; unused credit remains until a message
arrives. A message takes as long as its last recorded delivery did, and fails as often. So consumers that were absent
are absent again, and none are assumed to be faster than they were.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from ...engine import Broker, ManualClock, User, Users
from ...engine.messages.content import PLAIN, PropertyFacts, encode_header
from ...engine.messages.message import Envelope
from ...settings import load_configuration

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
    clock = ManualClock()
    guest = User("guest")
    broker = Broker(clock, Users([guest]), settings=configuration.repository)
    session = broker.connect("/", guest, name="what if", flush=lambda: None).open_session()
    vhost = broker.virtual_hosts["/"]
    vhost.declare_queue(queue_name, client=session.client)
    queue = vhost.queue(queue_name)
    route = vhost.route("", queue_name, guest)
    known: dict[int, Arrival] = {}
    tries: dict[int, int] = {}
    plan: list[tuple[int, int, int, Arrival | None]] = []  # (ms, order, delivery tag, arrival); tag -1: credit for one
    for order, arrival in enumerate(arrivals):
        plan.append((arrival.ms, order, 0, arrival))
    base = len(plan)
    plan += [(ms, base + order, -1, None) for order, ms in enumerate(offers_ms)]
    heapq.heapify(plan)
    begin = plan[0][0] if plan else 0
    order, room = len(plan), 0
    held: dict[int, int] = {}  # delivery tag -> message
    while plan:
        ms, _, tag, came = heapq.heappop(plan)
        _advance(broker, clock, (ms - begin) * MS)
        if came is not None:
            known[broker.next_id] = came
            expiration = None if came.expiration_ms is None else b"%d" % max(came.expiration_ms, 0)
            facts = PropertyFacts(persistent=True, priority=came.priority or None, expiration=expiration)
            blob = PLAIN.join(encode_header(came.size_bytes), bytes(came.size_bytes))
            session.publish(route, Envelope("", queue_name, facts), [blob], mandatory=False)
        elif tag < 0:
            room += 1
        else:
            id_ = held.pop(tag)
            tries[id_] = tries.get(id_, 0) + 1
            if tries[id_] <= known[id_].failures:
                session.reject(tag, requeue=True)
            else:
                session.ack(tag)
        broker.end_turn()
        while room and (got := session.get(queue, no_ack=False)) is not None:
            room -= 1
            held[got[0]] = got[1].id
            order += 1
            heapq.heappush(plan, (ms + known[got[1].id].service_ms, order, got[0], None))
    counters = broker.statistics().counters
    told = {name: counters[name] for name in WHAT}
    told["open"] = told["enqueued"] - sum(told[name] for name in ("acknowledged", "expired", "killed", "replaced"))
    return told


def _advance(broker: Broker, clock: ManualClock, until_ns: int) -> None:
    """Advance deadline by deadline."""
    while (due := broker.next_deadline_ns()) is not None and due <= until_ns:
        clock.advance_ns(max(0, due - clock.monotonic_ns()))
        broker.advance()
        broker.end_turn()
    clock.advance_ns(max(0, until_ns - clock.monotonic_ns()))
