"""The command table of a running broker.

Requests are JSON, {"command": NAME, "arguments": {...}}, published to the exchange `leveret.control` by a user with
the tag administrator; the answer, {"ok": true, "result": ...} or {"ok": false, "error": TEXT}, goes to reply_to with
the request's correlation_id. Source: ruling 24.
"""

import logging
from collections.abc import Generator, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..engine import Broker, ContentError, Envelope, VirtualHost, answer_request, decode_properties
from .command_error import CommandError
from .families import IMPORT_STEPS
from .operator import Operator
from .steps import Steps, finished

if TYPE_CHECKING:
    from .command import Command

logger = logging.getLogger("leveret.control")

EXCHANGE = "leveret.control"


class ControlTable:
    """Runs commands for `ctl` over AMQP, for the console, and for this process."""

    def __init__(self, operator: Operator | None = None) -> None:
        self.operator = operator or Operator()
        self._is_loaded = False

    @property
    def broker(self) -> Broker:
        return self.operator.broker

    def ask(self, name: object, arguments: object = None) -> Any:
        """Run all steps of a command that only reads. Raises: CommandError."""
        return finished(self._call(*self._find(name, arguments)))

    def run(self, name: object, arguments: object = None) -> Any:
        """Run all steps of a command, without waiting for the journal. Raises: CommandError."""
        return finished(self._run(name, arguments, waits=False))

    def steps(self, name: object, arguments: object = None) -> Steps:
        """The steps of a command; they end when the journal has its changes. Raises: CommandError."""
        yield from self._import_modules()
        return (yield from self._run(name, arguments))

    def as_caller(self, caller: str, steps: Steps) -> Steps:
        """Run the steps of a command for this caller: see `Operator.caller`."""
        operator = self.operator
        try:
            while True:
                before, operator.caller = operator.caller, caller
                try:
                    next(steps)
                except StopIteration as end:
                    return end.value
                finally:
                    operator.caller = before
                yield
        finally:
            steps.close()

    def _run(self, name: object, arguments: object, *, waits: bool = True) -> Steps:
        """The steps of a command. `waits`: until the journal has its changes. Raises: CommandError."""
        command, given = self._find(name, arguments)
        steps = self._call(command, given)
        if command.reads:
            return (yield from steps)
        steps = self._record_versions(command.words, steps)
        return (yield from self._until_safe(steps) if waits else steps)

    def _record_versions(self, words: str, steps: Steps) -> Steps:
        """Run the steps of a command, and record what each step changed in versioned objects, even if it fails."""
        operator, versions = self.operator, self.operator.versions
        batch = versions.next_batch()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value
            finally:
                versions.note(words, operator.caller, batch)
            yield

    def load(self) -> None:
        """Import the modules of all commands at once."""
        finished(self._import_modules())

    def _import_modules(self) -> Steps:
        """Import the modules for the first command, one a step: all at once would block every client for 20 ms."""
        if self._is_loaded:
            return
        for name in IMPORT_STEPS:
            import_module(name if name.startswith(".") else f".{name}", __package__)
            yield
        self._is_loaded = True

    def _find(self, name: object, arguments: object) -> tuple["Command", dict[str, Any]]:
        """A command by name, and its arguments. Raises: CommandError."""
        if arguments is not None and not isinstance(arguments, dict):
            raise CommandError("arguments must be an object")
        from .command_table import find

        given = dict(arguments or {})
        return find(name, given), given

    def _call(self, command: "Command", given: dict[str, Any]) -> Steps:
        """The steps of a command. Raises: CommandError."""
        result = command.call(self.operator, given)
        return (yield from result) if isinstance(result, Generator) else result

    # -- over AMQP --------------------------------------------------------------------------------------------------

    def handle(self, vhost: VirtualHost, envelope: Envelope, content: bytes) -> None:
        """Serve one request message (an `engine.virtual_host.Service`): now, or in steps if that takes long."""
        steps = self._serve(vhost, envelope, content)
        for _ in steps:
            self.broker.background.run(steps)
            break

    def _serve(self, vhost: VirtualHost, envelope: Envelope, content: bytes) -> Iterator[None]:
        """Each step runs in a separate turn; the last one sends the answer, when the journal has the records."""
        header, body = envelope.framing.split(content)
        try:
            properties = decode_properties(header)
        except ContentError:
            properties = {}
        sender = properties.get("user_id")
        caller = f"{sender.decode(errors='replace')} by ctl" if isinstance(sender, bytes) else "ctl"
        answer = yield from self.as_caller(caller, self._answer(body))
        answer_request(vhost.context, properties, answer)

    def _answer(self, body: bytes) -> Steps:
        import json  # a start does not need it

        from ..settings.json_values import value_of_json

        try:
            request = value_of_json(body)
            if b"\\u" in body or not _is_text(body):
                json.dumps(request, ensure_ascii=False).encode()  # refuses lone surrogates, which are not text
            if not isinstance(request, dict):
                raise CommandError("a request is an object with a command")
            yield from self._import_modules()
            result = yield from self._run(request.get("command"), request.get("arguments"))
            return {"ok": True, "result": result}
        except (ValueError, RecursionError):
            return {"ok": False, "error": "the request is not JSON"}
        except CommandError as error:
            return {"ok": False, "error": str(error)}
        except Exception as error:
            logger.exception("a control command failed")
            return {"ok": False, "error": f"internal error: {type(error).__name__}"}

    def _until_safe(self, steps: Steps) -> Steps:
        """These steps, then further ones until the journal has their changes. Raises: CommandError."""
        result = yield from steps
        durability = self.broker.context.storage.durability
        sync_lsn = 0 if durability is None else durability.sync_lsn_of_all()
        while durability is not None and durability.safe_lsn < sync_lsn:
            if durability.has_failed or durability.is_lost:
                raise CommandError("the command was run, but the journal cannot record its changes")
            yield
        return result


def _is_text(body: bytes) -> bool:
    """Whether a request is valid UTF-8: the reader of JSON accepts surrogates."""
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True
