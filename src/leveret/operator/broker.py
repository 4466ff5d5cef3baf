"""Commands about the broker as a whole: its status, its queues, its log, and reloading its configuration.

Source: ruling 24.
"""

from dataclasses import asdict
from typing import Annotated, Any

from .. import __version__
from ..configured.configured import set_ring_size
from ..console.dispatcher import Http, Level
from ..engine import Broker, plain_arguments
from ..settings import ArgumentFault
from ..settings.addresses.queue_arguments import check_conflicts
from .command import COMMANDS, command
from .command_error import CommandError
from .kinds import FLAG, Name, OnlyVhost, QueueName, RingSize, VhostName, one_of
from .operator import Operator
from .parked import blocked_by, parked_of, parked_of_all
from .steps import Steps
from .trouble import trouble

LOG_LEVELS = ("debug", "info", "warning", "error", "critical")


@command("status", http=Http("GET", "leveret/status", Level.MONITORING), reads=True)
def status(at: Operator) -> Steps:
    """Show what the broker has now, and counters since it started."""
    statistics = yield from at.broker.statistics_in_steps()
    return {
        "trouble": (yield from trouble(at.broker)),
        "product": "leveret",
        "version": __version__,
        "uptime_ms": at.broker.context.clock.wall_ms() - at.started_ms,
        "connections": statistics.clients,
        "vhosts": statistics.vhosts,
        "exchanges": statistics.exchanges,
        "queues": statistics.queues,
        "consumers": statistics.consumers,
        "ready": statistics.ready,
        "unacked": statistics.unacked,
        "scheduled": statistics.scheduled,
        "deadlines": statistics.deadlines,
        "alarm": at.broker.flow.alarm_reason,
        "usage": _usage(at.broker),
        "blocked": _blocked(at.broker),
        "held": parked_of_all(at.broker),
        "slow_consumers": at.broker.context.slow_consumers.counts,
        "dead_letters_unroutable": {
            "count": at.broker.context.unroutable_letters.count,
            "queues": [asdict(place) for place in at.broker.context.unroutable_letters.places()[:20]],
        },
        "counters": statistics.counters,
        **at.edge_status(),
    }


def _usage(broker: Broker) -> list[dict[str, Any]]:
    """Each limit of memory, store and size, and its use: octets, or messages (queues page E.1)."""
    return [
        {
            "destination": node.destination,
            "limit": node.limit_name,
            "used": node.used,
            "max": node.limit,
            "low": node.low,
            "full": node.is_full,
            "waiting": len(node.round_robin),
        }
        for node in broker.flow.nodes()
    ]


def _blocked(broker: Broker) -> list[dict[str, Any]]:
    """Blocked connections, the longest wait first, with the amounts of their parked publishes."""
    return [
        {
            "connection_name": client.given_name,
            "connection": client.name,
            "vhost": client.vhost.name,
            **why,
            "held": parked_of(client),
        }
        for client, why in blocked_by(broker)
    ]


@command("queues", reads=True)
def queues(at: Operator, *, vhost: OnlyVhost | None = None) -> list[dict[str, Any]]:
    """List all queues with their messages."""
    objects = at.configured
    return [
        {
            "vhost": host.name,
            "name": queue.name,
            "durable": queue.durable,
            "exclusive": queue.exclusive,
            "auto_delete": queue.auto_delete,
            "configured": objects is not None and objects.is_managed(queue),
            "ready": queue.ready_count,
            "unacked": queue.unacked,
            "scheduled": len(queue.scheduled),
            "paused": queue.paused,
            "consumers": len(queue.consumers),
            "deferred_acks": queue.kind.figures(queue).get("deferred_acks", 0),
            "policy": queue.policy.policy.name if queue.policy.policy is not None else None,
            "operator_policy": queue.policy.operator.name if queue.policy.operator is not None else None,
            "effective_policy_definition": dict(queue.policy.definition),
            "counters": queue.counters.as_dict(),
        }
        for host in at.vhosts(vhost)
        for queue in host.queues.values()
    ]


@command("ring")
def resize_ring(at: Operator, queue: QueueName, size: RingSize, *, vhost: VhostName = "/") -> dict[str, Any]:
    """Resize a ring queue; nothing is deleted.

    size: messages; -1: no ring
    """
    found = at.queue(vhost, queue)
    if size > 0:
        try:
            check_conflicts({**plain_arguments(found.arguments), "x-ring-size": size})
        except ArgumentFault as fault:
            raise CommandError(f"queue {queue!r} can be no ring: {fault}") from None
    set_ring_size(found, size)  # address-settings page 4.3
    return {"queue": queue, "vhost": vhost, "ring_size": size}


@command("log", reads=True)
def log(at: Operator, level: Annotated[str, one_of(LOG_LEVELS)] = "debug", *, since: int = 0) -> list[dict[str, Any]]:
    """Show the last 200 lines of the log, oldest first.

    level: info, warning, ...: this and graver ones (default debug: all)
    since: only those behind the line with this number
    """
    if level not in LOG_LEVELS:
        raise CommandError(f"log: level must be one of {', '.join(LOG_LEVELS)}, not {level!r}")
    levels = LOG_LEVELS[LOG_LEVELS.index(level) :]
    return [line for line in at.log_lines() if line["level"] in levels and line["number"] > since]


@command("commands", http=Http("GET", "leveret/commands", Level.ANY), reads=True)
def commands(at: Operator, name: Name | None = None) -> list[dict[str, Any]]:
    """Describe the commands: their arguments, and the route of each that has one; forms are drawn from it.

    name: only this one
    """
    return [one.value() for actions in COMMANDS.values() for one in actions.values() if name in (None, one.words)]


@command("reload", http=Http("POST", "leveret/reload", Level.ADMINISTRATOR))
def reload(at: Operator, here: Annotated[bool, FLAG] = False) -> dict[str, Any]:
    """Read the configuration files again; on a cluster each node reads its own.

    here: only the node that leads (default false)
    """
    if at.reload is None:
        raise CommandError("this broker was started without configuration files")
    report = at.reload()
    if report.faults:
        raise CommandError("nothing was changed:\n" + "\n".join(report.faults))
    others = {} if at.cluster is None or here else {"others": at.cluster.reload()}
    return {"reloaded": True, "done": report.done, "warnings": report.warnings, **others}
