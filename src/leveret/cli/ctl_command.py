"""`leveret ctl`: commands to a running broker, and its answers as text. Source: interfaces page; ruling 24."""

import argparse
import json
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

from ..operator.command import Command
from ..operator.command_error import CommandError
from ..operator.command_table import COMMANDS, find
from ..operator.kinds import TIME
from ..settings.printable import printable, printable_lines
from .explain import explanation_of, explanation_text
from .rates import Rates
from .tables import as_table, cell
from .times import delay_of, seconds_of
from .tls_arguments import add_tls_arguments, context_of

if TYPE_CHECKING:
    from ..operator.json_file import JsonFile

EXIT_OK, EXIT_FAILED = 0, 1

#: Names from rabbitmqctl and rabbitmq-upgrade -> command and action.
RABBITMQCTL = {
    "cluster_status": ("cluster",),
    "set_cluster_name": ("cluster-name",),
    "forget_cluster_node": ("forget",),
    "await_online_quorum_plus_one": ("cluster", "wait-safe-to-stop"),
    "await_online_synchronized_mirror": ("cluster", "wait-safe-to-stop"),
    "list_vhosts": ("vhosts", "list"),
    "add_vhost": ("vhosts", "add"),
    "delete_vhost": ("vhosts", "delete"),
    "list_users": ("users", "list"),
    "add_user": ("users", "add"),
    "delete_user": ("users", "delete"),
    "change_password": ("users", "passwd"),
    "set_user_tags": ("users", "tags"),
    "list_permissions": ("permissions", "list"),
    "set_permissions": ("permissions", "set"),
    "clear_permissions": ("permissions", "clear"),
    "list_topic_permissions": ("topic-permissions", "list"),
    "set_topic_permissions": ("topic-permissions", "set"),
    "clear_topic_permissions": ("topic-permissions", "clear"),
    "list_exchanges": ("exchanges",),
    "list_bindings": ("bindings",),
    "purge_queue": ("purge",),
    "delete_queue": ("delete-queue",),
    "import_definitions": ("definitions", "import"),
    "export_definitions": ("definitions", "export"),
    "set_policy": ("policies", "set"),
    "clear_policy": ("policies", "clear"),
    "list_policies": ("policies", "list"),
    "set_operator_policy": ("operator-policies", "set"),
    "clear_operator_policy": ("operator-policies", "clear"),
    "list_operator_policies": ("operator-policies", "list"),
    "list_parameters": ("parameters", "list"),
    "set_parameter": ("parameters", "set"),
    "clear_parameter": ("parameters", "clear"),
    "list_global_parameters": ("global-parameters", "list"),
    "set_global_parameter": ("global-parameters", "set"),
    "clear_global_parameter": ("global-parameters", "clear"),
    "list_queues": ("queues",),
    "list_connections": ("connections",),
    "list_channels": ("channels",),
    "list_consumers": ("consumers",),
    "close_connection": ("close-connection",),
    "trace_on": ("trace-on",),
    "trace_off": ("trace-off",),
}
#: Commands that read a password.
WITH_PASSWORD = frozenset({"users add", "users passwd"})
#: NAME in NAME=VALUE.
ARGUMENT_NAME = re.compile(r"[a-z][a-z-]*")


#: The parser has no `--help` of its own: with a COMMAND, ours shows the help of that.
PARSER = {"add_help": False}


def add_arguments(ctl: argparse.ArgumentParser) -> None:
    ctl.formatter_class, ctl.epilog = argparse.RawDescriptionHelpFormatter, _help()
    ctl.add_argument("-h", "--help", action="store_true", help="show this, or the help of one COMMAND")
    ctl.add_argument(
        "--url",
        default=None,
        help="amqp[s]://USER:PASSWORD@HOST:PORT/VHOST of an administrator, or http:// of a test server",
    )
    add_tls_arguments(ctl)
    ctl.add_argument(
        "--timeout",
        type=_seconds,
        default=None,
        metavar="TIME",
        help="time limit of the whole request, as 90, 90s or 5m (30 s; 10m for definitions)",
    )
    ctl.add_argument("--json", action="store_true", help="print JSON")
    ctl.add_argument(
        "--watch",
        type=_seconds,
        nargs="?",
        const=2.0,
        default=None,
        metavar="TIME",
        help="show it again and again (every 2 s), with rates, until Ctrl-C",
    )
    ctl.add_argument("-p", "--vhost", default=None, help="the virtual host that the command is for (vhost=...)")
    for name in ("priority", "apply-to"):  # options of `rabbitmqctl set_policy` are arguments here
        ctl.add_argument(f"--{name}", dest="named", action="append", type=f"{name}={{}}".format, help=argparse.SUPPRESS)
    ctl.add_argument("command", nargs="?", metavar="COMMAND", help="one of those below")
    ctl.add_argument("arguments", nargs="*", metavar="ARGUMENT", help="as below, or as NAME=VALUE")
    ctl.set_defaults(parser=ctl)


def run(options: argparse.Namespace) -> int:
    """Send a command, and print its answer; with --watch repeat that until it fails or is interrupted."""
    if options.watch is None:
        return _run(options)
    rates = Rates()
    try:
        while True:
            if (code := _run(options, rates)) != EXIT_OK:
                return code
            time.sleep(options.watch)
    except KeyboardInterrupt:
        return EXIT_OK


def _print_again(text: str, options: argparse.Namespace) -> None:
    """Print an answer for --watch. In a terminal it replaces the previous answer in one write, without flickering."""
    if not options.json:
        words = " ".join(map(printable, (options.command or "", *options.arguments)))
        text = f"{datetime.now().astimezone().isoformat(' ', 'seconds')}  {words}\n{text}"
    if sys.stdout.isatty():
        lines, room = text.split("\n"), max(2, shutil.get_terminal_size().lines - 1)
        if len(lines) > room:
            lines[room - 1 :] = [f"({len(lines) - room + 1} more lines)"]
        text = "\x1b[H" + "\n".join(f"{line}\x1b[K" for line in lines) + "\n\x1b[J"
        sys.stdout.write(text)
    else:
        print(text)
    sys.stdout.flush()


def _run(options: argparse.Namespace, rates: Rates | None = None) -> int:
    """Send one request and print its answer. `rates`: those of --watch. Returns the exit code."""
    from .control_client import DEFAULT_URL, ControlFailed, request
    from .node_commands import NODE_COMMANDS, NodeCommands

    file: JsonFile | None = None
    if options.command == "help":
        options.help, options.command = True, next(iter(options.arguments), None)
    if options.help or options.command is None:
        print(_help_of(options.command) if options.command in COMMANDS else options.parser.format_help().rstrip())
        return EXIT_OK if options.help else EXIT_FAILED
    if options.url is not None and options.url.startswith("http://"):
        return _run_remote(options, rates)
    try:
        into, items = "-", [*options.arguments, *(options.named or ())]
        if options.command == "export_definitions" and items:  # rabbitmqctl writes a file
            into, *items = items
        name, arguments = _read(options.command, items, options.vhost)
        if rates is not None and (command := find(name, dict(arguments))).changes:
            raise command.error("--watch repeats commands that only show something, and this one changes something")
        if name == "where" and not options.json:
            arguments["report"] = True
        if name == "definitions" and "definitions" in arguments:
            file = _definitions(arguments["definitions"])
            arguments["definitions"] = file.value
        context = context_of(options)
        url = options.url or DEFAULT_URL
        try:
            if name in NODE_COMMANDS:
                result = NodeCommands(url, context, options.timeout).run(find(name, dict(arguments)).words, arguments)
            else:
                result = request(url, name, arguments, timeout_s=options.timeout, context=context)
            if file is not None:
                result |= {key: file.placed(result.get(key, ())) for key in ("faults", "remarks")}
            if rates is not None and not options.json:
                result = rates.with_rates(result, name)
            text = json.dumps(result) if options.json else as_text(result, name)
        except (LookupError, TypeError, ValueError, ArithmeticError, OSError, AttributeError, RecursionError):
            # from a broker of another version
            raise ControlFailed(f"the answer to {name!r} is not one that this program understands") from None
        if into != "-":
            text = _write(into, text)
    except (CommandError, ControlFailed) as error:
        first, *more = str(error).split("\n")
        text = "\n".join([first, *(more if file is None else file.placed(more))])
        print(f"leveret ctl: {printable_lines(text)}", file=sys.stderr)
        return EXIT_FAILED
    if rates is None:
        print(text)
    else:
        _print_again(text, options)
    return EXIT_FAILED if file is not None and result["faults"] else EXIT_OK


def _write(name: str, text: str) -> str:
    """Write a text to a file. Returns the line to print. Raises: ControlFailed."""
    from .control_client import ControlFailed

    try:
        Path(name).write_text(f"{text}\n", "utf-8")
    except OSError as error:
        raise ControlFailed(f"{name}: {error.strerror}") from None
    return f"exported to {name}"


def _definitions(name: str) -> "JsonFile":
    """Read a file of definitions. Raises: ControlFailed."""
    from ..operator.json_file import JsonFault, read_json_file
    from .control_client import ControlFailed

    try:
        return read_json_file(name)
    except OSError as error:
        raise ControlFailed(f"{name}: {error.strerror}") from None
    except JsonFault as fault:
        raise ControlFailed(f"{name}:{fault.line}: {fault}") from None


def _run_remote(options: argparse.Namespace, rates: Rates | None) -> int:
    """Send an operation to a test server, and print its result. `rates`: set by --watch, which is refused."""
    from .control_client import ControlFailed
    from .remote_control import remote_request

    if rates is not None:
        print("leveret ctl: --watch is for commands to a broker, not to a test server", file=sys.stderr)
        return EXIT_FAILED
    items = [*options.arguments, *([f"vhost={options.vhost}"] if options.vhost is not None else [])]
    try:
        result = remote_request(options.url, options.command, items, options.timeout)
    except (CommandError, ControlFailed) as error:
        print(f"leveret ctl: {printable_lines(str(error))}", file=sys.stderr)
        return EXIT_FAILED
    if result is not None:
        print(json.dumps(result, indent=None if options.json else 2))
    return EXIT_OK


def _seconds(text: str) -> float:
    """Raises: argparse.ArgumentTypeError."""
    try:
        return seconds_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


# -- requests --------------------------------------------------------------------------------------------------


def _read(word: str, items: Sequence[str], vhost: str | None) -> tuple[str, dict[str, Any]]:
    """The name and the arguments of a command, from the command line. Raises: CommandError, ControlFailed."""
    try:
        "".join((word, *items, vhost or "")).encode()
    except UnicodeEncodeError:
        raise CommandError("the command line is not text in UTF-8") from None
    name, *action = RABBITMQCTL.get(word, (word,))
    if word == "set_user_tags" and len(items) > 2:  # rabbitmqctl takes a word for each tag
        items = [items[0], ",".join(items[1:])]
    words = [*action, *items]
    given: dict[str, Any] = {}
    if name in COMMANDS and COMMANDS[name].keys() != {""} and words and not words[0].startswith("action="):
        is_named = "=" in words[0] and ARGUMENT_NAME.fullmatch(words[0].partition("=")[0])
        if not is_named:
            given["action"] = words.pop(0)
    elif words and words[0].startswith("action="):
        given["action"] = words.pop(0).partition("=")[2]
    command = find(name, dict(given))
    names = {argument.typed: argument.name for argument in command.arguments}
    open_slots = [argument.typed for argument in command.arguments if argument.is_positional]
    if vhost is not None:
        given["vhost"] = vhost
    for item in words:
        key, equals, value = item.partition("=")
        if not equals or ARGUMENT_NAME.fullmatch(key) is None:
            if not open_slots:
                if command.words in WITH_PASSWORD:  # do not print a word that may be a password
                    raise command.error("give the password on standard input, not here", with_usage=True)
                raise command.error(f"{item!r} is one too many", with_usage=True)
            key, value = open_slots.pop(0), item
        elif key in open_slots:
            open_slots.remove(key)
        given[names.get(key, key)] = value
    for argument in command.arguments:
        if argument.kind is TIME and argument.name in given:
            try:
                given[argument.name] = delay_of(given[argument.name], datetime.now())
            except ValueError as error:
                raise command.error(str(error)) from None
    command.read({key: value for key, value in given.items() if key != "action"})
    _read_password(command, given)
    return name, given


def _read_password(command: Command, arguments: dict[str, Any]) -> None:
    """Read a password from the terminal or standard input, because all users can see command lines."""
    from getpass import getpass

    if command.words in WITH_PASSWORD and not {"password", "password-hash"} & arguments.keys():
        line = getpass("Password: ") if sys.stdin.isatty() else sys.stdin.readline()
        arguments["password"] = line.rstrip("\r\n")


# -- help -----------------------------------------------------------------------------------------------------------


def _help() -> str:
    """The list of all commands with their arguments."""
    lines = [
        "commands (`leveret ctl COMMAND --help` explains one). What is wrong: status, growing, unacknowledged,",
        "blocked, dead-letters; where a message is: where; what was changed, and how to put it back: versions",
    ]
    family = ""
    for command in [one for actions in COMMANDS.values() for one in actions.values()]:
        if (module := command.function.__module__.rpartition(".")[2]) != family:
            family = module
            lines += ["", f"{family}:"]
        lines += [f"  {command.usage}", f"      {command.help}"]
    return "\n".join(lines)


def _help_of(name: str) -> str:
    return "\n\n".join("\n".join(_lines_of(command)) for command in COMMANDS[name].values())


def _lines_of(command: Command) -> Iterator[str]:
    yield f"usage: leveret ctl {command.usage}"
    yield f"  {command.help}"
    width = max((len(argument.typed) for argument in command.arguments), default=0)
    for argument in command.arguments:
        yield f"    {argument.typed:{width}}  {argument.help}"


# -- answers -----------------------------------------------------------------------------------------------


def as_text(result: Any, command: str) -> str:
    """The text of an answer, safe for terminals."""
    if command == "definitions" and "imported" not in result:
        return json.dumps(result, indent=2)
    if command == "explain":
        return "\n\n".join(explanation_text(explanation_of(one)) for one in result)
    if command == "jobs" and isinstance(result, list):
        result = [_job_of(row) for row in result]
    elif isinstance(result, dict) and {"started", "ended"} <= result.keys():
        result = _job_of(result)
    if isinstance(result, list):
        width = None if command == "log" else _width()  # sentences are not cut
        return as_table(result, width) if result else "none"
    if command == "dead-letters" and "items" in result:
        return _dead_letters_text(result)
    if command == "where" and isinstance(result, dict):
        return _places_text(result)
    if command == "cluster" and "nodes" in result:
        result = _cluster_of(result)
    if command == "cluster" and "changes" in result:
        result = _history_of(result)
    if command == "status" and isinstance(result, dict) and isinstance(result.get("trouble"), list):
        wrong = "; ".join(map(str, result["trouble"]))
        rest = {key: value for key, value in result.items() if key != "trouble"}
        return f"{printable(f'NOT WELL: {wrong}') if wrong else 'all is well'}\n{as_text(rest, command)}"
    if isinstance(result, dict):
        return "\n".join(f"{key.removesuffix('_ms')}: {_value_text(value, key)}" for key, value in result.items())
    return printable(str(result))


def _places_text(found: dict[str, Any]) -> str:
    """The text of `where`: the places of a message, and how much was searched."""
    messages = "1 message" if found["looked_at"] == 1 else f"{found['looked_at']} messages"
    extent = f"looked at {messages} in {found['queues']} of {found['of_queues']} queues"
    why = f", then stopped: {found['stopped']}" if found["stopped"] else ""
    items = as_table(found["items"], _width()) if found["items"] else "no message of this id was found"
    return printable_lines(f"{items}\n({extent}{why})")


def _job_of(job: dict[str, Any]) -> dict[str, Any]:
    """A job's row. The names of its times end in `_ms`, so that they are shown as times."""
    times = {"started_ms": job["started"], "ended_ms": job["ended"]}
    return {name: value for name, value in job.items() if name not in ("started", "ended")} | times


def _dead_letters_text(found: dict[str, Any]) -> str:
    """The queues of dead letters, a row for each cause, and those in which not all messages were counted."""
    queues = found["items"]
    no_cause: list[dict[str, Any]] = [{}]
    rows = [
        {
            "queue": row["queue"],
            **cause,
            "in-queue": row["messages"],
            "oldest_ms": None if row["oldest"] is None else 1000 * row["oldest"],  # s, as in x-death
            "vhost": row["vhost"],
        }
        for row in queues
        for cause in row["causes"] or no_cause
    ]
    unfinished = [row for row in queues if row["looked_at"] < row["messages"]]
    parts = [f"of {row['queue']} the first {row['looked_at']} of {row['messages']}" for row in unfinished]
    more = [f"(counted: {'; '.join(parts)}; the rest was not read)"] if unfinished else []
    if (hidden := found["queues"] - len(queues)) > 0:
        more.append(f"({hidden} more {'queue' if hidden == 1 else 'queues'}, with fewer messages)")
    return printable_lines("\n".join([as_table(rows, _width()) if rows else "none", *more]))


#: The columns of a node; `--json` has more.
NODE_COLUMNS = ("name", "state", "is-linked", "term", "end", "lag", "reaches", "version", "level", "addresses")
#: Facts that are shown in lines of their own, or not at all.
_APART = ("node", "state", "since-ms", "why", "handover", "min-in-sync", "nodes")


def _cluster_of(status: dict[str, Any]) -> dict[str, Any]:
    """The facts of a cluster as lines and a table, from the leader, or from any node while none leads."""
    since = _moment(status["since-ms"])
    facts = {name: value for name, value in status.items() if name not in _APART}
    facts |= {"insync": ", ".join(status["insync"]) or None}
    facts |= {"state": f"node {status['node']} is {status['state']} since {since}: {status['why']}"}
    if (handover := status.get("handover")) and handover.get("refused"):
        facts["last handover"] = f"refused: {handover['refused']}"
    return {**facts, "nodes": list(map(_node_of, status["nodes"]))}


def _history_of(history: dict[str, Any]) -> dict[str, Any]:
    """The history of a cluster as a table."""
    changes = [{"at": _moment(one["at-ms"]), **one, "at-ms": None} for one in history["changes"]]
    return {"known": f"to node {history['node']} since {_moment(history['since-ms'])}", "changes": changes}


def _moment(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000).astimezone().isoformat(" ", "seconds")


def _node_of(node: dict[str, Any]) -> dict[str, Any]:
    """A node of a cluster as a row."""
    row = {name: node.get(name) for name in NODE_COLUMNS}
    return {name: " ".join(value) if isinstance(value, list) else value for name, value in row.items()}


def _width(indented: int = 0) -> int | None:
    """Columns of the terminal; None: the output is a file or a pipe."""
    return max(1, shutil.get_terminal_size().columns - indented) if sys.stdout.isatty() else None


def _value_text(value: Any, name: str = "") -> str:
    """The text of a value. Lists and objects begin on a new line."""
    if value is None or value == []:
        return "none"
    if isinstance(value, list) and all(isinstance(row, dict) for row in value):
        return "\n" + indent(as_table(value, _width(2)), "  ")
    if isinstance(value, dict):
        return "".join(f"\n  {printable(key)}: {printable(str(one))}" for key, one in value.items())
    if isinstance(value, list):
        return "".join(f"\n  {printable(str(line))}" for line in value)
    return cell(value, name) if name.endswith("_ms") else printable(str(value))
