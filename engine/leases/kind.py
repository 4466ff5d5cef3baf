"""A leased queue, as in AMPS: consumers lease messages, which are ready again at the end of a lease without ack.

Source: queues page A. Why it has the store of other queues: docs/decisions/0011-leases.md.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from ...settings.leases.leased_settings import AMPS, LeasedFault, is_regex, leased_settings
from ...settings.values import shown
from ..clock import MS
from ..context import HostContext
from ..errors import InvalidArgument
from ..messages.field_table import FieldTable
from ..messages.message import Message
from ..publishing.service import PersonalService
from ..queues.bounds import bounds_of, forecast
from ..queues.kinds import register
from ..queues.parts import Kind, Parts
from ..queues.queue import Queue
from ..rules.arguments import Reason, plain_arguments
from ..users.permissions import EXCHANGE as EXCHANGES
from ..users.permissions import READ, WRITE
from . import deferring, discarding, rebuilding
from .capture import TopicCapture, capture_of, check_logged
from .consumer_list import LeaseConsumers
from .dispatch import LeasedDispatch
from .ending import LeasedSettlement
from .hosts import Hosts, host, scoped
from .intake import LeasedIntake, use_new_store
from .notes import notes_of
from .replay_rules import is_known
from .rules import make_rules
from .state import Leases, leases_of, rules_of, state_of

if TYPE_CHECKING:
    from ..clients.client import Client


#: Argument of a declaration: the recovery point of a new queue.
POINT = "x-recovery-point"


def _parts(queue: Queue) -> Parts:
    leases = Leases(queue)
    use_new_store(queue)
    settlement, sites = LeasedSettlement(leases), queue.context.broker.sites
    if sites.own:
        sites.watchers[settlement] = None
    return Parts(LeasedIntake(leases), LeasedDispatch(leases), settlement)


def _capture(context: HostContext) -> TopicCapture:
    """The capture of a virtual host. Also makes the exchange `amps.control` there, for requests."""
    from .control import EXCHANGE, handle  # costs 30 ms and 2 MiB

    context.exchanges[EXCHANGE] = PersonalService(EXCHANGE, partial(handle, context))
    return TopicCapture(context)


def _require(client: "Client", name: str, arguments: FieldTable) -> None:
    """Check the permissions for a declaration: read on its topic, as for a binding, and write on its publish target.

    The queue's own name needs neither. A pattern may select later topics, too, so it needs read on everything.
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
    """Check the arguments, that the topics are logged, and that the log contains the recovery point."""
    try:
        settings = leased_settings(name, plain_arguments(arguments))
        check_logged(context, settings)
        if not _knows_point(context, settings.recovery_point):
            raise LeasedFault("E-RP-UNKNOWN", POINT, shown(settings.recovery_point))
    except LeasedFault as fault:
        reason = Reason("text", str(fault))
        raise InvalidArgument(key=fault.argument, name=name, vhost=context.name, reason=reason) from None


def _knows_point(context: HostContext, point: str) -> bool:
    """Whether the recovery point is no bookmark, or one that the log contains (queues page C.5, E-RP-UNKNOWN)."""
    log = context.broker.storage.log
    return "|" not in point or is_known(point, log.first_id(), log.next_id())


def _start_fault(
    context: HostContext, queue: Queue | None, name: str, arguments: Mapping[str, object]
) -> LeasedFault | None:
    """E-RP-UNKNOWN, if the queue has to be built from a recovery point that the log does not have."""
    point = leased_settings(name, arguments).recovery_point
    is_built = queue is not None and leases_of(queue).recovered_point == point
    return None if is_built or _knows_point(context, point) else LeasedFault("E-RP-UNKNOWN", POINT, shown(point))


def _declared(queue: Queue) -> None:
    """Begin to build a new queue from its recovery point."""
    since_id = capture_of(queue).logged_since(queue)
    rebuilding.begin(leases_of(queue), since_id, queue.context.broker.next_id, was_there=False)


def _describe(queue: Queue) -> Iterator[tuple[str, object, str]]:
    """The recovery point that the queue was built from; in a cluster also its nodes and owners."""
    leases = leases_of(queue)
    rule = f"recovery-point {shown(leases.rules.settings.recovery_point)}"
    yield "built-from", leases.recovered_point or "is being built", rule
    if leases.hosts is not None:
        yield from _describe_sites(leases, leases.hosts)


def _describe_sites(leases: Leases, hosts: Hosts) -> Iterator[tuple[str, object, str]]:
    """The nodes that host the queue, and the owners of its messages."""
    settings, groups = leases.rules.settings, leases.queue.context.broker.sites.groups
    rule = f"replication {settings.replication}" + (f", scope {shown(hosts.scope)}" if hosts.scope else "")
    yield "hosted-by", ", ".join(filter(hosts.has, groups)) or "no present node", rule
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
    suffix = "" if rules.settings.filter is None else f", if {rules.settings.filter}"
    return f"underlying-topic {shown(rules.settings.underlying_topic)}{suffix}"


def _started(queue: Queue, rebuilds: bool) -> None:
    """Begin a rebuild if `rebuilds`, or if the queue was built from another recovery point (queues page C.5)."""
    leases = leases_of(queue)
    if leases.rebuild is None and (rebuilds or leases.recovered_point != leases.rules.settings.recovery_point):
        since_id = capture_of(queue).logged_since(queue)
        rebuilding.begin(leases, since_id, queue.context.broker.next_id, was_there=True)


def _site_of(queue: Queue, message: Message) -> str:
    leases = leases_of(queue)
    if leases.owners is not None:
        return leases.owners.site_of(message.id)
    hosts = leases.hosts
    return hosts.scope if hosts is not None and hosts.is_of_one_site else ""


def _host(queue: Queue, site: str, arguments: FieldTable) -> None:
    """Note that a site declares the queue. Raises: InvalidArgument (E-MISMATCH)."""
    leases = state_of(queue)
    if leases is None or leases.hosts is None:
        return
    saw_before = leases.hosts.has(site)
    try:
        if host(leases.hosts, queue, site, arguments):
            queue.events.notes_changed()
    finally:
        if saw_before != leases.hosts.has(site):
            _view_changed(queue, leases.hosts)


def _unhost(queue: Queue, site: str) -> bool:
    """Note that a site withdrew its declaration. Returns whether no other site declares the queue."""
    hosts = leases_of(queue).hosts
    if hosts is None:
        return True
    saw_before = hosts.has(site)
    hosts.declaring.discard(site)
    queue.events.notes_changed()
    if saw_before != hosts.has(site):
        _view_changed(queue, hosts)
    return not hosts.declaring


def _view_changed(queue: Queue, hosts: Hosts) -> None:
    """Adapt to a change of the sites that see the queue: look up routes again, and serve the sites' consumers."""
    queue.context.router.note_view(queue, hosts)
    queue.mark()


def _faults(queue: Queue, unacked: list[Message], is_small: bool) -> Iterator[str]:
    from .invariants import faults  # production does not check

    return faults(leases_of(queue), unacked, is_small=is_small)


LEASED = Kind(
    "leased",
    make_consumer_list=lambda queue: LeaseConsumers(queue.rules, queue.context.broker),
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
    view=lambda queue: leases_of(queue).hosts,
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
