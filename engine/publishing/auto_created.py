"""Creates queues for dead letters and expired messages of an address, and removes unused queues.

Source: address-settings page 3.5, 5.5.
"""

from ..clock import MS, due_after
from ..context import BrokerContext, HostContext
from ..deadlines import Deadline
from ..errors import EngineError
from ..queues.queue import Queue
from ..rules.arguments import NAME_OCTETS_MAX
from ..rules.queue_rules import AutoCreatedQueue
from ..users.permissions import QUEUE
from .service import ServiceExchange

Target = tuple[str, str]  # exchange, routing key


def targets_of(
    host: HostContext, target: str, address: str, resources: AutoCreatedQueue | None, *, makes_missing: bool
) -> list[Target]:
    """The exchanges and keys to which copies go for the dead-letter or expiry address `target` of `address`.

    `resources`: a queue that also gets the copies. The queue, and the exchange of `target`, are created if missing,
    unless `create_missing` refuses, the exchange's name is reserved, or the exchange refuses the binding.
    `makes_missing`: without `resources`, if nothing is bound to the target, a queue of its name gets the copies without
    a binding. If it is missing, it is created, unless `create_missing` refuses. Queues that an application binds later
    get later copies.
    """
    if resources is None:
        exchange, key = host.router.resolve_address(target, address)
        if makes_missing and not _is_bound(host, exchange, key):
            name = exchange or key
            if name in host.queues:
                return [("", name)]
            if host.queues.create_missing(name):
                host.broker.unroutable_letters.on_made(host.name, name, target)
                return [("", name)]
        return [(exchange, key)]
    name = resources.name_for(address)
    exchange, key = host.router.resolve_address(target, address)
    if not exchange and (target.startswith("queue:") or key in host.queues):
        is_there = host.queues.create_missing(name, address=key)
        return [("", key), ("", name)] if is_there and name != key else [("", key)]
    if not exchange:
        exchange, key = target, address  # no exchange or queue has this name: create a direct exchange
    if _may_bind(host, exchange, key) and host.queues.create_missing(name, address=exchange):
        if exchange not in host.exchanges:
            host.exchanges.declare(exchange, "direct", durable=True)
        host.bindings.add(QUEUE, name, exchange, key, {})
    return [(exchange, key)]


def _may_bind(host: HostContext, exchange_name: str, key: str) -> bool:
    """Whether a queue can be bound with this key to an exchange, or to the direct one that is created if missing."""
    exchange = host.exchanges.get(exchange_name)
    if exchange is None:
        return len(exchange_name.encode()) <= NAME_OCTETS_MAX and not exchange_name.startswith("amq.")
    try:
        exchange.check(key, {})
    except EngineError:  # e.g. an exchange whose keys are weights
        return False
    return True


def _is_bound(host: HostContext, exchange_name: str, key: str) -> bool:
    """Whether messages published with this key may reach a queue, or a service.

    Any binding of a named exchange is enough, and so is its alternate exchange.
    """
    exchange = host.exchanges.get(exchange_name)
    if exchange is None:
        return False
    if exchange_name:
        is_served = isinstance(exchange, ServiceExchange)
        return is_served or bool(exchange.destinations) or exchange.alternate is not None
    return key in host.queues or bool(host.router.would_reach(exchange, key))


class Reaper:
    """Periodically scans for unused queues, and removes those that were unused in two scans in a row.

    It scans auto-created queues and, with `auto-delete-created-queues`, those that clients declared.
    """

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._unused: set[Queue] = set()  # found by the last scan
        self._deadline: Deadline | None = None

    def watch(self) -> None:
        """Begin to scan, because a queue may become unused."""
        period_ms = self._broker.options.address_queue_scan_period_ms
        if period_ms is not None and self._deadline is None:
            due_ns = due_after(self._broker.clock, period_ms)
            self._deadline = self._broker.deadlines.set(due_ns, self._scan)

    def period_changed(self) -> None:
        """Set the next scan a new period from now, even if none was set. No period: no scan."""
        self._broker.deadlines.cancel(self._deadline)
        self._deadline = None
        self.watch()  # the scan finds out whether another one is needed

    def _scan(self) -> None:
        self._deadline = None
        watched = [queue for queue in self._broker.virtual_hosts.queues() if queue.is_deletable]
        unused = {queue for queue in watched if self._is_unused(queue)}
        for queue in unused & self._unused:
            queue.context.queues.remove(queue)
        self._unused = unused - self._unused
        if len(watched) > len(unused) or self._unused:
            self.watch()

    def _is_unused(self, queue: Queue) -> bool:
        settings = self._broker.settings.resolve(queue.address, queue.vhost_name)
        deleted = settings.auto_delete_queues if queue.is_auto_created else settings.auto_delete_created_queues
        if not deleted or queue.consumers:
            return False
        count = queue.ready_count + len(queue.scheduled) + queue.unacked
        limit = settings.auto_delete_queues_message_count
        if 0 <= limit < count:
            return False
        if not settings.auto_delete_queues_skip_usage_check and not queue.was_used:
            return False
        idle_ns = self._broker.clock.monotonic_ns() - queue.last_used_ns
        return idle_ns >= settings.auto_delete_queues_delay_ms * MS
