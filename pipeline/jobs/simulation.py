"""Simulates a queue with other settings: recorded arrivals and consumers, in the real engine on virtual time.

The model of consumers: each recorded delivery is credit for one message, which stays until a message arrives. A
delivery takes as long, and ends in the same way, as in the recording (attempts.py). So a consumer that was absent is
absent again, and none is faster than it was. A start of the broker returns all unacknowledged messages; the journal
does not record these returns, so they are not counted here.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ...engine import (
    NATIVE,
    NOTE_PREFIX,
    Broker,
    EngineError,
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
#: Counters of the engine that are compared with the recording.
COMPARED = ("enqueued", "acknowledged", "requeued", "expired", "killed", "replaced", "dropped")
#: Reasons of events that are no return: another client acknowledged the message, it expired, or it was published with a
#: delay.
NO_RETURN = ("taken_over", "lifetime", "published")
#: Arguments that select messages by content or topic. They are left out: the recorded arrivals were already selected.
SELECTING_ARGUMENTS = (
    "x-queue-filter",
    "x-priority-expr",
    "x-barrier-expr",
    "x-underlying-topic",
    "x-default-publish-target",
)
ONCE = (Attempt(),)
#: Acts of the broker in `_Step`.
STOP, START = "stop", "start"
#: Acts of operators and clients: messages are removed (purged, moved, cancelled), or the queue is deleted.
REMOVE, DELETE = "remove", "delete"
#: Milliseconds by which a simulated lease may end later than the recorded one, because times are rounded.
SLACK_MS = 1
#: A credit at the beginning that is never used up.
UNLIMITED = -1


class Removal(NamedTuple):
    """When an operator or a client removed a message, if it was still in the queue. `act`: REMOVE, or DELETE."""

    ms: int
    lsn: int
    act: str


@dataclass(frozen=True, slots=True)
class Arrival:
    """The arrival of a message: time (milliseconds) and properties. `lsn`: of its record.

    attempts: the outcomes of its deliveries; further deliveries are acknowledged. is_durable: it outlives a start of
    the broker.
    """

    ms: int
    size_bytes: int = 0
    priority: int = 0
    expiration_ms: int | None = None
    attempts: tuple[Attempt, ...] = ONCE
    lsn: int = 0
    is_durable: bool = True
    removal: Removal | None = None


class Instant(NamedTuple):
    """The time (milliseconds) and LSN of a recorded delivery, which is credit for one message."""

    ms: int
    lsn: int = 0


class Start(NamedTuple):
    """A start of the broker: its time (milliseconds) and LSN. `stopped_ms`: the time of the last event before it."""

    ms: int
    lsn: int = 0
    stopped_ms: int | None = None

    @property
    def stop_ms(self) -> int:
        """When the broker counts as stopped."""
        return self.ms if self.stopped_ms is None else min(self.stopped_ms + SLACK_MS, self.ms)


class Simulated(NamedTuple):
    """A simulation of a queue.

    counts: those of `COMPARED`; `open`: messages in the queue at the end; `margin`: the possible error.
    is_quiet: the queue is empty at the end, so that what follows depends only on the credit that is left.
    credit: left at the end, `adds_credit`: beside that of the beginning. credit_needed: if the credit at the beginning
    was unlimited, the least one with which the same would have happened.
    needs_contents: the counts are wrong, because last-value keys are in the contents of messages.
    """

    counts: dict[str, int]
    is_quiet: bool
    credit: int
    credit_needed: int
    adds_credit: bool
    needs_contents: bool


class _Step(NamedTuple):
    """An arrival, the end of a delivery (it has a `session`), another `act` than ACK, or else credit.

    Steps in the same millisecond are sorted by `lsn`, the order of the recording.
    """

    ms: int
    lsn: int
    order: int
    arrival: Arrival | None = None
    tag: int = 0
    session: Session | None = None
    act: str = ACK


def read_settings(settings: str) -> Configuration:
    """Parse TOML as `leveret serve --config` does. Raises: ValueError (faulty settings)."""
    configuration, faults = load_configuration([("settings", settings)])
    if faults:
        raise ValueError("; ".join(map(str, faults)))
    return configuration


def simulate(
    queue_name: str,
    arrivals: Iterable[Arrival],
    credits: Iterable[Instant],
    settings: str,
    *,
    vhost: str = "/",
    declared: Mapping[str, object] | None = None,
    starts: Iterable[Start] = (),
    until_ms: int = 0,
    credit: int = 0,
    is_cut: bool = False,
) -> Simulated:
    """Simulate a queue.

    Args:   settings: see `read_settings`. declared: the arguments of the declaration; an entry of the queue in the
            settings replaces them. starts: of the broker. until_ms: the end of the recording. credit: at the beginning,
            or UNLIMITED. is_cut: the recording goes on at `until_ms`, with steps that are not given here.
    Raises: ValueError (faulty settings, arguments that no queue can have).
    """
    configuration = read_settings(settings)
    entry = next((one for one in configuration.queues if (one.vhost, one.name) == (vhost, queue_name)), None)
    arguments = declared or {} if entry is None else entry.arguments
    simulation = _Simulation(queue_name, vhost, arguments, configuration, credit)
    simulation.plan(arrivals, credits, starts)
    simulation.run(until_ms, is_cut=is_cut)
    return simulation.result()


class _Simulation:
    """One queue in a broker on virtual time, and the steps that are still to be done."""

    def __init__(
        self,
        queue_name: str,
        vhost_name: str,
        arguments: Mapping[str, object],
        configuration: Configuration,
        credit: int,
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
        known = {
            key: value
            for key, value in arguments.items()
            if key not in SELECTING_ARGUMENTS and not key.startswith(NOTE_PREFIX)
        }
        about = table_of_json(known)
        is_named = queue_name.startswith("amq.")
        try:
            vhost.queues.declare(queue_name, client=self.client, durable=True, arguments=about, server_named=is_named)
        except EngineError as error:
            why = f"{type(error).__name__}, {error}"
            raise ValueError(f"the queue {queue_name} ({vhost_name}) cannot be simulated: {why}") from error
        self.queue = vhost.queues.named(queue_name)
        self.route = vhost.router.route("", queue_name, guest)
        self.publisher = self.client.open_session()
        # A session has one delivery at a time, so that closing it ends only this delivery.
        self.free: list[Session] = []
        self.busy: set[Session] = set()
        self.arrivals: dict[int, Arrival] = {}  # by message id
        self.deliveries: dict[int, int] = {}  # count, by message id
        self.is_unlimited = credit == UNLIMITED  # then `credit` is how much more there is than at the beginning
        self.credit = 0 if self.is_unlimited else credit
        self.credit_needed = 0
        self.is_stopped = False
        self.is_starting = False
        self.returned = 0
        self.ended = 0  # transient messages that a start of the broker ended
        self.released: set[int] = set()  # LATE messages: their leases have ended in the recording, not in the engine
        self.broker.context.listeners.append(self._listen)
        self.begin_ms = 0
        # Steps in the same millisecond as another one, in a queue where their order matters; and messages that expired,
        # or whose lease ended, in a millisecond of `slack`, which is behind the last recorded event before a start.
        self.margin = 0
        self.slack: set[int] = set()
        self.removed: dict[tuple[int, str], set[int]] = {}  # by time and act, the identities of the arrivals
        self.steps: list[_Step] = []  # a heap
        self.order = 0

    def plan(self, arrivals: Iterable[Arrival], credits: Iterable[Instant], starts: Iterable[Start]) -> None:
        """Add all steps. Arrivals are added before credit, which they precede where the recording has no order."""
        for start in starts:
            if start.stopped_ms is not None:
                self._expect(start.stop_ms, start.lsn, act=STOP)
                self.slack.add(start.stopped_ms + SLACK_MS)
            self._expect(start.ms, start.lsn, act=START)
        for arrival in arrivals:
            self._expect(arrival.ms, arrival.lsn, arrival=arrival)
            if arrival.removal is not None:
                ms, lsn, act = arrival.removal
                if (ms, act) not in self.removed:
                    self._expect(ms, lsn, act=act)
                self.removed.setdefault((ms, act), set()).add(id(arrival))
        for ms, lsn in credits:
            self._expect(ms, lsn)
        rules = self.queue.rules
        bounds = (rules.levels, rules.ring_size, rules.max_length, rules.max_length_bytes)
        if any(bound is not None for bound in bounds):
            together = Counter(step.ms for step in self.steps)
            self.margin += sum(count for count in together.values() if count > 1)

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

    def run(self, until_ms: int, *, is_cut: bool) -> None:
        """Do all steps, and let the time pass until `until_ms` (0: until no step is left).

        Acts that are due later are done then, since the simulation delivers up to a millisecond later than recorded. If
        the recording goes on (`is_cut`), acts that are due at `until_ms` or later are left.
        """
        self.begin_ms = now_ms = self.steps[0].ms if self.steps else 0
        while now_ms < until_ms or (self.steps and not is_cut):
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
            elif step.act == STOP:
                self.is_stopped = True
            elif step.act == REMOVE:
                self._remove(self.removed[step.ms, REMOVE])
            elif step.act == DELETE:
                self._disconnect()
                self.queue.purge()
            elif step.session is None:
                self.credit += 1
            else:
                self._settle(step.session, step.tag, step.act)
            if not (step.session and self.steps and self.steps[0].session and self.steps[0].ms == step.ms):
                self.broker.end_turn()  # acts of consumers in one millisecond are one turn
                self._deliver(step.ms)

    def _pass_time(self, until_ms: int) -> int:
        """Let the time pass until the broker's next deadline, but at most until `until_ms`, and deliver then.

        A stopped broker has no deadlines. Returns the time in milliseconds.
        """
        now_ns, end_ns = self.clock.monotonic_ns(), (until_ms - self.begin_ms) * MS
        due_ns = None if self.is_stopped else self.broker.next_deadline_ns()
        if due_ns is None or due_ns > end_ns:
            self.clock.advance_ns(end_ns - now_ns)
            return until_ms
        now_ms = self.begin_ms + self.clock.advance_ns(max(0, due_ns - now_ns)) // MS
        before = self._ended() if now_ms in self.slack else None
        self.broker.advance()
        self.broker.end_turn()
        if before is not None:
            self.margin += self._ended() - before
        self._deliver(now_ms)
        return now_ms

    def _ended(self) -> int:
        """The number of messages that expired, and of returns."""
        return self.broker.statistics().counters["expired"] + self.returned

    def result(self) -> Simulated:
        counters = self.broker.statistics().counters
        found = {name: counters[name] for name in COMPARED}
        found["margin"] = self.margin
        found["requeued"] = self.returned
        queue = self.queue
        left = queue.ready_count + queue.unacked + len(queue.scheduled)
        found["open"] = left + self.ended
        is_quiet = not left and queue.timers.unused is None  # that timer ends an unused queue
        needs_contents = queue.rules.last_value_key is not None
        return Simulated(found, is_quiet, self.credit, self.credit_needed, self.is_unlimited, needs_contents)

    def _listen(self, event: Event) -> None:
        """Count returns, as `lives.RETURNED` does in the recording."""
        kinds = (EventKind.REQUEUED, EventKind.SCHEDULED, EventKind.LEASE_ENDED)
        if event.kind in kinds and not self.is_starting and (event.detail or {}).get("why") not in NO_RETURN:
            self.returned += len(set(event.messages) - self.released)

    def _publish(self, arrival: Arrival) -> None:
        self.arrivals[self.broker.context.next_id] = arrival
        expiration = None if arrival.expiration_ms is None else b"%d" % max(arrival.expiration_ms, 0)
        facts = PropertySummary(persistent=True, priority=arrival.priority or None, expiration=expiration)
        content = NATIVE.join(encode_header(arrival.size_bytes), bytes(arrival.size_bytes))
        self.publisher.publish(self.route, Envelope("", self.queue.name, facts), [content], mandatory=False)

    def _start(self) -> None:
        """Simulate a start of the broker: it has no clients, and counts attempts as in the recording."""
        self.is_stopped = False
        self._disconnect()
        self.ended += self._take(lambda arrival: not arrival.is_durable)
        self._forget_leases()
        for message in self.queue.messages():
            following = self.arrivals[message.id].attempts[self.deliveries.get(message.id, 0) :][:1]
            if following and following[0].number:
                message.deliveries, message.uncounted = following[0].number - 1, 0

    def _disconnect(self) -> None:
        """End all consumers. Nothing that they return counts."""
        self.is_starting = True
        for message in self.queue.unacked_messages():
            message.deliveries = 0  # so that this return does not reach the delivery limit
            if not self.arrivals[message.id].is_durable:
                message.expires_ns = 0  # it ends with the start, even if its time is over
        for session in self.busy:
            session.close(failed=False)
        self.busy.clear()
        self.broker.end_turn()
        self.is_starting = self.is_unlimited = False
        self.credit = 0

    def _remove(self, arrivals: set[int]) -> None:
        """Remove the messages of these arrivals (their identities), if they are still there and not delivered."""
        self._take(lambda arrival: id(arrival) in arrivals)

    def _take(self, is_gone: Callable[[Arrival], bool]) -> int:
        """Remove ready and scheduled messages. Returns their number."""
        queue = self.queue
        found = queue.store.scan(0, len(self.arrivals)).found
        count = 0
        if positions := [at for at, message in found if is_gone(self.arrivals[message.id])]:
            gone = queue.evictable.take_at(positions)
            queue.events.purged(gone.messages, gone.unread)
            count += len(positions)
            queue.expire_now()  # the new first message may be overdue
        for message in list(queue.scheduled):
            if is_gone(self.arrivals[message.id]):
                queue.scheduled.take(message.id)
                queue.events.cancelled(message)
                count += 1
        return count

    def _forget_leases(self) -> None:
        """Clear the book of leases, as a start does. Attempts begin anew, so an old note would end a new lease."""
        leases = getattr(self.queue.intake, "leases", None)
        if leases is None:
            return
        leases.book.cancels.clear()
        for period_ms in (0, leases.rules.settings.lease_period_ms or 0):  # without a period there are no notes
            leases.book.change_period(period_ms * MS, self.clock.monotonic_ns())

    def _settle(self, session: Session, tag: int, act: str) -> None:
        if session not in self.busy:  # a start of the broker has closed it
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
        """Deliver messages while there is credit, and plan the end of each delivery as recorded."""
        while self.credit > 0 or self.is_unlimited:
            session = self.free.pop() if self.free else self.client.open_session()
            got = session.get(self.queue, no_ack=False)
            if got is None:
                self.free.append(session)
                return
            tag, message, *_ = got
            self.credit -= 1
            self.credit_needed = max(self.credit_needed, -self.credit)
            self.busy.add(session)
            attempts = self.arrivals[message.id].attempts
            count = self.deliveries[message.id] = self.deliveries.get(message.id, 0) + 1
            attempt = attempts[count - 1] if count <= len(attempts) else Attempt(attempts[-1].ms if attempts else 0)
            if attempt.act == LATE:
                self.released.add(message.id)
                self.returned += 1
                self._expect(now_ms + attempt.late_ms, attempt.lsn, tag=tag, session=session)
            elif attempt.act != HOLD:
                self._expect(now_ms + attempt.ms, attempt.lsn, tag=tag, session=session, act=attempt.act)
