"""A command for a running broker: a function with typed parameters, called by `leveret ctl`, AMQP requests and HTTP.

    @command("delete-queue", http=Http("DELETE", "queues/V/Q", Level.VHOST, status=204))
    def delete_queue(operator: Operator, queue: QueueName, *, if_empty: bool = False) -> Steps:
        '''Delete a queue with its messages.

        if_empty: true: only if nothing is ready in it
        '''

A parameter before the star is positional on the command line; one without a default is required. Its annotation defines
its kind; its help is the line of the docstring that begins with its name, or the annotation's. The fields of a
dataclass as parameter are arguments of the command. `_` in a name becomes `-` except in bodies of HTTP. Source:
ruling 24.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, get_args, get_type_hints

from ..console.dispatcher import Http
from ..settings.faults import nearest
from ..settings.values import shown
from .command_error import CommandError
from .kinds import FLAG, NUMBER, TEXT, Kind, NotOfItsKind


@dataclass(slots=True, frozen=True)
class Argument:
    """An argument of a command. `is_positional`: the command line may give it by its position, without its name.

    `default`: None also if it is required.
    """

    name: str
    kind: Kind
    help: str
    is_required: bool
    is_positional: bool
    default: Any = None

    @property
    def typed(self) -> str:
        """The name of the argument on the command line."""
        return self.kind.typed or self.name

    @property
    def usage(self) -> str:
        """The form of the argument in usage lines."""
        word = self.typed.upper() if self.is_positional else f"{self.typed}={self.kind.word}"
        return word if self.is_required else f"[{word}]"

    def value(self) -> dict[str, Any]:
        """The argument as JSON, from which a form draws its field."""
        return {
            "name": self.name.replace("-", "_"),
            "kind": self.kind.word,
            "help": self.help,
            "is_required": self.is_required,
            "default": self.default,
            "options": list(self.kind.options),
            "keys": [list(key) for key in self.kind.keys],
        }


@dataclass(slots=True, frozen=True)
class Command:
    """One command. `words`: its name, and its action if it has one.

    `reads`: it writes nothing to the journal, so its answer waits for no record. `acts`: it changes the cluster
    nevertheless. `groups`: parameter -> the dataclass whose fields are arguments of the command.
    """

    words: str
    help: str
    arguments: tuple[Argument, ...]
    function: Callable[..., Any]
    http: Http | None
    reads: bool
    groups: Mapping[str, Any]
    acts: bool = False

    @property
    def changes(self) -> bool:
        """Whether the command changes something, so that `ctl` must not repeat it by itself."""
        return self.acts or not self.reads

    @property
    def usage(self) -> str:
        """The command with its arguments, on one line."""
        return " ".join((self.words, *(argument.usage for argument in self.arguments)))

    def value(self) -> dict[str, Any]:
        """The command as JSON: its arguments, and its route if it has one, with arguments in its path."""
        found = {"name": self.words, "help": self.help, "changes": self.changes}
        if self.http is not None:
            path = self.http.path_of({argument.name for argument in self.arguments})
            found |= {"method": self.http.method, "path": path, "level": self.http.level.name.lower()}
        return {**found, "arguments": [argument.value() for argument in self.arguments]}

    def read(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The values of the given arguments, by the names of the parameters. Raises: CommandError."""
        known = {argument.name: argument for argument in self.arguments}
        for name in given:
            if name not in known:
                near = nearest(name, known) if isinstance(name, str) else ""
                raise self.error(f"unknown argument {shown(name)}{near}", with_usage=True)
        values: dict[str, Any] = {}
        for argument in self.arguments:
            value = given.get(argument.name)
            if value is None:
                if argument.is_required:
                    raise self.error(f"expected {argument.name}={argument.kind.word}", with_usage=True)
                continue
            try:
                values[argument.name.replace("-", "_")] = argument.kind.read(argument.name, value)
            except NotOfItsKind:
                raise self.error(f"expected {argument.name}={argument.kind.word}", with_usage=True) from None
            except ValueError as error:
                raise self.error(str(error)) from None
        return values

    def call(self, operator: Any, given: Mapping[str, Any]) -> Any:
        """Call the function for an operator. Returns its result or its steps. Raises: CommandError."""
        values = self.read(given)
        for name, group in self.groups.items():
            values[name] = group(**{one.name: values.pop(one.name) for one in fields(group) if one.name in values})
        return self.function(operator, **values)

    def error(self, text: str, *, with_usage: bool = False) -> CommandError:
        return CommandError(f"{self.words}: {text}" + (f"\nusage: {self.usage}" if with_usage else ""))


#: Command -> action ("": none) -> Command. A request without an action means "", or else the first action.
COMMANDS: dict[str, dict[str, Command]] = {}


def command(words: str, *, http: Http | None = None, reads: bool = False, acts: bool = False) -> Callable[[Any], Any]:
    """Make a function a command. Its first parameter is the `Operator`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        name, _, action = words.partition(" ")
        text, helps = _documented(function)
        arguments = tuple(_arguments_of(function, helps))
        groups = {name: hint for name, hint in _hints(function).items() if is_dataclass(hint) and name != "operator"}
        one = Command(words, text, arguments, function, http, reads, groups, acts)
        COMMANDS.setdefault(name, {})[action] = one
        return function

    return register


def created(result: Mapping[str, Any]) -> int:
    """The HTTP status: 201 if the command created an object, 204 if it existed as declared."""
    return 201 if result["created"] else 204


def find(name: object, arguments: dict[str, Any]) -> Command:
    """A command by its name, and by the argument `action` if it has actions, which is removed. Raises: CommandError."""
    actions = COMMANDS.get(name) if isinstance(name, str) else None
    if actions is None:
        near = nearest(name, COMMANDS) if isinstance(name, str) else ""
        raise CommandError(f"unknown command {shown(name)}{near}, expected one of {', '.join(COMMANDS)}")
    if actions.keys() == {""}:
        return actions[""]
    wanted = arguments.pop("action", None)
    if wanted is None:
        return actions.get("") or next(iter(actions.values()))
    if not isinstance(wanted, str) or not wanted or wanted not in actions:
        near = nearest(wanted, actions) if isinstance(wanted, str) else ""
        expected = ", ".join(filter(None, actions))
        raise CommandError(f"{name}: unknown action {shown(wanted)}{near}, expected one of {expected}")
    return actions[wanted]


# -- arguments and help from a function's signature and docstring ---------------------------------------------------


def _arguments_of(function: Callable[..., Any], helps: Mapping[str, str]) -> Iterator[Argument]:
    hints = _hints(function)
    for one in list(inspect.signature(function).parameters.values())[1:]:
        hint = hints[one.name]
        if not is_dataclass(hint):
            is_positional = one.kind is one.POSITIONAL_OR_KEYWORD
            yield _argument(one.name, hint, helps, one.default, is_positional=is_positional)
            continue
        inner = get_type_hints(hint, include_extras=True)
        for field in fields(hint):
            yield _argument(field.name, inner[field.name], helps, field.default, is_positional=not field.kw_only)


def _argument(name: str, hint: Any, helps: Mapping[str, str], default: Any, *, is_positional: bool) -> Argument:
    """Make an argument. Raises: KeyError, at import: the parameter has no help."""
    kind, text = _kind_of(hint)
    text = helps.get(name, text) if text else helps[name]
    is_required = default in (MISSING, inspect.Parameter.empty)
    default = None if is_required else default
    return Argument(name.replace("_", "-"), kind, text, is_required, is_positional, default)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    found = get_type_hints(function, include_extras=True)
    return {name: hint for name, hint in found.items() if name != "return"}


def _kind_of(hint: Any) -> tuple[Kind, str]:
    """The kind and the help in an annotation."""
    for one in get_args(hint) if type(None) in get_args(hint) else (hint,):
        kind, *text = getattr(one, "__metadata__", (None,))
        if isinstance(kind, Kind):
            return kind, text[0] if text else ""
        if one in (str, bool, int):
            return {str: TEXT, bool: FLAG, int: NUMBER}[one], ""
    raise TypeError(f"{hint}: no kind of argument")


def _documented(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The first sentence of the docstring, and the help of its parameters; continuation lines are indented."""
    first, _, rest = (inspect.getdoc(function) or "").partition("\n")
    lines = (line.partition(": ") for line in rest.replace("\n    ", " ").splitlines())
    return first.rstrip("."), {name: text for name, _, text in lines}
