"""Commands about the broker as a whole: its status, its queues, its log, and reloading its configuration.

Source: ruling 24.
"""

from collections.abc import Callable
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
from .kinds import FLAG, AsUser, Name, OnlyVhost, QueueName, RingSize, VhostName, one_of
from .operator import Operator
from .parked import blocked_by, parked_of, parked_of_all
from .steps import Steps
from .trouble import trouble

LOG_LEVELS = ("debug", "info", "warning", "error", "critical")


@command("status", http=Http("GET", "leveret/status", Level.MONITORING), reads=True)
def status(operator: Operator, *, as_user: AsUser | None = None) -> Steps:
    """Show the number of objects and messages now, and counters since the start."""
    sees = operator.sight_of(as_user)
    statistics = yield from operator.broker.statistics_in_steps()
    cluster = None if operator.cluster is None else operator.cluster.status()
    places = [place for place in operator.broker.context.unroutable_letters.places() if sees(place.vhost)]
    return {
        "trouble": (yield from trouble(operator.broker, cluster, sees)),
        "product": "leveret",
        "version": __version__,
        "uptime_ms": operator.broker.context.clock.wall_ms() - operator.started_ms,
        "connections": statistics.clients,
        "vhosts": statistics.vhosts,
        "exchanges": statistics.exchanges,
        "queues": statistics.queues,
        "consumers": statistics.consumers,
        "ready": statistics.ready,
        "unacked": statistics.unacked,
        "scheduled": statistics.scheduled,
        "deadlines": statistics.deadlines,
        "alarm": operator.broker.flow.alarm_reason,
        "usage": _usage(operator.broker, sees),
        "blocked": _blocked(operator.broker, sees),
        "held": parked_of_all(operator.broker),
        "slow_consumers": operator.broker.context.slow_consumers.counts,
        "dead_letters_unroutable": {
            "count": operator.broker.context.unroutable_letters.count,
            "queues": [asdict(place) for place in places[:20]],
        },
        "counters": statistics.counters,
        **operator.process_status(),
    }


def _usage(broker: Broker, sees: Callable[[str], bool]) -> list[dict[str, Any]]:
    """Each limit of memory, store and size, and its use: octets, or messages (queues page E.1).

    `sees`: whether the objects in a virtual host are shown.
    """
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
        if node.vhost is None or sees(node.vhost)
    ]


def _blocked(broker: Broker, sees: Callable[[str], bool]) -> list[dict[str, Any]]:
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
        if sees(client.vhost.name)
    ]


@command("queues", reads=True)
def queues(operator: Operator, *, vhost: OnlyVhost | None = None) -> list[dict[str, Any]]:
    """List all queues with the numbers of their messages."""
    objects = operator.configured
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
        for host in operator.vhosts(vhost)
        for queue in host.queues.values()
    ]


@command("ring")
def resize_ring(operator: Operator, queue: QueueName, size: RingSize, *, vhost: VhostName = "/") -> dict[str, Any]:
    """Resize a ring queue; nothing is deleted.

    size: messages; -1: no ring
    """
    found = operator.queue(vhost, queue)
    if size > 0:
        try:
            check_conflicts({**plain_arguments(found.arguments), "x-ring-size": size})
        except ArgumentFault as fault:
            raise CommandError(f"queue {queue!r} cannot be a ring: {fault}") from None
    set_ring_size(found, size)  # address-settings page 4.3
    return {"queue": queue, "vhost": vhost, "ring_size": size}


@command("log", reads=True)
def log(
    operator: Operator, level: Annotated[str, one_of(LOG_LEVELS)] = "debug", *, since: int = 0
) -> list[dict[str, Any]]:
    """Show the last 200 lines of the log, oldest first.

    level: info, warning, ...: this level and higher ones (default debug: all)
    since: only the lines after this number
    """
    if level not in LOG_LEVELS:
        raise CommandError(f"log: level must be one of {', '.join(LOG_LEVELS)}, not {level!r}")
    levels, lines = LOG_LEVELS[LOG_LEVELS.index(level) :], operator.log_lines()
    if lines and since > lines[-1]["number"]:  # the number comes from before a restart
        since = 0
    return [line for line in lines if line["level"] in levels and line["number"] > since]


@command("commands", http=Http("GET", "leveret/commands", Level.ANY), reads=True)
def commands(operator: Operator, name: Name | None = None) -> list[dict[str, Any]]:
    """Describe the commands with their arguments and HTTP routes, from which the console draws its forms.

    name: only this one
    """
    return [one.value() for actions in COMMANDS.values() for one in actions.values() if name in (None, one.words)]


@command("reload", http=Http("POST", "leveret/reload", Level.ADMINISTRATOR))
def reload(operator: Operator, here: Annotated[bool, FLAG] = False) -> dict[str, Any]:
    """Read the configuration files again; on a cluster each node reads its own.

    here: only the node that leads (default false)
    """
    if operator.reload is None:
        raise CommandError("this broker was started without configuration files")
    report = operator.reload()
    if report.faults:
        raise CommandError("nothing was changed:\n" + "\n".join(report.faults))
    others = {} if operator.cluster is None or here else {"others": operator.cluster.reload()}
    return {"reloaded": True, "done": report.done, "warnings": report.warnings, **others}
