"""The command table of a running broker.

Requests are JSON, {"command": NAME, "arguments": {...}}, published to the exchange `leveret.control` by a user with
the tag administrator; the answer, {"ok": true, "result": ...} or {"ok": false, "error": TEXT}, goes to reply_to with
the request's correlation_id. Source: ruling 24.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from .. import __version__
from ..configured.configured import ConfiguredObjects, Report, set_ring_size
from ..configured.typed_arguments import plain_of
from ..engine import (
    PLAIN,
    Broker,
    ContentError,
    Envelope,
    PropertyValue,
    Queue,
    VirtualHost,
    decode_properties,
    encode_header,
    publish_by_name,
)
from ..settings import ArgumentFault
from ..settings.addresses.queue_arguments import check_conflicts
from ..settings.faults import nearest
from .command_arguments import CommandError
from .command_table import find
from .control_access import AccessCommands
from .control_connections import ConnectionCommands
from .control_policies import PolicyCommands
from .definitions import Definitions
from .running import explain_running

logger = logging.getLogger("leveret.control")

EXCHANGE = "leveret.control"
#: How many scheduled messages are listed, soonest first.
LISTED_MAX = 1000

#: Runs one command; its arguments have been read by `command_table`.
Handler = Callable[[dict[str, Any]], Any]


class ControlTable:
    """Commands by name. `reload` and `edge_status` belong to the composition root."""

    def __init__(
        self, *, reload: Callable[[], Report] | None = None, edge_status: Callable[[], dict[str, Any]] | None = None
    ) -> None:
        self._broker: Broker | None = None
        self._objects: ConfiguredObjects | None = None
        self._reload = reload
        self._edge_status = edge_status
        self._started_ms = 0
        self.definitions = Definitions(lambda: self.broker)
        self.handlers: dict[str, Handler] = {
            "status": self._status,
            "queues": self._queues,
            "explain": self._explain,
            "ring": self._ring,
            "scheduled list": self._list_scheduled,
            "scheduled fire": self._fire,
            "scheduled cancel": self._cancel,
            "scheduled reschedule": self._reschedule,
            "reload": self._reload_command,
            **ConnectionCommands(lambda: self.broker).handlers,
            **AccessCommands(lambda: self.broker).handlers,
            **PolicyCommands(lambda: self.broker).handlers,
            **self.definitions.handlers,
        }

    def attach(self, broker: Broker, objects: ConfiguredObjects | None = None) -> None:
        """Set the broker that the commands are for, and the configuration's objects in it."""
        self._broker = broker
        self._objects = objects
        self._started_ms = broker.clock.wall_ms()

    @property
    def broker(self) -> Broker:
        """The attached broker."""
        assert self._broker is not None
        return self._broker

    def run(self, name: object, arguments: object = None) -> Any:
        """Run one command. Raises: CommandError."""
        if arguments is not None and not isinstance(arguments, dict):
            raise CommandError("arguments must be an object")
        given = dict(arguments or {})
        command = find(name, given)
        return self.handlers[command.words](command.read(given))

    # -- over AMQP --------------------------------------------------------------------------------------------------

    def handle(self, vhost: VirtualHost, envelope: Envelope, blob: bytes) -> None:
        """Serve one request message (an `engine.virtual_host.Service`)."""
        header, body = envelope.framing.split(blob)
        try:
            properties = decode_properties(header)
        except ContentError:
            properties = {}
        answer = self._answer(body)
        reply_to = properties.get("reply_to")
        if not isinstance(reply_to, bytes) or not reply_to:
            return
        kept: dict[str, PropertyValue] = {"content_type": b"application/json"}
        if isinstance(properties.get("correlation_id"), bytes):
            kept["correlation_id"] = properties["correlation_id"]
        raw = json.dumps(answer).encode()
        reply = Envelope("", reply_to.decode("utf-8", "replace"))
        publish_by_name(vhost, reply, [PLAIN.join(encode_header(len(raw), kept), raw)])

    def _answer(self, body: bytes) -> dict[str, Any]:
        try:
            request = json.loads(body)
            json.dumps(request, ensure_ascii=False).encode()  # refuses lone surrogates, which are not text
            if not isinstance(request, dict):
                raise CommandError("a request is an object with a command")
            return {"ok": True, "result": self.run(request.get("command"), request.get("arguments"))}
        except (ValueError, RecursionError):
            return {"ok": False, "error": "the request is not JSON"}
        except CommandError as error:
            return {"ok": False, "error": str(error)}
        except Exception as error:
            logger.exception("a control command failed")
            return {"ok": False, "error": f"internal error: {type(error).__name__}"}

    # -- commands ---------------------------------------------------------------------------------------------------

    def _status(self, arguments: dict[str, Any]) -> dict[str, Any]:
        statistics = self.broker.statistics()
        return {
            "product": "leveret",
            "version": __version__,
            "uptime_ms": self.broker.clock.wall_ms() - self._started_ms,
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
            "counters": statistics.counters,
            **(self._edge_status() if self._edge_status is not None else {}),
        }

    def _queues(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        wanted = arguments.get("vhost")
        if wanted is not None and wanted not in self.broker.virtual_hosts:
            raise CommandError(f"no virtual host {wanted!r}")
        return [
            {
                "vhost": vhost.name,
                "name": queue.name,
                "durable": queue.durable,
                "exclusive": queue.exclusive,
                "auto_delete": queue.auto_delete,
                "configured": self._objects is not None and self._objects.is_managed(queue),
                "ready": queue.ready_count,
                "unacked": queue.unacked,
                "scheduled": len(queue.scheduled),
                "consumers": len(queue.consumers),
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
        if self._objects is None:
            raise CommandError("this broker has no configuration")
        return [asdict(one) for one in explain_running(self._objects, arguments["name"], vhost)]

    def _ring(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Resize a ring; nothing is deleted (address-settings page 4.3)."""
        queue, size = self._queue_named(arguments), arguments["size"]
        if size > 0:
            try:
                check_conflicts({**plain_of(queue.arguments), "x-ring-size": size})
            except ArgumentFault as fault:
                raise CommandError(f"queue {queue.name!r} can be no ring: {fault}") from None
        set_ring_size(queue, size)
        return {"queue": queue.name, "vhost": queue.vhost_name, "ring_size": size}

    def _list_scheduled(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        queue = self._queue_named(arguments)
        clock = self.broker.clock
        now_ns, wall_ms = clock.monotonic_ns(), clock.wall_ms()
        return [
            {
                "id": message.id,
                "due_ms": wall_ms + (due_ns - now_ns) // 1_000_000,
                "due_in_ms": max(0, (due_ns - now_ns) // 1_000_000),
                "exchange": message.envelope.exchange,
                "routing_key": message.envelope.routing_key,
                "attempts": message.deliveries - message.uncounted,
            }
            for due_ns, message in queue.scheduled.entries()[:LISTED_MAX]
        ]

    def _fire(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._to_scheduled("fire", arguments, lambda queue, id_: queue.reschedule(id_, 0))

    def _cancel(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._to_scheduled("cancel", arguments, lambda queue, id_: queue.cancel_scheduled(id_))

    def _reschedule(self, arguments: dict[str, Any]) -> dict[str, Any]:
        delay_ms = arguments["delay"]
        return self._to_scheduled("reschedule", arguments, lambda queue, id_: queue.reschedule(id_, delay_ms))

    def _to_scheduled(self, done: str, arguments: dict[str, Any], do: Callable[[Queue, int], bool]) -> dict[str, Any]:
        queue, id_ = self._queue_named(arguments), arguments["id"]
        if not do(queue, id_):
            raise CommandError(f"no message {id_} waits in queue {queue.name!r}")
        return {"id": id_, "done": done}

    def _queue_named(self, arguments: dict[str, Any]) -> Queue:
        name, vhost = arguments["queue"], arguments.get("vhost", "/")
        found = self.broker.virtual_hosts.get(vhost)
        if found is None:
            raise CommandError(f"no virtual host {vhost!r}")
        if name not in found.queues:
            raise CommandError(f"no queue {name!r} in virtual host {vhost!r}{nearest(name, found.queues)}")
        return found.queues[name]

    def _reload_command(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if self._reload is None:
            raise CommandError("this broker was started without configuration files")
        report = self._reload()
        if report.faults:
            raise CommandError("nothing was changed:\n" + "\n".join(report.faults))
        return {"reloaded": True, "done": report.done, "warnings": report.warnings}
