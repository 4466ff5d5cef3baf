"""Changes the rules of a queue after a reload or by an operator, and adapts the queue to them.

Source: behaviour page 3.12; address-settings page 3.8, 4.3.
"""

from collections.abc import Generator
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from ...settings import Layer, Policies, ResolvedSettings, SettingsRepository
from ..flow.tree import MeterSettings
from ..messages.dead_letter import MAXLEN
from ..messages.field_table import FieldTable
from ..messages.message import Message
from ..stores.memory_share import MemoryCap
from .bounds import SubscriberBound, response_when_full
from .declaration import RulesChange
from .events import QueueEvents
from .metered_events import MeteredQueueEvents

if TYPE_CHECKING:
    from .queue import Queue


def resolved(queue: "Queue") -> ResolvedSettings:
    """The settings in force (`Declaration.resolved`)."""
    return queue.declaration.resolved(queue.vhost_name, queue.context.broker.settings)


def settings_changed(queue: "Queue") -> None:
    """Apply reloaded settings. They act on messages that arrive, return or die later."""
    if queue.kind.follows_settings:
        _follow(queue, queue.declaration.settings_changed(queue.context))


def follow_topic(queue: "Queue", topic: str, layer: Layer) -> None:
    """Apply the settings of a topic whose messages are routed to this transient subscriber's queue."""
    change = queue.declaration.topic_found(queue.context, topic, layer)
    if change is not None:
        _follow(queue, change)


def redeclare(queue: "Queue", arguments: FieldTable, own: Layer) -> None:
    """Replace the arguments, because the configuration that declared the queue changed."""
    queue.declaration.redeclared(arguments, own)
    policy_changed(queue, always=True)


def policy_changed(queue: "Queue", *, always: bool = False) -> None:
    """Apply the policies in force (`always`: the arguments may have changed, too).

    All settings act at once; only message-ttl applies to later messages alone (behaviour page 3.12).
    """
    acknowledgements = queue.context.broker.acknowledgements
    if not queue.kind.follows_settings:
        queue.declaration.follow_policy(queue.context)
        queue.intake.rules_changed(queue)
        acknowledgements.queue_changed(queue)
        return
    change = queue.declaration.policy_changed(queue.context, always=always)
    if change is None:
        return
    _follow(queue, change)
    acknowledgements.queue_changed(queue)
    if change.before.expires_ms != change.now.expires_ms:  # a changed x-expires starts now
        queue.note_use()
    queue.drop_expired()
    for bound in queue.bounds:
        if not isinstance(bound, SubscriberBound):  # a subscriber's excess goes at the end of the turn
            bound.enforce(queue)


class Forecast(NamedTuple):
    """The effect that other rules would have on a queue now. Numbers of messages: `ready`; of these, `dropped` would
    leave at once, and `later` (beyond a smaller ring) as others arrive.

    `dead_letter_target`: the exchange that would get the dropped ones; None: they would be lost. `full`: how the queue
    would treat new messages, because it would be full (`response_when_full`). `unused_ms`: time after which the queue,
    which has no consumer, would be deleted; None: no such change.
    """

    ready: int
    dropped: int = 0
    dead_letter_target: str | None = None
    later: int = 0
    full: str = ""
    unused_ms: int | None = None


def forecast(
    queue: "Queue", settings: SettingsRepository, policies: Policies, arguments: FieldTable | None = None
) -> Generator[None, None, Forecast]:
    """Compute the consequences of other settings, policies and arguments (None: its own), in steps. Changes nothing."""
    context, now = queue.context, queue.rules
    declaration = queue.declaration.copy_with(context, settings, policies, arguments)
    rules, ready = declaration.rules, len(queue.store)
    if rules == now and declaration.effective == queue.declaration.effective:
        return Forecast(ready)
    dropped = min((yield from queue.kind.forecast(queue, declaration)), ready)
    full = yield from response_when_full(queue, rules)
    full_now = yield from response_when_full(queue, now)
    if queue.deleted:
        return Forecast(0)
    left = max(0, ready - len(queue.store))  # messages that left during the steps, usually from the head
    ready, dropped = ready - left, max(0, dropped - left)
    ring = rules.ring_size if rules.ring_size != now.ring_size else None
    is_unused = rules.expires_ms != now.expires_ms and not queue.consumers
    return Forecast(
        ready,
        dropped,
        rules.dead_letter_target(MAXLEN) if dropped and not queue.keeps_acked else None,
        0 if ring is None else max(0, ready - dropped - ring),
        full if full != full_now else "",
        rules.expires_ms if is_unused else None,
    )


def set_ring_size(queue: "Queue", size: int | None) -> None:
    """Resize the ring, as an operator asks; None: no ring. Drops nothing now (address-settings page 4.3, 3.8)."""
    _follow(queue, queue.declaration.ring_resized(size))


def enable(queue: "Queue", enabled: bool) -> None:
    """Switch the routing of new messages to the queue on or off."""
    was_open = queue.is_open
    queue.enabled = enabled
    if queue.is_open is not was_open:
        queue.context.router.forget_routes_to(queue)


def mark_declared(queue: "Queue") -> None:
    """Mark a queue as declared by the configuration, so that it is not deleted as unused."""
    queue.is_auto_created = False
    queue.is_configured = True


def _follow(queue: "Queue", change: RulesChange) -> None:
    """Adapt all parts of the queue to changed rules."""
    was_open = queue.is_open
    has_other_filter = queue.rules.filter is not change.now.filter
    queue.rules = change.now
    queue.consumer_list.rules_changed(change.now)
    if queue.is_open is not was_open or has_other_filter:
        queue.context.router.forget_routes_to(queue)
    if queue.pageable is not None:
        store = queue.pageable.converted(queue, counts_octets=change.now.max_length_bytes is not None)
        if queue.selection is not None and queue.store is not store:
            queue.selection.groups.start_over()
        queue.use_pageable(store)
    pending = queue.pending
    set_bounds(queue)
    if queue.pending is not pending and queue.pending is not None:
        queue.context.broker.background.trim_later(queue)
    if change.now.slow:
        queue.context.broker.slow_consumers.watch(queue)
    full = {} if queue.meter is None else queue.meter.full_nodes()
    if replace_meter(queue):
        recount(queue)
        for node, limit in full.items():
            if node.limit == limit:
                node.stay_full()
        if queue.pageable is not None and queue.pageable.share.cap is not None:
            queue.context.broker.background.trim_later(queue)
        queue.context.router.forget_routes_to(queue)  # `Route.is_metered` changes
    queue.intake.rules_changed(queue)


def set_bounds(queue: "Queue") -> None:
    queue.bounds = queue.kind.bounds(queue)
    queue.refusing = tuple(bound for bound in queue.bounds if bound.may_refuse)
    queue.takes_plainly = takes_plainly(queue)


def takes_plainly(queue: "Queue") -> bool:
    """Whether new plain messages can skip admission."""
    return queue.intake.is_plain and not (
        queue.bounds
        or queue.rules.concerns_messages
        or queue.selection is not None
        or queue.consumer_list.groups is not None
    )


# -- memory and flow control ------------------------------------------------------------------------------------------


def replace_meter(queue: "Queue") -> bool:
    """Replace the meter if the rules need another one, or none. If this returns true, the caller calls `recount`."""
    flow, before = queue.context.broker.flow, queue.events.meter
    metering: MeterSettings | None = None
    if queue.kind.is_limited:
        rules = queue.rules
        metering = flow.meter_settings_of(
            rules.flow, rules.size, keeps_acked=queue.keeps_acked, evicts=queue.pending is not None
        )
    if (None if before is None else before.metering) == metering:
        return False
    if metering is None:
        plain = QueueEvents(queue.vhost_name, queue.name, queue.context.broker.listeners)
        queue.events.copy_to(plain)
        queue.events = plain
    else:
        has_journal = queue.storage.pager is not None
        meter = flow.make_meter(queue, queue.vhost_name, metering, has_journal=has_journal)
        queue.events = MeteredQueueEvents(queue.events, meter, queue.stores)
    now = queue.events.meter
    if before is not None:
        if now is not None:
            flow.recheck(now)
        flow.forget(before)
    if queue.pageable is not None:
        queue.pageable.share.set_may_page(now is None or not now.forbids_paging)
    cap_memory(queue)
    return True


def cap_memory(queue: "Queue") -> None:
    """Apply the meter's memory limits to the store. With message groups there are none: groups cannot be paged out."""
    meter, cap = queue.events.meter, None
    if queue.pageable is None:
        return
    if meter is not None and meter.memory_bounds and queue.consumer_list.groups is None:
        cap = MemoryCap(meter.memory_bounds)
    queue.pageable.limit_memory(cap, is_metered=meter is not None)


def recount(queue: "Queue") -> None:
    """Count the queue's contents in its meter, because the meter is new, or the contents were restored."""
    if queue.events.meter is None:
        return
    parts = queue.store.paged_parts()
    in_tail = (part for part in parts if isinstance(part, Message))
    out = () if queue.keeps_acked else queue.unacked_messages()
    queue.events.recount(chain(queue.messages(), in_tail, out), queue.store.paged_sizes(parts))
