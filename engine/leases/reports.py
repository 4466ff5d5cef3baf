"""Leases, and messages by site, as operators see them. Source: queues page A; cluster page 12."""

from collections import Counter
from collections.abc import Generator
from itertools import islice

from ..clock import MS
from ..delivery.consumer import Consumer, holder_of
from ..errors import BadRequest
from ..queues.queue import Queue
from ..stores.store import ids_in
from .by_site import free_by_site
from .state import Leases, bookmark_of, leases_of

#: Messages counted in one step.
COUNTED_A_STEP = 20_000


def list_leases(queue: Queue, count: int) -> list[dict[str, object]]:
    """Up to `count` live leases of a leased queue, as operators see them, in the order in which they end."""
    leases = leases_of(queue)
    clock = queue.context.broker.clock
    now_ns = clock.monotonic_ns()
    found: list[dict[str, object]] = []
    for lease, until_ns in islice(leases.book.leases.by_end(), count):
        holder = holder_of(lease)
        row: dict[str, object] = {
            "bookmark": bookmark_of(lease.id),
            "connection_name": holder.session.client.given_name,
            "connection": holder.session.client.name,
            "consumer": holder.tag if isinstance(holder, Consumer) else None,
            "deliveries": lease.deliveries,
            "cancels": leases.book.cancels.get(lease.id, 0),
            "ends_in_ms": None if not until_ns else max(0, (until_ns - now_ns) // MS),
        }
        if leases.hosts is not None:
            row["node"] = holder.session.client.site
        if leases.owners is not None:
            row["owner"] = leases.owners.site_of(lease.id)
        found.append(row)
    return found


def list_owners(queue: Queue) -> Generator[None, None, list[dict[str, object]]]:
    """Count the ready, leased and stranded messages of each site of a leased queue, in steps.

    A message is ready or leased at a site: ready ones by their owner, leased ones by their client. Ready ones are
    stranded while their owner is given up or does not host the queue. Raises: BadRequest.
    """
    leases = leases_of(queue)
    hosts, owners, sites = leases.hosts, leases.owners, queue.context.broker.sites
    if hosts is None:
        raise BadRequest("its messages have no owners: it is not a leased queue with x-replication in a cluster")
    ready: Counter[str] = Counter()
    for count, id_ in enumerate(ids_in(queue.store), 1):
        ready[hosts.scope if owners is None else owners.site_of(id_)] += 1
        if count % COUNTED_A_STEP == 0:
            yield
    clients = (holder_of(lease).session.client for lease in leases.book.leases.by_id.values())
    leased = Counter(client.site for client in clients if client.site)
    consumers = Counter(leases.site_at(one) for one in leases.consumer_list.consumers)
    known = (hosts.scope,) if owners is None else (*sites.groups, *owners.names[1:])
    names = sorted({*known, *ready, *leased})
    rows: list[dict[str, object]] = []
    for name in filter(None, names):
        is_stranded = sites.is_lost(name) or not hosts.has(name)
        rows.append(
            {
                "node": name,
                "is_there": name in sites.groups,
                "hosts": hosts.has(name),
                "consumers": consumers[name],
                "ready": 0 if is_stranded else ready[name],
                "stranded": ready[name] if is_stranded else 0,
                "leased": leased[name],
                "waits_for": _awaited(leases, name, is_stranded=is_stranded) if ready[name] else "",
            }
        )
    return rows


def _awaited(leases: Leases, site: str, *, is_stranded: bool) -> str:
    """The object of "waits for", about the ready messages of a site."""
    if leases.owners is None:  # messages cannot be transferred to other sites
        return f"node {site}, which is not there" if is_stranded else f"a consumer at {site} with room"
    hosts, free = leases.hosts, free_by_site(leases)
    served = {leases.site_at(one) for one in leases.consumer_list.consumers}
    if hosts is None or not any(map(hosts.has, served)):
        return "a consumer"
    if not free:
        return "a consumer with room, at any node"
    if site in free:
        return "a consumer whose filter takes them, or a barrier before them"
    if is_stranded or site not in served:
        return "a consumer of another node whose filter takes them"
    after_ms = leases.queue.context.broker.sites.transfer_after_ns // MS
    return f"a consumer at {site} with room; after {after_ms} ms for one of another node"
