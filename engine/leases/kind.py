"""A leased queue, as in AMPS: consumers lease messages, which are ready again at the end of a lease without ack.

Source: queues page A. Why it has the store of other queues: docs/decisions/0011-leases.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ...settings.leases.leased_settings import AMPS, LeasedFault, is_regex, leased_settings
from ...settings.values import shown
from ..clock import MS
from ..context import HostContext
from ..delivery.consumer import Consumer, holder_of
from ..delivery.consumer_list import ConsumerList
from ..errors import InvalidArgument
from ..messages.field_table import FieldTable
from ..messages.message import Message
from ..publishing.service import PersonalService
from ..queues.bounds import bounds_of, forecast
from ..queues.consumers import deselect, select
from ..queues.kinds import register
from ..queues.parts import Dispatch, Kind, Parts
from ..queues.queue import Queue
from ..queues.selection import Selection
from ..rules.arguments import REPLACE, Reason, plain_arguments
from ..users.permissions import EXCHANGE as EXCHANGES
from ..users.permissions import READ, WRITE
from . import deferring, discarding, dispatch, rebuilding
from .arguments import BROWSE, RENEWAL, ConsumerRequest, request_of
from .capture import TopicCapture, capture_of, check_logged
from .consumer_list import LeaseConsumers
from .ending import (
    FORCED_EXPIRE,
    SITE_LOST,
    TIME_LIMIT,
    UNSUBSCRIBED,
    acknowledge_late,
    break_leases,
    end_due,
    expire_for,
    return_messages,
)
from .granting import begin, presented
from .hosts import Hosts, host, scoped
from .intake import LeasedIntake, store_of
from .notes import notes_of
from .owner_groups import OwnerGroups
from .replay_rules import REPLAY_ARGUMENTS, is_known
from .replaying import read_on, replay_for, take_turn
from .rules import make_rules
from .state import Browse, Leases, LeasesPart, leases_of, rules_of, state_of

if TYPE_CHECKING:
    from ...expressions.language import Expression
    from ..clients.client import Client
    from ..clients.session import Session


#: Argument of a declaration: from where on a new queue is built.
POINT = "x-recovery-point"
#: Reasons of `requeue` that count as cancels by the client.
CANCELS = frozenset({"nacked", "rejected", "recovered"})


class LeasedDispatch(LeasesPart, Dispatch):
    """Leases messages to consumers by the fairness model; shows copies to browsing and replaying ones."""

    __slots__ = ()

    def joining(self, queue: Queue, consumer: Consumer) -> None:
        """Read the arguments; prepare a browse or a replay. Raises: InvalidArgument, and the errors of `replay_for`."""
        leases = self.leases
        request = request_of(consumer.arguments, name=queue.name, vhost=queue.vhost_name)
        _check_renewal(queue, consumer, request)
        _give_backlog(leases, consumer, request)
        if leases.owners is not None and queue.selection is None:
            selection = queue.selection = Selection(queue.context.broker)
            selection.follow(OwnerGroups(queue.context.broker, leases.owners))
        asked = request.backlog if request.backlog is not None else consumer.session.prefetch_wanted
        if request.browses:
            queue.consumer_list.check_join(consumer, queue=queue.name, vhost=queue.vhost_name)
            leases.browsing[consumer] = Browse(
                leases.last_id, queue.ready_count if request.top_n is None else request.top_n
            )
            queue.mark()
        elif (replay := replay_for(leases, consumer, asked)) is not None:
            queue.consumer_list.check_join(consumer, queue=queue.name, vhost=queue.vhost_name)
            leases.replaying[consumer] = replay
            queue.mark()

    def joined(self, queue: Queue, consumer: Consumer) -> None:
        request = request_of(consumer.arguments, name=queue.name, vhost=queue.vhost_name)
        is_aside = request.browses or request.backlog == 0 or consumer in self.leases.replaying
        is_there = self.leases.is_there(consumer)
        self.leases.consumer_list.joined(consumer, is_aside=is_aside, is_there=is_there, renews=request.renews)

    def removes_messages(self, queue: Queue, consumer: Consumer) -> bool:
        return consumer not in self.leases.browsing and consumer not in self.leases.replaying

    def replace(
        self,
        queue: Queue,
        consumer: Consumer,
        arguments: FieldTable,
        filter_: "Expression | None",
        *,
        no_ack: bool,
        exclusive: bool,
    ) -> None:
        """Replace filter, backlog and priority; the consumer's leases go on. Raises: InvalidArgument."""
        leases = self.leases
        request = request_of(arguments, name=queue.name, vhost=queue.vhost_name)
        looks = request.browses or consumer in leases.browsing or consumer in leases.replaying
        looks = looks or not REPLAY_ARGUMENTS.isdisjoint(arguments)
        if looks or (no_ack, exclusive) != (consumer.no_ack, consumer.exclusive):
            reason = Reason("text", f"{BROWSE}, replay, no_ack and exclusive can not be replaced")
            raise InvalidArgument(key=REPLACE, name=queue.name, vhost=queue.vhost_name, reason=reason)
        _check_renewal(queue, consumer, request)
        if queue.selection is not None:
            deselect(queue, queue.selection, [consumer])
        consumer.change(arguments, filter_)
        _give_backlog(leases, consumer, request)
        is_aside, is_there = request.backlog == 0, leases.is_there(consumer)
        leases.consumer_list.joined(consumer, is_aside=is_aside, is_there=is_there, renews=request.renews)
        select(queue, consumer)
        queue.mark()

    def left(self, queue: Queue, leaving: Sequence[Consumer]) -> None:
        """End the leases of leaving consumers; the tags stay valid (queues page A.2; conflict K5)."""
        leases = self.leases
        for consumer in leaving:
            leases.browsing.pop(consumer, None)
            if (replay := leases.replaying.pop(consumer, None)) is not None:
                queue.context.broker.deadlines.cancel(replay.deadline)
        leases.consumer_list.overdue.difference_update(leaving)
        if not queue.deleted and any(consumer.unacked for consumer in leaving):
            gone = set(leaving)
            break_leases(leases, [lease for lease in leases.book if lease.holder in gone], UNSUBSCRIBED)

    def offer(self, queue: Queue, message: Message) -> bool:
        return False

    def dispatch(self, queue: Queue) -> None:
        dispatch.dispatch(self.leases)

    def pop(self, queue: Queue) -> Message | None:
        return dispatch.pop(self.leases)

    def presented(self, queue: Queue, message: Message) -> Message:
        return presented(self.leases, message)

    def got(self, queue: Queue, message: Message) -> None:
        """Begin a lease; with at-most-once, the message is gone."""
        begin(self.leases, [message], holder_of(message).session)

    def has_ready(self, queue: Queue) -> bool:
        """Also true while a consumer browses or replays."""
        return len(queue.store) > 0 or bool(self.leases.browsing) or bool(self.leases.replaying)

    def ready_count(self, queue: Queue) -> int:
        return self.leases.ready_count()

    def wants_load(self, queue: Queue) -> bool:
        if queue.deleted:
            return False
        if queue.selection is not None and queue.selection.search.is_waiting:
            return True
        leases = self.leases
        if leases.rebuild is not None:
            return True
        if leases.replaying and any(replay.wants_load for replay in leases.replaying.values()):
            return True
        return bool(leases.browsing) or _wants_more(queue)

    def load(self, queue: Queue) -> None:
        """Make one step of a rebuild, a search, a replay or a browse, or read messages into memory."""
        leases = self.leases
        if leases.rebuild is not None:
            rebuilding.step(leases, leases.rebuild)
            return
        if queue.selection is not None and queue.selection.search.is_waiting:
            if queue.pageable is not None:
                queue.selection.search.load(queue.pageable)
            queue.mark()
            return
        for consumer, replay in leases.replaying.items():
            if replay.wants_load:
                take_turn(leases, consumer)
                read_on(leases, replay)
                queue.mark()
                return
        for browse in leases.browsing.values():
            queue.store.load_at(browse.after, dispatch.BROWSE_SLICE)
            queue.mark()
        if queue.pageable is not None and _wants_more(queue):
            queue.pageable.load()


def _wants_more(queue: Queue) -> bool:
    """Whether memory has fewer messages than consumers may take soon."""
    pageable = queue.pageable
    return pageable is not None and pageable.is_deep and pageable.wants_more(straight=False, waiting=False)


def _check_renewal(queue: Queue, consumer: Consumer, request: ConsumerRequest) -> None:
    if request.renews and consumer.client.liveness is None:
        reason = Reason("text", "the connection has no heartbeats")
        raise InvalidArgument(key=RENEWAL, name=queue.name, vhost=queue.vhost_name, reason=reason)


def _give_backlog(leases: Leases, consumer: Consumer, request: ConsumerRequest) -> None:
    limit, requested = leases.rules.settings.max_per_subscription_backlog, request.backlog
    if requested is None:
        session = consumer.session
        requested = session.prefetch_wanted if session.prefetch_wanted is not None else 1
        requested = requested or limit
    consumer.prefetch = min(limit, requested) or limit


class LeasedSettlement(LeasesPart):
    """Makes returned messages ready again, or expires them. Acknowledgements count even after a lease has ended."""

    __slots__ = ()

    def acknowledged(self, queue: Queue, messages: Sequence[Message]) -> None:
        """Remove acknowledged messages, also those whose lease has ended. All have one holder, or none (no-ack)."""
        leases, holder = self.leases, messages[0].holder
        gone: Sequence[Message] = messages
        if holder is not None and holder_of(messages[0]).is_past:
            found = [(lease, message) for lease in messages if (message := acknowledge_late(leases, lease)) is not None]
            for lease, message in found:
                message.holder = lease.holder
            gone = [message for _, message in found]
        elif holder is not None:
            gone = leases.book.end(messages)
            if leases.consumer_list.overdue:
                leases.consumer_list.overdue.discard(holder_of(messages[0]))
        leases.count_acked(gone)
        if leases.rules.barrier is not None or leases.rules.settings.max_backlog is not None:
            queue.mark()

    def requeue(
        self, queue: Queue, messages: list[Message], why: str, *, counted: bool, with_redelivery_delay: bool
    ) -> None:
        """End leases and make their messages ready. Leases that have ended before are skipped."""
        if not queue.deleted:
            return_messages(self.leases, self.leases.book.end(_running(messages)), why, is_cancel=why in CANCELS)

    def reject(self, queue: Queue, messages: list[Message], reason: str) -> None:
        self.reject_or_requeue(queue, messages, reason)

    def reject_or_requeue(self, queue: Queue, messages: list[Message], reason: str) -> None:
        """Expire leased messages, and free the slots of messages that are gone."""
        dead = list(self.leases.book.end(_running(messages)))
        for message in dead:
            message.holder = None
        if dead:
            expire_for(self.leases, dead, (FORCED_EXPIRE,))
        queue.mark()

    def expired(self, queue: Queue, messages: list[Message]) -> None:
        expire_for(self.leases, messages, (TIME_LIMIT,))

    def unacked(self, queue: Queue) -> list[Message]:
        return list(self.leases.book.leases.by_id.values())

    def trim(self, queue: Queue) -> None:
        """End another slice of leases and lifetimes."""
        end_due(self.leases)

    def left_by(self, queue: Queue, session: "Session") -> None:
        """Forget the past leases of the session."""
        self.leases.past.pop(session, None)

    def purged(self, queue: Queue) -> None:
        """Leased messages stay."""
        book, active = self.leases.book, self.leases.active
        book.cancels = {id_: cancels for id_, cancels in book.cancels.items() if id_ in book.leases.by_id}
        if active is not None:
            active.count = len(book.leases)
        if self.leases.owners is not None:
            self.leases.owners.keep(book.leases.by_id)

    def site_went(self, site: str) -> None:
        """The leases of a lost site end, and its consumers get none."""
        self.sites_changed()
        held = [lease for lease in self.leases.book if holder_of(lease).session.client.site == site]
        if held:
            break_leases(self.leases, held, SITE_LOST)

    def sites_changed(self) -> None:
        """Messages may go to other sites now, or stay at their own."""
        self.leases.consumer_list.sites_changed(self.leases.is_there)
        self.leases.queue.mark()

    def ending(self, queue: Queue) -> None:
        """Cancel the deadlines, and forget past leases."""
        queue.context.broker.deadlines.cancel(self.leases.deadline)
        queue.context.broker.deadlines.cancel(self.leases.transfers)
        queue.context.broker.sites.watchers.pop(self, None)
        self.leases.past.clear()


def _running(messages: Sequence[Message]) -> list[Message]:
    """Those of these leases that have not ended."""
    return [message for message in messages if not holder_of(message).is_past]


# -- the kind ---------------------------------------------------------------------------------------------------------


def _consumer_list(queue: Queue) -> ConsumerList:
    return LeaseConsumers(queue.rules, queue.context.broker)


def _parts(queue: Queue) -> Parts:
    leases = Leases(queue)
    queue.use_takeable(store_of(queue))
    settlement, sites = LeasedSettlement(leases), queue.context.broker.sites
    if sites.own:
        sites.watchers[settlement] = None
    return Parts(LeasedIntake(leases), LeasedDispatch(leases), settlement)


def _capture(context: HostContext) -> TopicCapture:
    """The capture of a virtual host, which also gets the exchange for requests."""
    from .control import EXCHANGE, LeaseControl  # costs 30 ms and 2 MiB

    context.exchanges[EXCHANGE] = PersonalService(EXCHANGE, LeaseControl(context).handle)
    return TopicCapture(context)


def _require(client: "Client", name: str, arguments: FieldTable) -> None:
    """Check the permissions for a declaration: read on its topic, as for a binding, and write on its publish target. A
    pattern may select later topics, too, so it needs read on everything.
    """
    user, vhost = client.user, client.vhost.name
    for key, action in (("x-underlying-topic", READ), ("x-default-publish-target", WRITE)):
        field = arguments.get(key)
        if field is None or field.tag != "S" or field.text == name:
            continue
        topic = field.text
        if action == READ and is_regex(topic):
            user.require_all(READ, EXCHANGES, topic, vhost)
            continue
        user.require(action, EXCHANGES, topic, vhost)
        user.require_topic(action, topic, "#", vhost)
        for at, letter in enumerate(topic):
            if letter == "/" and at:  # EXCHANGE/KEY, split at any slash
                user.require(action, EXCHANGES, topic[:at], vhost)
                user.require_topic(action, topic[:at], topic[at + 1 :], vhost)


def _check(context: HostContext, name: str, arguments: FieldTable) -> None:
    """Check that the topics are logged and the log contains the recovery point."""
    try:
        settings = leased_settings(name, plain_arguments(arguments))
        check_logged(context, settings)
        if not knows_point(context, settings.recovery_point):
            raise LeasedFault("E-RP-UNKNOWN", POINT, shown(settings.recovery_point))
    except LeasedFault as fault:
        reason = Reason("text", str(fault))
        raise InvalidArgument(key=fault.argument, name=name, vhost=context.name, reason=reason) from None


def knows_point(context: HostContext, point: str) -> bool:
    """Whether the log contains a recovery point (queues page C.5, E-RP-UNKNOWN)."""
    log = context.broker.storage.log
    return "|" not in point or is_known(point, log.first_id(), log.next_id())


def _start_fault(
    context: HostContext, queue: Queue | None, name: str, arguments: Mapping[str, object]
) -> LeasedFault | None:
    """E-RP-UNKNOWN: the queue is to be built from a recovery point that the log does not have."""
    point = leased_settings(name, arguments).recovery_point
    is_built = queue is not None and leases_of(queue).recovered_point == point
    return None if is_built or knows_point(context, point) else LeasedFault("E-RP-UNKNOWN", POINT, shown(point))


def _declared(queue: Queue) -> None:
    """Build a new queue from its recovery point."""
    since_id = capture_of(queue).logged_since(queue)
    rebuilding.begin(leases_of(queue), since_id, queue.context.broker.next_id, was_there=False)


def _describe(queue: Queue) -> Iterator[tuple[str, object, str]]:
    """The recovery point that the queue was built from."""
    leases = leases_of(queue)
    rule = f"recovery-point {shown(leases.rules.settings.recovery_point)}"
    yield "built-from", leases.recovered_point or "is being built", rule
    if leases.hosts is not None:
        yield from _describe_sites(leases, leases.hosts)


def _describe_sites(leases: Leases, hosts: Hosts) -> Iterator[tuple[str, object, str]]:
    """Which nodes host the queue, and whose its messages are."""
    settings, groups = leases.rules.settings, leases.queue.context.broker.sites.groups
    rule = f"replication {settings.replication}" + (f", scope {shown(hosts.scope)}" if hosts.scope else "")
    yield "hosted-by", ", ".join(filter(hosts.has, groups)) or "no node that is there", rule
    for node, why in hosts.refused.items():
        yield f"not-hosted-by-{node}", why, rule
    if leases.owners is not None:
        own = "initial-owner" if settings.initial_owner else "the node of the publisher"
        after_ms = leases.queue.context.broker.sites.transfer_after_ns // MS
        yield "owner", settings.initial_owner or "by message", f"{own}; ctl owners counts them"
        yield "served-first", "consumers at the owner", f"others after {after_ms} ms, or at once if it has none"


def _why_captured(queue: Queue, topic: str) -> str | None:
    rules = rules_of(queue)
    if not rules.selects(topic):
        return None
    beside = "" if rules.settings.filter is None else f", if {rules.settings.filter}"
    return f"underlying-topic {shown(rules.settings.underlying_topic)}{beside}"


def _started(queue: Queue, is_anew: bool) -> None:
    """Build a queue again that was not built from its present recovery point (queues page C.5)."""
    leases = leases_of(queue)
    if leases.rebuild is None and (is_anew or leases.recovered_point != leases.rules.settings.recovery_point):
        since_id = capture_of(queue).logged_since(queue)
        rebuilding.begin(leases, since_id, queue.context.broker.next_id, was_there=True)


def _view(queue: Queue) -> Hosts | None:
    """The sites that see the queue; also of one that all see, whose messages have owners."""
    return leases_of(queue).hosts


def _site_of(queue: Queue, message: Message) -> str:
    leases = leases_of(queue)
    if leases.owners is not None:
        return leases.owners.site_of(message.id)
    hosts = leases.hosts
    return hosts.scope if hosts is not None and hosts.is_of_one_site else ""


def _host(queue: Queue, site: str, arguments: FieldTable) -> None:
    """A site declares the queue. Raises: InvalidArgument (E-MISMATCH)."""
    leases = state_of(queue)
    if leases is None or leases.hosts is None:
        return
    was_seen = leases.hosts.has(site)
    try:
        if host(leases.hosts, queue, site, arguments):
            queue.events.notes_changed()
    finally:
        if was_seen != leases.hosts.has(site):
            _view_changed(queue, leases.hosts)


def _unhost(queue: Queue, site: str) -> bool:
    """A site declares the queue no longer. Returns whether no other does."""
    hosts = leases_of(queue).hosts
    if hosts is None:
        return True
    was_seen = hosts.has(site)
    hosts.declaring.discard(site)
    queue.events.notes_changed()
    if was_seen != hosts.has(site):
        _view_changed(queue, hosts)
    return not hosts.declaring


def _view_changed(queue: Queue, hosts: Hosts) -> None:
    """Other sites see the queue: routes change, and consumers of theirs may have messages."""
    queue.context.router.note_view(queue, hosts)
    queue.mark()


def _faults(queue: Queue, unacked: list[Message], is_small: bool) -> Iterator[str]:
    from .invariants import faults  # production does not check

    return faults(leases_of(queue), unacked, is_small=is_small)


LEASED = Kind(
    "leased",
    make_consumer_list=_consumer_list,
    make_parts=_parts,
    bounds=bounds_of,
    forecast=forecast,
    notes=notes_of,
    declared=_declared,
    describe=_describe,
    why_captured=_why_captured,
    discarding=discarding,
    started=_started,
    start_fault=_start_fault,
    figures=lambda queue: {"deferred_acks": deferring.count_deferred(leases_of(queue))},
    faults=_faults,
    own_deadline=lambda queue: leases_of(queue).deadline,
    scoped=scoped,
    view=_view,
    host=_host,
    unhost=_unhost,
    site_of=_site_of,
    make_rules=make_rules,
    make_capture=_capture,
    require=_require,
    check=_check,
    replaces_consumers=True,
    move_refusal="a leased queue lends its messages: discard them by filter or bookmark, or consume them",
    restores_delivery_counts=False,
)
register(AMPS, LEASED)
