"""The command `route`: the queues that a message would reach, why it reaches no others, and the effect of settings.

Nothing is published, declared or counted. Source: management page 16.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Any

from ..console.dispatcher import Http, Level
from ..engine import NATIVE, Binding, Envelope, Queue, check_expiration, scan_properties
from .command import command
from .kinds import AsUser, Json, VhostName
from .messages import FLAGS_AT, PayloadEncoding, message_of
from .operator import Operator
from .steps import Steps
from .topology import binding_value

#: Maximum queues that are listed; the others are counted.
LISTED_MAX = 500
#: Queues that are tested between two turns.
ASKED_AT_ONCE = 50


@command("route", http=Http("POST", "leveret/route/V", Level.VHOST), reads=True)
def route(
    operator: Operator,
    exchange: str,
    routing_key: str = "",
    *,
    properties: Json = None,
    payload: str = "",
    payload_encoding: PayloadEncoding = "string",
    vhost: VhostName = "/",
    as_user: AsUser | None = None,
) -> Steps:
    """Tell where a message would go, and why not elsewhere; nothing is published.

    exchange: its name; empty: the default exchange
    routing_key: (default: empty)
    properties: like {"headers": {"x": 1}}
    payload: its body, where a filter looks at it
    """
    with operator.client(vhost, as_user) as (client, host):
        header, body = message_of("route", exchange, routing_key, payload, payload_encoding, properties)
        facts, content = scan_properties(header[FLAGS_AT:]), NATIVE.join(header, body)
        check_expiration(facts.expiration)
        run = host.dry_run(Envelope(exchange, routing_key, facts), content, client.user)
    yield from run.steps()
    arrival, found = run.arrival, run.route
    queues = list(found.queues)
    bindings = _bindings_by_queue(hop.taken for hop in found.hops)
    rows: list[dict[str, Any]] = []
    for count, queue in enumerate(islice(queues, LISTED_MAX), 1):
        outcome, ttl_ms = run.outcome_at(queue)
        rows.append(
            {
                "queue": queue.name,
                "how": found.queues[queue] or "by bindings",
                "outcome": outcome,
                "ttl_ms": ttl_ms,
                "messages": queue.ready_count,
                "bindings": [binding_value(one) for one in bindings.get(queue, ())],
            }
        )
        if count % ASKED_AT_ONCE == 0:
            yield
    alarm = operator.broker.flow.raised
    blocked = None if alarm is None else alarm.reason
    if blocked is None and queues:
        full = operator.broker.flow.room_for(queues, arrival.envelope, (content,), client)[1]
        blocked = None if full is None else f"{full.node.destination}: {full.node.limit_name}"
    return {
        "exchange": exchange,
        "routing_keys": list(run.keys),
        "address": arrival.address,
        "fate": _outcome(run, queues),
        "blocked": blocked,
        "expiration_ms": arrival.envelope.expiration_ms,
        "delay_ms": arrival.delay_ms,
        "diverts": [
            {"name": one.name, "exclusive": one.is_exclusive, "to": list(one.forwarding_addresses)}
            for one in arrival.diverts
        ],
        "queues_total": len(queues),
        "queues": rows,
        "others": [
            *({**binding_value(binding), "why": why} for hop in found.hops for binding, why in hop.missed),
            *({"destination": one.name, "why": "its filter does not match the message"} for one in found.filtered_out),
        ],
        "others_total": sum(hop.missed_count for hop in found.hops) + len(found.filtered_out),
        "exchanges": [
            {"name": hop.exchange.name, "alternate": hop.alternate, "by_chance": hop.is_random} for hop in found.hops
        ],
    }


def _outcome(run: Any, queues: list[Queue]) -> str:
    """The outcome for the message, in words."""
    if run.arrival.is_duplicate:
        return "dropped: its id was seen before at this address"
    if run.arrival.is_taken:
        return "diverted"
    if run.is_service:
        return "answered by the broker itself"
    if queues:
        return "routed"
    if run.creates:
        return "routed: the queue would be created"
    if run.rescued_by:
        return f"unroutable: to {run.rescued_by}, or returned if it is mandatory"
    return "unroutable: dropped, or returned if it is mandatory"


def _bindings_by_queue(taken: Iterable[list[Binding]]) -> dict[object, list[Binding]]:
    found: dict[object, list[Binding]] = {}
    for bindings in taken:
        for binding in bindings:
            found.setdefault(binding.destination, []).append(binding)
    return found
