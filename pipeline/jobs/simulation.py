"""A queue with other settings: the recorded arrivals and consumers, through the real engine in virtual time.

The model of consumers: each recorded delivery was credit for one message; unused credit remains until a message
arrives. A message is held as long, and ends as, it did at each of its recorded deliveries (attempts.py). So consumers
that were absent are absent again, and none are assumed to be faster than they were. When the broker was started anew,
what was out was back in its place, and nothing of that is recorded or counted.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ...engine import (
    PLAIN,
    Broker,
    Envelope,
    Event,
    EventKind,
    ManualClock,
    PropertySummary,
    Session,
    User,
    Users,
    encode_header,
    table_of_json,
)
from ...settings import Configuration, load_configuration
from .attempts import ACK, CLOSE, HOLD, LATE, LOSE, REQUEUE, Attempt

MS = 1_000_000
#: Counters that are compared.
WHAT = ("enqueued", "acknowledged", "requeued", "expired", "killed", "replaced", "dropped")
#: Reasons that are no return: another client took the message, it expired, or it was delayed from the start.
NO_RETURN = ("taken_over", "lifetime", "published")
#: Arguments that look into contents, or at topics: what was recorded was captured.
OF_CONTENTS = (
    "x-queue-filter",
    "x-priority-expr",
    "x-barrier-expr",
    "x-underlying-topic",
    "x-default-publish-target",
)
ONCE = (Attempt(),)
#: What a step does that is no consumer's.
START = "start"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message: its time (milliseconds) and properties. `attempts`: what becomes of its deliveries, one after another;
    of those beyond the last: an acknowledgement. `lsn`: of its record. One that is not durable ends with the broker."""

    ms: int
    size_bytes: int = 0
    priority: int = 0
    expiration_ms: int | None = None
    attempts: tuple[Attempt, ...] = ONCE
    lsn: int = 0
    is_durable: bool = True


class Credit(NamedTuple):
    """Credit for one delivery: its time (milliseconds), and the record of the delivery. Or a start of the broker."""

    ms: int
    lsn: int = 0


class _Step(NamedTuple):
    """An arrival; else, of a delivery (`tag` at a session), how it ends; else a start of the broker, or credit for one
    delivery.

    What happens in the same millisecond happens in the order in which it was recorded (`lsn`).
    """

    ms: int
    lsn: int
    order: int
    arrival: Arrival | None = None
    tag: int = 0
    session: Session | None = None
    act: str = ACK


def read_settings(settings: str) -> Configuration:
    """TOML as `leveret serve --config` reads it. Raises: ValueError (faulty settings)."""
    configuration, faults = load_configuration([("settings", settings)])
    if faults:
        raise ValueError("; ".join(map(str, faults)))
    return configuration


def simulate(
    queue_name: str,
    arrivals: Iterable[Arrival],
    offers: Iterable[Credit],
    settings: str,
    *,
    vhost: str = "/",
    declared: Mapping[str, object] | None = None,
    starts: Iterable[Credit] = (),
    until_ms: int = 0,
) -> dict[str, int]:
    """Counters of the queue; `open`: the messages in it at the end; `untold`: by how many messages each may be wrong.

    Args:   settings: see `read_settings`. declared: the arguments that the queue was declared with; those of its entry
            in the settings replace them. starts: of the broker. until_ms: when the recording ends.
    Raises: ValueError (faulty settings), EngineError (arguments that no queue can have).
    """
    configuration = read_settings(settings)
    entry = next((one for one in configuration.queues if (one.vhost, one.name) == (vhost, queue_name)), None)
    arguments = declared or {} if entry is None else entry.arguments
    simulation = _Simulation(queue_name, vhost, arguments, configuration)
    simulation.plan(arrivals, offers, starts)
    simulation.run(until_ms)
    return simulation.counters()


class _Simulation:
    """One queue in a broker on virtual time, and what is still to happen to it."""

    def __init__(
        self, queue_name: str, vhost_name: str, arguments: Mapping[str, object], configuration: Configuration
    ) -> None:
        self.clock = ManualClock()
        guest = User("guest")
        self.broker = Broker(self.clock, Users([guest]), settings=configuration.repository)
        if vhost_name not in self.broker.virtual_hosts:
            self.broker.virtual_hosts.create(vhost_name)
        if configuration.policies:
            self.broker.reloading.replace_policies(self.broker.context.policies.with_these(configuration.policies))
        self.client = self.broker.connections.open(vhost_name, guest, name="what if", flush=lambda: None)
        vhost = self.broker.virtual_hosts[vhost_name]
        known = {key: value for key, value in arguments.items() if key not in OF_CONTENTS}
        vhost.queues.declare(queue_name, client=self.client, durable=True, arguments=table_of_json(known))
        self.queue = vhost.queues.named(queue_name)
        self.route = vhost.router.route("", queue_name, guest)
        self.publisher = self.client.open_session()
        self.free: list[Session] = []  # for one delivery at a time: it may be closed alone
        self.busy: set[Session] = set()  # with a delivery that is out
        self.known: dict[int, Arrival] = {}  # by message id
        self.tries: dict[int, int] = {}  # deliveries, by message id
        self.credit = 0
        self.is_starting = False
        self.returned = 0
        self.ended = 0  # with the broker
        self.released: set[int] = set()  # leases that have ended here, though the engine does not know
        self.broker.context.listeners.append(self._listen)
        self.begin_ms = 0
        #: What happened in the same millisecond as something else, in a queue where it matters what was one turn: that
        #: is not recorded.
        self.untold = 0
        self.steps: list[_Step] = []  # a heap
        self.order = 0

    def plan(self, arrivals: Iterable[Arrival], offers: Iterable[Credit], starts: Iterable[Credit]) -> None:
        """Arrivals first: where no order is recorded they come before credit."""
        for ms, lsn in starts:
            self._expect(ms, lsn, act=START)
        for arrival in arrivals:
            self._expect(arrival.ms, arrival.lsn, arrival=arrival)
        for ms, lsn in offers:
            self._expect(ms, lsn)
        rules = self.queue.rules
        bounds = (rules.levels, rules.ring_size, rules.last_value_key, rules.max_length, rules.max_length_bytes)
        if any(bound is not None for bound in bounds):
            together = Counter(step.ms for step in self.steps)
            self.untold = sum(count for count in together.values() if count > 1)

    def _expect(
        self,
        ms: int,
        lsn: int,
        *,
        arrival: Arrival | None = None,
        tag: int = 0,
        session: Session | None = None,
        act: str = ACK,
    ) -> None:
        self.order += 1
        heapq.heappush(self.steps, _Step(ms, lsn, self.order, arrival, tag, session, act))

    def run(self, until_ms: int) -> None:
        """Step by step, and on to the end (0: until nothing is left). What a consumer does later is done at the end:
        its delivery was recorded up to a millisecond earlier than the simulation gives it."""
        self.begin_ms = now_ms = self.steps[0].ms if self.steps else 0
        while self.steps or now_ms < until_ms:
            next_ms = self.steps[0].ms if self.steps else until_ms
            if until_ms:
                next_ms = min(next_ms, max(until_ms, now_ms))
            if next_ms > now_ms:
                now_ms = self._pass_time(next_ms)
                continue
            step = heapq.heappop(self.steps)
            if step.arrival is not None:
                self._publish(step.arrival)
            elif step.act == START:
                self._start()
            elif step.session is None:
                self.credit += 1
            else:
                self._settle(step.session, step.tag, step.act)
            if not (step.session and self.steps and self.steps[0].session and self.steps[0].ms == step.ms):
                self.broker.end_turn()  # what consumers do in one millisecond is one turn
                self._deliver(step.ms)

    def _pass_time(self, until_ms: int) -> int:
        """Move the time to the next deadline, at which consumers with credit take what became ready, else to
        `until_ms`. Returns: the time in milliseconds."""
        now_ns, end_ns = self.clock.monotonic_ns(), (until_ms - self.begin_ms) * MS
        due_ns = self.broker.next_deadline_ns()
        if due_ns is None or due_ns > end_ns:
            self.clock.advance_ns(end_ns - now_ns)
            return until_ms
        now_ms = self.begin_ms + self.clock.advance_ns(max(0, due_ns - now_ns)) // MS
        self.broker.advance()
        self.broker.end_turn()
        self._deliver(now_ms)
        return now_ms

    def counters(self) -> dict[str, int]:
        """`WHAT`, `open` and `untold`."""
        counters = self.broker.statistics().counters
        found = {name: counters[name] for name in WHAT}
        found["untold"] = self.untold
        found["requeued"] = self.returned
        queue = self.queue
        found["open"] = queue.ready_count + queue.unacked + len(queue.scheduled) + self.ended
        return found

    def _listen(self, event: Event) -> None:
        """Count returns, as `lives.RETURNED` does."""
        kinds = (EventKind.REQUEUED, EventKind.SCHEDULED, EventKind.LEASE_ENDED)
        if event.kind in kinds and not self.is_starting and (event.detail or {}).get("why") not in NO_RETURN:
            self.returned += len(set(event.messages) - self.released)

    def _publish(self, arrival: Arrival) -> None:
        self.known[self.broker.context.next_id] = arrival
        expiration = None if arrival.expiration_ms is None else b"%d" % max(arrival.expiration_ms, 0)
        facts = PropertySummary(persistent=True, priority=arrival.priority or None, expiration=expiration)
        content = PLAIN.join(encode_header(arrival.size_bytes), bytes(arrival.size_bytes))
        self.publisher.publish(self.route, Envelope("", self.queue.name, facts), [content], mandatory=False)

    def _start(self) -> None:
        """No client is left of before, and messages are counted as the broker went on counting them."""
        self.is_starting = True
        for message in self.queue.unacked_messages():
            message.deliveries = 0  # else it might die of this one
        for session in self.busy:
            session.close(failed=False)
        self.busy.clear()
        self.broker.end_turn()
        self._end_transient()
        self._forget_leases()
        self.is_starting = False
        self.credit = 0
        for message in self.queue.messages():
            following = self.known[message.id].attempts[self.tries.get(message.id, 0) :][:1]
            if following and following[0].number:
                message.deliveries, message.uncounted = following[0].number - 1, 0

    def _end_transient(self) -> None:
        """Take out what is not durable."""
        queue = self.queue
        found = queue.store.scan(0, len(self.known)).found
        if positions := [at for at, message in found if not self.known[message.id].is_durable]:
            gone = queue.perishable.take_at(positions)
            queue.events.purged(gone.messages, gone.unread)
            self.ended += len(positions)
            queue.expire_now()  # what is first now may be too old
        for message in list(queue.scheduled):
            if not self.known[message.id].is_durable:
                queue.scheduled.take(message.id)
                queue.events.cancelled(message)
                self.ended += 1

    def _forget_leases(self) -> None:
        """The book of a leased queue does not survive. Its messages count anew, so that a note of a lease before would
        end the next one."""
        leases = getattr(self.queue.intake, "leases", None)
        if leases is None:
            return
        leases.book.cancels.clear()
        for period_ms in (0, leases.rules.settings.lease_period_ms or 0):  # without a period there are no notes
            leases.book.change_period(period_ms * MS, self.clock.monotonic_ns())

    def _settle(self, session: Session, tag: int, act: str) -> None:
        if session not in self.busy:  # it ended with a start of the broker
            return
        self.busy.remove(session)
        if act in (CLOSE, LOSE):
            session.close(failed=act == LOSE)
            return
        if act == ACK:
            session.ack(tag)
        else:
            session.reject(tag, requeue=act == REQUEUE)
        self.free.append(session)

    def _deliver(self, now_ms: int) -> None:
        """Deliver as many messages as there is credit for; each delivery ends as it was recorded."""
        while self.credit:
            session = self.free.pop() if self.free else self.client.open_session()
            got = session.get(self.queue, no_ack=False)
            if got is None:
                self.free.append(session)
                return
            tag, message, *_ = got
            self.credit -= 1
            self.busy.add(session)
            attempts = self.known[message.id].attempts
            count = self.tries[message.id] = self.tries.get(message.id, 0) + 1
            attempt = attempts[count - 1] if count <= len(attempts) else Attempt(attempts[-1].ms if attempts else 0)
            if attempt.act == LATE:
                self.released.add(message.id)
                self.returned += 1
                self._expect(now_ms + attempt.late_ms, attempt.lsn, tag=tag, session=session)
            elif attempt.act != HOLD:
                self._expect(now_ms + attempt.ms, attempt.lsn, tag=tag, session=session, act=attempt.act)
