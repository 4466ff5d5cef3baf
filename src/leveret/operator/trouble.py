"""Problems of a broker as sentences, most with a remedy, some with their start: the first lines of `ctl status`."""

from collections.abc import Callable, Generator, Iterator
from datetime import UTC, datetime

from ..engine import MS, Broker, dead_letter_queues
from ..settings.printable import and_more
from ..settings.values import shown
from .cluster_waits import Status, etcd_trouble, not_in_sync

#: Maximum limits or queues that a sentence names; the others are counted.
NAMED_MAX = 3


def trouble(
    broker: Broker, cluster: Status | None = None, sees: Callable[[str], bool] = lambda vhost: True
) -> Generator[None, None, list[str]]:
    """One sentence for each problem, the gravest first; []: all is well. `cluster`: the answer of `ctl cluster`.

    `sees`: whether problems of the objects in a virtual host are told.
    """
    found = [*_journal(broker), *_replication(broker), *_nodes(cluster), *_alarms(broker), *_limits(broker, sees)]
    found += [*_blocked(broker, sees), *_unroutable_letters(broker, sees)]
    return [*found, *(yield from _unconsumed_letters(broker, sees))]


def _journal(broker: Broker) -> Iterator[str]:
    durability = broker.context.storage.durability
    if durability is None or not durability.has_failed:
        return
    since = _since(durability.failed_ms)
    if durability.is_lost:
        remedy = "see the log, repair the disk and restart the broker"
        yield f"the journal failed {since} and stores nothing durable: {remedy}"
    else:
        yield (
            f"the disk is full {since}: persistent publishes are refused or wait; free space or consume messages, then"
            " publishing continues"
        )


def _replication(broker: Broker) -> Iterator[str]:
    alarm = broker.flow.replication
    if alarm.is_full:
        how = f"{_since(alarm.since_ms)} ({alarm.reason})"
        yield f"publishers are blocked {how}: start the missing nodes, see `ctl cluster`"


def _nodes(cluster: Status | None) -> Iterator[str]:
    """Nodes that are not in sync, and an etcd that does not answer: no node, or fewer nodes, could lead next."""
    if cluster is None:
        return
    missing, etcd = not_in_sync(cluster["nodes"]), etcd_trouble(cluster)
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        count = f"{len(missing)} of {len(cluster['nodes'])} nodes {verb} not in sync"
        yield f"{count} ({and_more(missing[:NAMED_MAX], len(missing))}): see `ctl cluster`"
    if etcd:
        yield f"{etcd}: no other node can lead, and the set of nodes in sync cannot change"


def _alarms(broker: Broker) -> Iterator[str]:
    alarm = broker.flow.alarm
    if alarm.is_full:
        yield f"publishers are blocked by an operator {_since(alarm.since_ms)} ({alarm.reason}): `ctl unblock` ends it"


def _limits(broker: Broker, sees: Callable[[str], bool]) -> Iterator[str]:
    full = [node for node in broker.flow.full_nodes() if node.vhost is None or sees(node.vhost)]
    named = [f"{node.limit_name} of {node.destination} ({node.used} of {node.limit})" for node in full[:NAMED_MAX]]
    if full:
        yield f"limits are reached: {and_more(named, len(full))}; consume messages or raise the limit"


def _blocked(broker: Broker, sees: Callable[[str], bool]) -> Iterator[str]:
    waiting = [one for one in broker.flow.blocked() if sees(one.client.vhost.name)]
    if waiting:
        count = "1 connection is" if len(waiting) == 1 else f"{len(waiting)} connections are"
        seconds = (broker.context.clock.monotonic_ns() - waiting[0].since_ns) // (1000 * MS)
        yield f"{count} waiting to publish, the longest for {seconds} s: see `ctl connections`"


def _unroutable_letters(broker: Broker, sees: Callable[[str], bool]) -> Iterator[str]:
    letters = broker.context.unroutable_letters
    all_places = letters.places()
    places = [place for place in all_places if sees(place.vhost)]
    if not places:
        return
    named = [f"{place.count} of queue {shown(place.queue)} for {shown(place.address)}" for place in places[:NAMED_MAX]]
    count = letters.count if len(places) == len(all_places) else sum(place.count for place in places)
    noun, verb = ("dead letter", "was") if count == 1 else ("dead letters", "were")
    found = f"{count} {noun} found no queue and {verb}"
    yield f"{found} dropped since the start: {and_more(named, len(places))}; bind a queue there"


def _unconsumed_letters(broker: Broker, sees: Callable[[str], bool]) -> Generator[None, None, list[str]]:
    waiting: list[tuple[int, str]] = []
    for vhost in [vhost for vhost in broker.virtual_hosts.values() if sees(vhost.name)]:
        for some in dead_letter_queues(vhost.context):
            waiting += [(one.ready_count, one.name) for one in some if one.ready_count and not one.consumers]
            yield
    if not waiting:
        return []
    waiting.sort(key=lambda one: (-one[0], one[1]))
    named = [f"{count} in {shown(name)}" for count, name in waiting[:NAMED_MAX]]
    return [f"dead letters without a consumer: {and_more(named, len(waiting))}; see `ctl dead-letters`"]


def _since(wall_ms: int) -> str:
    return f"since {datetime.fromtimestamp(wall_ms / 1000, UTC).strftime('%Y-%m-%d %H:%M:%S UTC')}"
