"""The control command `route`: where a message would go, why not elsewhere, and what settings would do with it.

Nothing is published, declared or counted. Source: management page 16.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from ..engine import (
    PLAIN,
    Binding,
    Broker,
    Envelope,
    Queue,
    check_expiration,
    encode_header,
    json_of_table,
    scan_properties,
)
from .acting import Handlers, acting, vhost_of
from .command_error import CommandError
from .messages import FLAGS_AT, OCTETS_MAX, body_of, properties_of
from .operator import refusals
from .steps import Steps

#: Queues that are listed; the rest is counted.
LISTED_MAX = 500
#: Queues that are asked between two turns.
ASKED_AT_ONCE = 50


class RoutingCommands:
    """`handlers` by the words of the command, for the control table. `broker` is called each time: it may be set
    later."""

    def __init__(self, broker: Callable[[], Broker]) -> None:
        self._broker = broker
        self.handlers: Handlers = {"route": self._route}

    def _route(self, arguments: dict[str, Any]) -> Steps:
        broker = self._broker()
        client = acting(broker, arguments)
        exchange, key = arguments["exchange"], arguments.get("routing-key", "")
        if max(len(exchange.encode(errors="replace")), len(key.encode(errors="replace"))) > OCTETS_MAX:
            raise CommandError("route: exchange and routing-key: longer than 255 octets")
        body = body_of("route", {"payload": "", **arguments})
        header = encode_header(len(body), properties_of("route", arguments.get("properties") or {}))
        facts = scan_properties(header[FLAGS_AT:])
        with refusals():
            check_expiration(facts.expiration)
            run = vhost_of(broker, arguments).dry_run(
                Envelope(exchange, key, facts), PLAIN.join(header, body), client.user
            )
        yield from run.steps()
        arrival, route = run.arrival, run.route
        queues = list(route.queues)
        by = _bindings_by_queue(hop.taken for hop in route.hops)
        rows: list[dict[str, Any]] = []
        for count, queue in enumerate(islice(queues, LISTED_MAX), 1):
            outcome, ttl_ms = run.prospect(queue)
            rows.append(
                {
                    "queue": queue.name,
                    "how": route.queues[queue] or "by bindings",
                    "outcome": outcome,
                    "ttl_ms": ttl_ms,
                    "messages": queue.ready_count,
                    "bindings": [_binding(one) for one in by.get(queue, ())],
                }
            )
            if count % ASKED_AT_ONCE == 0:
                yield
        blocked = broker.alarm
        if blocked is None and queues:
            full = broker.flow.room_for(queues, arrival.envelope, (PLAIN.join(header, body),), client)[1]
            blocked = None if full is None else f"{full.node.destination}: {full.node.limit_name}"
        return {
            "exchange": exchange,
            "routing_keys": list(run.keys),
            "address": arrival.address,
            "fate": _fate(run, queues),
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
                *({**_binding(binding), "why": why} for hop in route.hops for binding, why in hop.missed),
                *({"destination": one.name, "why": "its filter does not take the message"} for one in route.passed_by),
            ],
            "others_total": sum(hop.missed_count for hop in route.hops) + len(route.passed_by),
            "exchanges": [
                {"name": hop.exchange.name, "alternate": hop.alternate, "by_chance": hop.is_chance}
                for hop in route.hops
            ],
        }


def _fate(run: Any, queues: list[Queue]) -> str:
    """What becomes of the message as a whole."""
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


def _binding(binding: Binding) -> dict[str, Any]:
    return {
        "source": binding.source.name,
        "destination": binding.destination.name,
        "destination_type": "queue" if isinstance(binding.destination, Queue) else "exchange",
        "routing_key": binding.routing_key,
        "arguments": json_of_table(binding.arguments),
    }
