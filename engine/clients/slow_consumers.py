"""Finds slow consumers by the rules of their queues, and cancels them, closes their connections or reports them.

Deliveries and acknowledgements do no work for this. A periodic check samples each watched consumer (`Sample`) and
compares the sample with the one before. All checks share one deadline; without rules for slow consumers there is none.
Source: queues page E.1, E.6; address-settings page 3.6 (slow-consumer-threshold).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ..clock import MS, due_after
from ..context import BrokerContext
from ..deadlines import Deadline
from ..delivery.consumer import Consumer
from ..errors import ConnectionForced
from ..messages.message import Message
from ..queues import consumers
from ..queues.queue import Queue
from ..rules.slow_rules import AbortRules, RateRules
from .settling import requeue_run

if TYPE_CHECKING:
    from .session import Session

#: Time for a client to acknowledge the deliveries of a cancelled consumer before they are requeued.
GRACE_MS = 1000
#: Queues checked in one slice (about 5 ms), and messages requeued in one.
QUEUES_SLICE, MESSAGES_SLICE = 200, 500
CANCELLED, CLOSED, REPORTED = "cancelled", "closed", "reported"


class SlowConsumer(NamedTuple):
    """A consumer found slow. `why`: a text for operators; `action`: CANCELLED, CLOSED (its connection) or REPORTED."""

    vhost: str
    queue: str
    tag: str
    client: str
    why: str
    action: str


class Sample:
    """The state of one consumer at a check. `newest`: the tag of its newest unacknowledged delivery. `settled`: the
    number of settled deliveries of its session.

    `got_ns`, `settled_ns`: since when `newest`, or `settled`, counts as unchanged (monotonic ns).
    `slow_checks`: checks in a row that saw no credit and no new delivery although messages waited.
    """

    __slots__ = ("got_ns", "newest", "settled", "settled_ns", "slow_checks")

    def __init__(self, consumer: Consumer, now_ns: int) -> None:
        self.got_ns = self.settled_ns = now_ns
        self.slow_checks = 0
        self.newest, self.settled = newest_of(consumer), settled_by(consumer.session)


@dataclass(slots=True, eq=False)
class Check:
    """The check of all queues with one kind of rules and one period.

    `queues`: with the number of messages that each had received until the last check.
    """

    kind: type[AbortRules] | type[RateRules]
    period_ms: int
    due_ns: int
    queues: dict[Queue, int] = field(default_factory=dict)
    samples: dict[Consumer, Sample] = field(default_factory=dict)

    def find(self, queue: Queue, now_ns: int) -> Iterator[tuple[Consumer, str, str]]:
        """The slow consumers of a queue, each with the reason and the action."""
        before = self.queues[queue]
        received = self.queues[queue] = queue.counters.enqueued
        rules = self._rules_of(queue)
        if rules is None or queue.paused:  # consumers of a paused queue get nothing; the next check takes new samples
            for consumer in queue.consumers:
                self.samples.pop(consumer, None)
            return
        for consumer in list(queue.consumers):
            sample = self.samples.get(consumer)
            if sample is None:
                self.samples[consumer] = Sample(consumer, now_ns)
            elif isinstance(rules, AbortRules):
                if why := _why_stuck(queue, consumer, sample, now_ns, rules):
                    yield consumer, why, CLOSED if rules.closes else CANCELLED
            elif why := _why_below_rate(queue, consumer, sample, now_ns, rules, received - before):
                yield consumer, why, CLOSED if rules.kills else REPORTED

    def _rules_of(self, queue: Queue) -> AbortRules | RateRules | None:
        return next((rules for rules in queue.rules.slow if type(rules) is self.kind), None)

    def prune(self) -> None:
        """Forget queues that are gone, have other rules or no consumers, and consumers that are gone."""
        for queue in list(self.queues):
            rules = self._rules_of(queue)
            if queue.deleted or not queue.consumers or rules is None or rules.period_ms != self.period_ms:
                del self.queues[queue]
        present = {consumer for queue in self.queues for consumer in queue.consumers}
        self.samples = {consumer: sample for consumer, sample in self.samples.items() if consumer in present}


def _why_stuck(queue: Queue, consumer: Consumer, sample: Sample, now_ns: int, rules: AbortRules) -> str:
    """Why a consumer that gets or acknowledges nothing is too slow (ActiveMQ's strategies); empty: it is not.

    Updates the sample.
    """
    newest = newest_of(consumer)
    if newest == sample.newest and queue.has_ready and consumer.credit() <= 0:
        sample.slow_checks += 1
        waited_ms = (now_ns - sample.got_ns) // MS
        if (rules.after_ms is not None and waited_ms >= rules.after_ms) or (
            rules.checks is not None and sample.slow_checks >= rules.checks
        ):
            return f"got nothing for {waited_ms} ms although {queue.ready_count} messages are ready"
    else:
        sample.newest, sample.got_ns, sample.slow_checks = newest, now_ns, 0
    settled = settled_by(consumer.session)
    if settled != sample.settled or (rules.ignores_idle and not consumer.unacked):
        sample.settled, sample.settled_ns = settled, now_ns
    elif rules.ack_after_ms is not None and not consumer.no_ack:
        waited_ms = (now_ns - sample.settled_ns) // MS
        if waited_ms >= rules.ack_after_ms:
            return f"acknowledged nothing for {waited_ms} ms, {consumer.unacked} messages are unacknowledged"
    return ""


def _why_below_rate(
    queue: Queue, consumer: Consumer, sample: Sample, now_ns: int, rules: RateRules, arrived: int
) -> str:
    """Why a consumer whose session acknowledges too few messages a second is too slow (Artemis'
    slow-consumer-threshold); empty: it is not.

    `arrived`: messages that came into the queue since the last check. Updates the sample.
    """
    settled = settled_by(consumer.session)  # over all consumers of the session
    count, sample.settled = settled - sample.settled, settled
    elapsed_ns, sample.settled_ns = now_ns - sample.settled_ns, now_ns
    if not _is_below(count, elapsed_ns, rules):
        return ""
    if _is_below(arrived // len(queue.consumers), elapsed_ns, rules):
        return ""  # too few messages arrive to reach the rate
    if consumer.filter is not None and consumer.credit() > 0:
        return ""  # the queue has no message that its filter takes
    rate = f"{count} messages in {elapsed_ns // MS} ms"
    return f"acknowledged {rate}, less than {rules.count} in {rules.seconds} s"


def _is_below(count: int, elapsed_ns: int, rules: RateRules) -> bool:
    return count * rules.seconds * 1000 * MS < rules.count * elapsed_ns


class SlowConsumers:
    """The checks of one broker. `counts`: slow consumers found, by action.

    `on_found`: called with each of them, for the log.
    """

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._checks: dict[tuple[object, int], Check] = {}  # by kind and period
        self._deadline: Deadline | None = None
        self.counts = dict.fromkeys((CANCELLED, CLOSED, REPORTED), 0)
        self.on_found: Callable[[SlowConsumer], None] | None = None

    def watch(self, queue: Queue) -> None:
        """Begin to check a queue, if it has consumers and rules for slow ones."""
        for rules in queue.rules.slow if queue.consumers else ():
            kind, period_ms = type(rules), rules.period_ms
            check = self._checks.get((kind, period_ms))
            if check is None:
                due_ns = due_after(self._broker.clock, period_ms)
                check = self._checks[kind, period_ms] = Check(kind, period_ms, due_ns)
                self._set_deadline()
            check.queues.setdefault(queue, queue.counters.enqueued)

    def _set_deadline(self) -> None:
        self._broker.deadlines.cancel(self._deadline)
        due_ns = min((check.due_ns for check in self._checks.values()), default=None)
        self._deadline = None if due_ns is None else self._broker.deadlines.set(due_ns, self._check_due)

    def _check_due(self) -> None:
        now_ns = self._broker.clock.monotonic_ns()
        for key, check in list(self._checks.items()):
            if check.due_ns <= now_ns:
                check.prune()
                check.due_ns = due_after(self._broker.clock, check.period_ms)
                if not check.queues:
                    del self._checks[key]
                elif len(check.queues) > QUEUES_SLICE:
                    self._broker.background.run(self._steps(check, now_ns))
                else:
                    for queue in list(check.queues):
                        self._check(check, queue, now_ns)
        self._set_deadline()

    def _steps(self, check: Check, now_ns: int) -> Iterator[None]:
        for number, queue in enumerate(list(check.queues), 1):
            if queue in check.queues and not queue.deleted:
                self._check(check, queue, now_ns)
            if number % QUEUES_SLICE == 0:
                yield

    def _check(self, check: Check, queue: Queue, now_ns: int) -> None:
        for consumer, why, action in list(check.find(queue, now_ns)):
            if consumer not in queue.consumers:
                continue  # it left when another consumer's connection was closed
            session = consumer.session
            client = session.client
            self.counts[action] += 1
            if self.on_found is not None:
                self.on_found(SlowConsumer(queue.vhost_name, queue.name, consumer.tag, client.name, why, action))
            if action == CLOSED:
                self._broker.disconnects.expel(client, ConnectionForced(reason=f"consumer '{consumer.tag}' {why}"))
            elif action == CANCELLED:
                consumers.cancel(queue, (consumer,))
                if consumer.unacked:
                    requeue = partial(self._broker.background.run, _requeue_in_slices(session, consumer))
                    self._broker.deadlines.set(due_after(self._broker.clock, GRACE_MS), requeue)


def _requeue_in_slices(session: "Session", consumer: Consumer) -> Iterator[None]:
    """Requeue the unsettled deliveries of a cancelled consumer, newest first, as failed attempts."""
    unacked, queue = session.unacked, consumer.queue
    tags = [tag for tag, message in unacked.items() if message.holder is consumer]
    queue.freeze()
    while tags:
        some = tags[-MESSAGES_SLICE:]
        del tags[-MESSAGES_SLICE:]
        messages: list[Message] = [unacked.pop(tag) for tag in some if tag in unacked]
        if messages:
            requeue_run(messages, why="aborted", counted=True, with_redelivery_delay=False)
        if tags:
            yield
    queue.unfreeze()


def newest_of(consumer: Consumer) -> int:
    """The tag of a consumer's newest unacknowledged delivery; the session's next tag, if the consumer has none."""
    session = consumer.session
    if consumer.unacked:
        for tag in reversed(session.unacked):
            if session.unacked[tag].holder is consumer:
                return int(tag)
    return session.next_tag


def settled_by(session: "Session") -> int:
    """The number of settled deliveries of a session, plus 1."""
    return session.next_tag - len(session.unacked)
