"""Views of a queue. Fields that only make sense in Erlang are constants that tools expect.

Source: management page 4.
"""

from typing import Any, NamedTuple

from ...engine import Client, Message, Queue, json_of_table
from ..cluster import Replicas
from ..steps import Steps, map_in_steps
from .clients import peer_of
from .consumers import active_consumer, consumer_view

#: Up to this number of ready messages, and of unacknowledged ones, their octets are counted. The octets of the rest are
#: estimated from them.
COUNTED_MAX = 2_000
#: Octets of memory for a queue without messages, a measured mean.
EMPTY_QUEUE_OCTETS = 3_000
#: Octets of memory for a message without its content.
MESSAGE_OCTETS = 150

NO_GARBAGE_COLLECTION = {
    "fullsweep_after": -1,
    "max_heap_size": -1,
    "min_bin_vheap_size": -1,
    "min_heap_size": -1,
    "minor_gcs": -1,
}
CLASSIC, QUORUM, STREAM = "classic", "quorum", "stream"


class Octets(NamedTuple):
    """Octets of bodies, counted or estimated. `messages_persistent`: number of messages that a restart brings back,
    also estimated.
    """

    ready: int = 0
    unacked: int = 0
    persistent: int = 0
    messages_persistent: int = 0
    paged: int = 0


def plain_queue_view(queue: Queue, replicas: Replicas) -> dict[str, Any]:
    """A queue without statistics (management page 1.7)."""
    view = {
        "arguments": json_of_table(queue.arguments),
        "auto_delete": queue.auto_delete,
        "durable": queue.durable,
        "exclusive": queue.exclusive,
        "name": queue.name,
        "node": replicas.leader,
        "state": "live",
        "type": queue.type,
        "vhost": queue.vhost_name,
    }
    if queue.type == QUORUM:
        view |= members_view(replicas)
    if queue.policy.policy is not None:
        view["policy"] = queue.policy.policy.name
    return view


def totals_view(queue: Queue, replicas: Replicas) -> dict[str, Any]:
    """A queue without statistics, but with the numbers of its messages (management page 1.7)."""
    return {**plain_queue_view(queue, replicas), **_counts(queue), "state": "running"}


def members_view(replicas: Replicas) -> dict[str, Any]:
    """The replicas of a quorum queue or a stream."""
    return {"leader": replicas.leader, "members": list(replicas.members), "online": list(replicas.online)}


def queue_view(queue: Queue, replicas: Replicas) -> dict[str, Any]:
    """A queue with its statistics, without rates. The fields depend on its type."""
    node = replicas.leader
    octets, paged = octets_of(queue), queue.paged_count
    in_memory = octets.ready + octets.unacked - octets.paged
    ready, unacked = queue.ready_count, queue.unacked
    consumers = queue.consumers
    policy, operator = queue.policy.policy, queue.policy.operator
    view = {
        "arguments": json_of_table(queue.arguments),
        "auto_delete": queue.auto_delete,
        "consumers": len(consumers),
        "durable": queue.durable,
        "effective_policy_definition": dict(queue.policy.definition),
        "exclusive": queue.exclusive,
        "garbage_collection": NO_GARBAGE_COLLECTION,
        "memory": EMPTY_QUEUE_OCTETS + (ready - paged + unacked) * MESSAGE_OCTETS + in_memory,
        **_counts(queue),
        "name": queue.name,
        "node": node,
        "operator_policy": None if operator is None else operator.name,
        "policy": None if policy is None else policy.name,
        "reductions": 0,
        "state": "running",
        "type": queue.type,
        "vhost": queue.vhost_name,
        "leveret": {
            "address": queue.address,
            "scheduled": len(queue.scheduled),
            "enabled": queue.enabled,
            "paused": queue.paused,
        },
    }
    if queue.type == STREAM:
        return {**view, **members_view(replicas), "readers": {node: len(consumers)}}
    active = active_consumer(queue) if queue.rules.single_active_consumer else None
    view |= {
        "message_bytes": octets.ready + octets.unacked,
        "message_bytes_persistent": octets.persistent,
        "message_bytes_ram": in_memory,
        "message_bytes_ready": octets.ready,
        "message_bytes_unacknowledged": octets.unacked,
        "messages_persistent": octets.messages_persistent,
        "messages_ram": ready - paged + unacked,
        "single_active_consumer_tag": active.tag if active is not None else None,
    }
    if queue.type == QUORUM:
        tag = view.pop("single_active_consumer_tag")
        return {
            **view,
            **members_view(replicas),
            "open_files": dict.fromkeys(replicas.online, 0),
            "messages_dlx": 0,
            "message_bytes_dlx": 0,
            "single_active_consumer_ctag": tag,
        }
    is_exclusive = bool(consumers) and consumers[0].exclusive
    view |= {
        "backing_queue_status": _backing(queue),
        "exclusive_consumer_tag": consumers[0].tag if is_exclusive else None,
        "head_message_timestamp": head_timestamp(queue),
        "message_bytes_paged_out": octets.paged,
        "messages_paged_out": paged,
        "messages_ready_ram": ready - paged,
        "messages_unacknowledged_ram": unacked,
        "recoverable_slaves": None,
    }
    if isinstance(queue.owner, Client):
        host, port = peer_of(queue.owner)
        view["owner_pid_details"] = {"name": queue.owner.name, "peer_host": host, "peer_port": port}
    return view


def queue_details(queue: Queue, node: str) -> Steps:
    """The fields that a queue has only outside lists, made in steps."""
    consumers = yield from map_in_steps(lambda consumer: consumer_view(consumer, node), list(queue.consumers))
    return {"consumer_details": consumers, "deliveries": [], "incoming": []}


def octets_of(queue: Queue) -> Octets:
    """The octets of bodies in a queue: counted up to `COUNTED_MAX` messages, else estimated from the first ones."""
    ready, ready_persistent, ready_count = _counted(queue, queue.first_messages(COUNTED_MAX))
    out, out_persistent, out_count = _counted(queue, queue.first_unacked(COUNTED_MAX))
    total, unacked = queue.ready_count, queue.unacked
    paged = max(0, total - queue.store.in_memory)
    ready_scaled, out_scaled = _scaled(ready, ready_count, total), _scaled(out, out_count, unacked)
    share = ready_persistent[1] + out_persistent[1], ready_persistent[0] + out_persistent[0]
    counted, of = ready_count + out_count, total + unacked
    return Octets(
        ready_scaled,
        out_scaled,
        _scaled(share[0], counted, of),
        _scaled(share[1], counted, of),
        _scaled(ready, ready_count, paged),
    )


def _counted(queue: Queue, messages: Any) -> tuple[int, tuple[int, int], int]:
    octets = persistent = persistent_octets = count = 0
    message: Message
    for message in messages:
        size = message.envelope.framing.body_size(message.content)
        octets += size
        count += 1
        if queue.stores(message.envelope):
            persistent += 1
            persistent_octets += size
    return octets, (persistent, persistent_octets), count


def _scaled(octets: int, counted: int, of: int) -> int:
    return octets if counted == of or not counted else octets * of // counted


def _counts(queue: Queue) -> dict[str, int]:
    ready, unacked = queue.ready_count, queue.unacked
    return {"messages": ready + unacked, "messages_ready": ready, "messages_unacknowledged": unacked}


def head_timestamp(queue: Queue) -> int | None:
    """The property `timestamp` of the oldest message, ready or among the first `COUNTED_MAX` unacknowledged ones.

    None: there is no message, it has no timestamp, or its properties cannot be read.
    """
    from ...engine import ContentError, decode_properties

    first = min((*queue.first_messages(1), *queue.first_unacked(COUNTED_MAX)), key=lambda one: one.id, default=None)
    if first is None:
        return None
    try:
        found = decode_properties(first.header).get("timestamp")
    except ContentError:
        return None
    return found if isinstance(found, int) else None


def _backing(queue: Queue) -> dict[str, Any]:
    return {
        "len": queue.ready_count,
        "mode": "default",
        "q1": 0,
        "q2": 0,
        "q3": 0,
        "q4": queue.ready_count,
        "delta": ["delta", "undefined", 0, 0, "undefined"],
        "target_ram_count": "infinity",
        "next_seq_id": queue.counters.enqueued,
        "next_deliver_seq_id": queue.counters.delivered,
        "version": 1,
    }
