"""Commands about the broker as a whole, its queues and what waits in them. Source: ruling 24."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from .. import __version__
from ..configured.configured import ConfiguredObjects, set_ring_size
from ..configured.typed_arguments import plain_of
from ..engine import BadRequest, Broker, Queue, leases_of, renew_leases
from ..settings import ArgumentFault
from ..settings.addresses.queue_arguments import check_conflicts
from .acting import queue_of
from .command_error import CommandError
from .held import blocked_by, held_of, held_of_all
from .running import explain_running
from .steps import Steps
from .trouble import trouble

#: How many scheduled messages are listed, soonest first.
LISTED_MAX = 1000


class BrokerCommands:
    """`handlers` by the words of the command, for the control table. What is callable is called each time: it may be
    set later."""

    def __init__(
        self,
        broker: Callable[[], Broker],
        *,
        objects: Callable[[], ConfiguredObjects | None],
        started_ms: Callable[[], int],
        edge_status: Callable[[], dict[str, Any]] | None,
    ) -> None:
        self._broker = broker
        self._objects = objects
        self._started_ms = started_ms
        self._edge_status = edge_status
        self.handlers: dict[str, Callable[[dict[str, Any]], Any]] = {
            "status": self._status,
            "queues": self._queues,
            "explain": self._explain,
            "ring": self._ring,
            "leases": self._leases,
            "lease renew": self._renew,
            "scheduled fire": self._fire,
            "scheduled cancel": self._cancel,
            "scheduled reschedule": self._reschedule,
        }

    @property
    def broker(self) -> Broker:
        """The broker that the commands are for."""
        return self._broker()

    def _status(self, arguments: dict[str, Any]) -> Steps:
        statistics = yield from self.broker.statistics_in_steps()
        return {
            "trouble": (yield from trouble(self.broker)),
            "product": "leveret",
            "version": __version__,
            "uptime_ms": self.broker.clock.wall_ms() - self._started_ms(),
            "connections": statistics.clients,
            "vhosts": statistics.vhosts,
            "exchanges": statistics.exchanges,
            "queues": statistics.queues,
            "consumers": statistics.consumers,
            "ready": statistics.ready,
            "unacked": statistics.unacked,
            "scheduled": statistics.scheduled,
            "deadlines": statistics.deadlines,
            "alarm": self.broker.alarm,
            "usage": self._usage(),
            "blocked": self._blocked(),
            "held": held_of_all(self.broker),
            "slow_consumers": self.broker.slow_consumers.counts,
            "dead_letters_unroutable": {
                "count": self.broker.unroutable_letters.count,
                "queues": [asdict(place) for place in self.broker.unroutable_letters.places()[:20]],
            },
            "counters": statistics.counters,
            **(self._edge_status() if self._edge_status is not None else {}),
        }

    def _usage(self) -> list[dict[str, Any]]:
        """Each limit of memory, store and size, and how much of it is used: octets, or messages (queues page E.1)."""
        return [
            {
                "destination": node.destination,
                "limit": node.limit_name,
                "used": node.used,
                "max": node.limit,
                "low": node.low,
                "full": node.is_full,
                "waiting": len(node.ring),
            }
            for node in self.broker.flow.nodes()
        ]

    def _blocked(self) -> list[dict[str, Any]]:
        """Connections whose publishes are held, the longest first, and how much of each."""
        return [
            {"connection": client.name, "vhost": client.vhost.name, **why, "held": held_of(client)}
            for client, why in blocked_by(self.broker)
        ]

    def _queues(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        wanted = arguments.get("vhost")
        if wanted is not None and wanted not in self.broker.virtual_hosts:
            raise CommandError(f"no virtual host {wanted!r}")
        objects = self._objects()
        return [
            {
                "vhost": vhost.name,
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
                "deferred_acks": queue.deferred_count,
                "policy": queue.policy.policy.name if queue.policy.policy is not None else None,
                "operator_policy": queue.policy.operator.name if queue.policy.operator is not None else None,
                "effective_policy_definition": dict(queue.policy.definition),
                "counters": queue.counters.as_dict(),
            }
            for vhost in self.broker.virtual_hosts.values()
            if wanted is None or vhost.name == wanted
            for queue in vhost.queues.values()
        ]

    def _explain(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        vhost = arguments.get("vhost")
        if vhost is not None and vhost not in self.broker.virtual_hosts:
            raise CommandError(f"no virtual host {vhost!r}")
        objects = self._objects()
        if objects is None:
            raise CommandError("this broker has no configuration")
        return [asdict(one) for one in explain_running(objects, arguments["name"], vhost)]

    def _ring(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Resize a ring; nothing is deleted (address-settings page 4.3)."""
        queue, size = queue_of(self.broker, arguments), arguments["size"]
        if size > 0:
            try:
                check_conflicts({**plain_of(queue.arguments), "x-ring-size": size})
            except ArgumentFault as fault:
                raise CommandError(f"queue {queue.name!r} can be no ring: {fault}") from None
        set_ring_size(queue, size)
        return {"queue": queue.name, "vhost": queue.vhost_name, "ring_size": size}

    def _leases(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        """Who has which message of a leased queue, and until when; those that end first come first."""
        queue = queue_of(self.broker, arguments)
        if queue.rules.leased is None:
            raise CommandError(f"queue {queue.name!r} is no leased queue")
        first, count = arguments.get("after", 0), min(arguments.get("count", LISTED_MAX), LISTED_MAX)
        return leases_of(queue, first + count)[first:]

    def _renew(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Leases begin again, whoever has them."""
        queue = queue_of(self.broker, arguments)
        if queue.rules.leased is None:
            raise CommandError(f"queue {queue.name!r} is no leased queue")
        try:
            count = renew_leases(queue, arguments["bookmark"])
        except BadRequest as error:
            raise CommandError(str(error)) from None
        return {"queue": queue.name, "vhost": queue.vhost_name, "renewed": count}

    def _fire(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._to_scheduled("fire", arguments, lambda queue, id_: queue.reschedule(id_, 0))

    def _cancel(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._to_scheduled("cancel", arguments, lambda queue, id_: queue.cancel_scheduled(id_))

    def _reschedule(self, arguments: dict[str, Any]) -> dict[str, Any]:
        delay_ms = arguments["delay"]
        return self._to_scheduled("reschedule", arguments, lambda queue, id_: queue.reschedule(id_, delay_ms))

    def _to_scheduled(self, done: str, arguments: dict[str, Any], do: Callable[[Queue, int], bool]) -> dict[str, Any]:
        queue, id_ = queue_of(self.broker, arguments), arguments["id"]
        if not do(queue, id_):
            raise CommandError(f"no message {id_} waits in queue {queue.name!r}")
        return {"id": id_, "done": done}
