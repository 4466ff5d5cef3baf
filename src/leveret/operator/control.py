"""The command table of a running broker.

Requests are JSON, {"command": NAME, "arguments": {...}}, published to the exchange `leveret.control` by a user with
the tag administrator; the answer, {"ok": true, "result": ...} or {"ok": false, "error": TEXT}, goes to reply_to with
the request's correlation_id. Source: ruling 24.
"""

import logging
from collections.abc import Callable, Generator, Iterator
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..configured.configured import ConfiguredObjects, Report
from ..engine import (
    Broker,
    ContentError,
    Envelope,
    VirtualHost,
    answer_request,
    decode_properties,
)
from .command_error import CommandError
from .operator import Operator
from .steps import Steps, finished

if TYPE_CHECKING:
    from .command import Command
    from .definitions import Definitions

logger = logging.getLogger("leveret.control")

EXCHANGE = "leveret.control"
LOG_LEVELS = ("debug", "info", "warning", "error", "critical")

#: What serves commands, in such an order that each takes a few milliseconds to import at most.
PARTS = (
    "command_table",
    "..expressions.patterns.pattern_syntax",
    "definitions_reader",
    "definitions",
    "look_through",
    "..settings.explain",
    "..settings.difference",
    "running",
    "live_difference",
    "access",
    "broker",
    "browsing",
    "drafts",
    "moving",
    "routing",
)
#: Runs one command, or gives the steps that do; its arguments have been read by `command_table`.
Handler = Callable[[dict[str, Any]], Any]


class ControlTable:
    """Commands by name. `reload`, `edge_status` and `log_lines` belong to the composition root."""

    def __init__(
        self,
        *,
        reload: Callable[[], Report] | None = None,
        edge_status: Callable[[], dict[str, Any]] | None = None,
        log_lines: Callable[[], list[dict[str, Any]]] | None = None,
    ) -> None:
        self.operator = Operator(reload=reload, edge_status=edge_status, log_lines=log_lines)

    # What serves a command is made for the first one: most brokers hear of none, and its modules take a tenth of the
    # time to start.

    @cached_property
    def definitions(self) -> "Definitions":
        """Export and import of definitions."""
        from .definitions import Definitions

        return Definitions(lambda: self.broker)

    @cached_property
    def handlers(self) -> dict[str, Handler]:
        """What runs each command, by its words."""
        from .access import AccessCommands
        from .broker import BrokerCommands
        from .browsing import BrowseCommands
        from .connections import ConnectionCommands
        from .drafts import DraftCommands
        from .events import EventCommands
        from .messages import MessageCommands
        from .moving import MovingCommands
        from .parameters import ParameterCommands
        from .policies import PolicyCommands
        from .routing import RoutingCommands

        whole = BrokerCommands(
            lambda: self.broker,
            objects=lambda: self.operator.configured,
            started_ms=lambda: self.operator.started_ms,
            edge_status=self.operator.edge_status,
        )
        return {
            **whole.handlers,
            "reload": self._reload_command,
            "log": self._log_command,
            **ConnectionCommands(lambda: self.broker).handlers,
            **AccessCommands(lambda: self.broker).handlers,
            **PolicyCommands(lambda: self.broker).handlers,
            **MessageCommands(lambda: self.broker).handlers,
            **EventCommands(lambda: self.broker, self.operator).handlers,
            **DraftCommands(lambda: self.broker, lambda: self.operator.configured).handlers,
            **BrowseCommands(lambda: self.broker, lambda: self.operator.events, lambda: self.operator.stories).handlers,
            **RoutingCommands(lambda: self.broker).handlers,
            **MovingCommands(lambda: self.broker, self.operator.jobs).handlers,
            **ParameterCommands(lambda: self.broker, self._cluster_name).handlers,
            **self.definitions.handlers,
        }

    def attach(self, broker: Broker, objects: ConfiguredObjects | None = None) -> None:
        """Set the broker that the commands are for, and the configuration's objects in it."""
        self.operator.attach(broker, objects)

    @property
    def broker(self) -> Broker:
        """The attached broker."""
        return self.operator.broker

    def run(self, name: object, arguments: object = None) -> Any:
        """Run one command, to its end. Raises: CommandError."""
        _, result = self._begin(name, arguments)
        return finished(result) if isinstance(result, Generator) else result

    def steps(self, name: object, arguments: object = None) -> Steps:
        """The steps of one command; the last comes when what it did is safe. Raises: CommandError."""
        yield from self._parts()
        command, result = self._begin(name, arguments)
        if not isinstance(result, Generator):
            result = _at_once(result)
        return (yield from result if command.reads else self._until_safe(result))

    def load(self) -> None:
        """Import what serves commands, at once."""
        from . import command_table

        assert command_table.COMMANDS and self.handlers

    def _parts(self) -> Steps:
        """Import them, for the first command: all in one step would be 20 ms, for which everybody waits."""
        if "handlers" in vars(self):
            return
        for name in PARTS:
            import_module(name if name.startswith(".") else f".{name}", __package__)
            yield

    def _begin(self, name: object, arguments: object) -> tuple["Command", Any]:
        """A command, and its result or the steps that come to it. Raises: CommandError."""
        if arguments is not None and not isinstance(arguments, dict):
            raise CommandError("arguments must be an object")
        from .command_table import find

        given = dict(arguments or {})
        command = find(name, given)
        if command.words in self.handlers:
            return command, command.function(self.handlers, command.words, command.read(given))
        return command, command.call(self.operator, given)

    # -- over AMQP --------------------------------------------------------------------------------------------------

    def handle(self, vhost: VirtualHost, envelope: Envelope, blob: bytes) -> None:
        """Serve one request message (an `engine.virtual_host.Service`): now, or in steps if that takes long."""
        steps = self._serve(vhost, envelope, blob)
        for _ in steps:
            self.broker.run_errand(steps)
            break

    def _serve(self, vhost: VirtualHost, envelope: Envelope, blob: bytes) -> Iterator[None]:
        """Each step is for a turn of its own; the answer comes with the last one, when what was done is safe."""
        header, body = envelope.framing.split(blob)
        try:
            properties = decode_properties(header)
        except ContentError:
            properties = {}
        answer = yield from self._answer(body)
        answer_request(vhost, properties, answer)

    def _answer(self, body: bytes) -> Steps:
        import json

        try:
            request = json.loads(body)
            if b"\\u" in body or not _is_text(body):
                json.dumps(request, ensure_ascii=False).encode()  # refuses lone surrogates, which are not text
            if not isinstance(request, dict):
                raise CommandError("a request is an object with a command")
            yield from self._parts()
            command, result = self._begin(request.get("command"), request.get("arguments"))
            if isinstance(result, Generator):
                result = yield from result if command.reads else self._until_safe(result)
            return {"ok": True, "result": result}
        except (ValueError, RecursionError):
            return {"ok": False, "error": "the request is not JSON"}
        except CommandError as error:
            return {"ok": False, "error": str(error)}
        except Exception as error:
            logger.exception("a control command failed")
            return {"ok": False, "error": f"internal error: {type(error).__name__}"}

    def _until_safe(self, steps: Steps) -> Steps:
        """These steps, and such as wait until the journal has what they did."""
        result = yield from steps
        durability = self.broker.durability
        barrier = 0 if durability is None else durability.barrier_behind_all()
        while durability is not None and durability.safe_lsn < barrier:
            if durability.has_failed or durability.is_lost:
                raise CommandError("the journal cannot record it")
            yield
        return result

    def _log_command(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        """The last lines, oldest first; of a broker in somebody else's process none."""
        level = arguments.get("level", LOG_LEVELS[0])
        if level not in LOG_LEVELS:
            raise CommandError(f"log: level must be one of {', '.join(LOG_LEVELS)}, not {level!r}")
        levels = LOG_LEVELS[LOG_LEVELS.index(level) :]
        return [line for line in self.operator.log_lines() if line["level"] in levels]

    def _cluster_name(self) -> str:
        """As the configuration has it; "" if it says nothing."""
        configured = self.operator.configured
        return "" if configured is None else configured.configuration.explicit.get(("broker", "cluster-name"), "")

    def _reload_command(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if self.operator.reload is None:
            raise CommandError("this broker was started without configuration files")
        report = self.operator.reload()
        if report.faults:
            raise CommandError("nothing was changed:\n" + "\n".join(report.faults))
        return {"reloaded": True, "done": report.done, "warnings": report.warnings}


def _at_once(result: object) -> Steps:
    yield from ()
    return result


def _is_text(body: bytes) -> bool:
    """Whether it is UTF-8 as such: JSON's reader lets surrogates pass."""
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True
