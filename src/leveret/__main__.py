"""The command line: serve, check, explain, diff, ctl, journal, pipeline. Source: interfaces page."""

import argparse
import json
import logging
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from . import __version__
from .addresses import Address, AddressError, parse_address
from .explain import add_commands, explanation_of, explanation_text
from .settings import Configuration, load_configuration

EXIT_OK, EXIT_FAILED, EXIT_UNUSABLE = 0, 1, 2

#: Arguments of control commands that may stand without their names, in this order.
UNNAMED = {
    "scheduled": ("action",),
    "explain": ("name",),
    "ring": ("queue", "size"),
    "users": ("action", "name"),
    "vhosts": ("action", "name"),
    "permissions": ("action", "user", "configure", "write", "read"),
    "topic-permissions": ("action", "user", "exchange", "write", "read"),
    "definitions": ("action", "file"),
    "policies": ("action", "name", "pattern", "definition"),
    "operator-policies": ("action", "name", "pattern", "definition"),
}
#: Words that fingers know from rabbitmqctl -> command and action.
RABBITMQCTL = {
    f"{action}_{what}": (command, action)
    for command, singular, plural in (
        ("policies", "policy", "policies"),
        ("operator-policies", "operator_policy", "operator_policies"),
    )
    for action, what in (("set", singular), ("clear", singular), ("list", plural))
}
#: What stands before "=" in NAME=VALUE.
ARGUMENT_NAME = re.compile(r"[a-z][a-z-]*")

LOG_LEVELS = ("debug", "info", "warning", "error")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["pipeline"]:  # whose arguments are its own
        from .pipeline_command import run

        return run(arguments[1:])
    options = _parser(arguments).parse_args(arguments)
    command: Any = options.run
    try:
        return int(command(options))
    except KeyboardInterrupt:
        return EXIT_OK
    except BrokenPipeError:
        return EXIT_FAILED


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="leveret", description="An AMQP 0-9-1 broker.")
    parser.add_argument("--version", action="version", version=f"leveret {__version__}")
    verbs = parser.add_subparsers(required=True, metavar="COMMAND")

    serve = verbs.add_parser("serve", help="run a broker")
    serve.add_argument(
        "--config", action="append", default=[], metavar="FILE", help="configuration (TOML or XML); repeatable"
    )
    serve.add_argument(
        "--listen",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="HOST:PORT, amqps://HOST:PORT or unix:PATH; repeatable",
    )
    where = serve.add_mutually_exclusive_group()
    where.add_argument("--data", metavar="DIR", help="keep durable things here (default: ./leveret-data)")
    where.add_argument("--memory", action="store_true", help="keep everything in memory")
    serve.add_argument("--profile", metavar="NAME", help="whose semantics to follow (default: leveret)")
    serve.add_argument("--log-level", choices=LOG_LEVELS, default="info")
    serve.set_defaults(run=_serve)

    check = verbs.add_parser("check", help="look at configuration files as serve would")
    check.add_argument("files", nargs="+", metavar="FILE")
    check.set_defaults(run=_check)

    add_commands(verbs, _load)
    if "journal" in arguments[:1]:  # a fifth of the start-up of every other command
        from .journal_commands import add_commands as add_journal_commands

        add_journal_commands(verbs)
    else:
        verbs.add_parser("journal", help="look at a journal, save what can be saved")

    verbs.add_parser("pipeline", help="the journal on Spark: ingest, audits, reports")

    ctl = verbs.add_parser("ctl", help="rule a running broker")
    ctl.add_argument("--url", default=None, help="amqp[s]://USER:PASSWORD@HOST:PORT/VHOST of an administrator")
    ctl.add_argument("--ca", metavar="FILE", help="with amqps: whose certificates to believe, not this machine's")
    ctl.add_argument("--certificate", metavar="FILE", help="with amqps: our own, if the broker wants one")
    ctl.add_argument("--key", metavar="FILE", help="of that certificate, unless it is in the same file")
    ctl.add_argument("--json", action="store_true", help="print JSON")
    ctl.add_argument("command", help=f"status, queues, reload, {', '.join(UNNAMED)}")
    ctl.add_argument("arguments", nargs="*", metavar="ARGUMENT", help="explain NAME; ring QUEUE SIZE; or NAME=VALUE")
    ctl.add_argument("--vhost", default=None, help="the virtual host that the command is about (vhost=...)")
    ctl.set_defaults(run=_ctl)
    return parser


# -- serve ----------------------------------------------------------------------------------------------------------


def _serve(options: argparse.Namespace) -> int:
    from .app import ServeOptions, serve  # heavy: only when a broker is started
    from .file_watch import FileWatch, marks_of
    from .tls_files import load_tls

    logging.basicConfig(
        stream=sys.stderr,
        level=options.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )

    def load() -> tuple[Configuration, list[str]]:
        configuration, faults = _load(options.config)
        if options.profile is not None:
            configuration, more = _with_profile(configuration, options.profile)
            faults += more
        return configuration, faults

    watch = FileWatch(marks_of(options.config)) if options.config else None  # before they are read
    configuration, faults = load()
    tls = load_tls(configuration)
    listen, problems = _addresses(options.listen or configuration.value("broker", "listen"), configuration)
    where = "leveret: --listen" if options.listen else f"{_said_at(configuration, 'listen')}: listen:"
    faults += [*tls.faults, *(f"{where} {problem}" for problem in problems)]
    definitions, more = (None, []) if faults else _load_definitions(configuration)
    faults += more
    if faults:
        print("\n".join(faults), file=sys.stderr)
        return EXIT_UNUSABLE
    data = None if options.memory else options.data or configuration.value("broker", "data")
    return serve(ServeOptions(configuration, listen, data, load if options.config else None, watch, tls, definitions))


def _addresses(texts: Sequence[str], configuration: Configuration) -> tuple[list[Address], list[str]]:
    """What to listen on, and what is wrong with it."""
    listen: list[Address] = []
    problems: list[str] = []
    for text in texts:
        try:
            listen.append(parse_address(text))
        except AddressError as error:
            problems.append(str(error))
            continue
        if listen[-1].is_tls and configuration.value("tls", "certificate") is None:
            problems.append(f"{text!r}: TLS needs a certificate: [tls] certificate is missing")
    return listen, problems


def _said_at(configuration: Configuration, key: str) -> str:
    """FILE:LINE of a key of `[broker]`."""
    origin = configuration.origins.get(("broker", key))
    return str(origin) if origin is not None else "leveret"


def _with_profile(configuration: Configuration, profile: str) -> tuple[Configuration, list[str]]:
    from .settings.configuration import KEYS

    try:
        said = {**configuration.said, ("broker", "profile"): KEYS["broker"]["profile"].read(profile)}
    except ValueError as error:
        return configuration, [f"leveret: --profile {profile}: expected {error}"]
    return replace(configuration, said=said), []


def _load(names: Sequence[str]) -> tuple[Configuration, list[str]]:
    """The configuration of some files, and every fault as a line: also those that only a broker finds."""
    from .configured import faults_of
    from .configured_users import open_secrets

    texts: list[tuple[str, str]] = []
    is_private: dict[str, bool] = {}
    unreadable: list[str] = []
    for name in names:
        try:
            with open(name, encoding="utf-8") as file:
                texts.append((name, file.read()))
                # Where there are no such modes, nothing is known against the file.
                is_private[name] = os.name != "posix" or not os.fstat(file.fileno()).st_mode & 0o077
        except OSError as error:
            unreadable.append(f"{name}: cannot be read: {error.strerror}")
        except UnicodeDecodeError:
            unreadable.append(f"{name}:1: FILE: is not UTF-8 text")
    configuration, faults = load_configuration(texts)
    lines = unreadable + [str(fault) for fault in faults] + open_secrets(configuration, is_private)
    return configuration, lines or faults_of(configuration)


def _load_definitions(configuration: Configuration) -> tuple[object, list[str]]:
    """The document that `definitions` names, and what is wrong with it; None when there is no such key."""
    from .definitions import faults_of_definitions

    name = configuration.value("broker", "definitions")
    if name is None:
        return None, []
    try:
        with open(name, encoding="utf-8") as file:
            document = json.load(file)
    except OSError as error:
        return None, [f"{name}: cannot be read: {error.strerror}"]
    except (ValueError, RecursionError):
        return None, [f"{name}:1: FILE: is not JSON"]
    return document, [f"{name}:1: {fault}" for fault in faults_of_definitions(configuration, document)]


# -- check ----------------------------------------------------------------------------------------------------------


def _check(options: argparse.Namespace) -> int:
    from .tls_files import load_tls

    configuration, faults = _load(options.files)
    tls = load_tls(configuration)
    _, problems = _addresses(configuration.value("broker", "listen"), configuration)
    where = _said_at(configuration, "listen")
    faults += [*tls.faults, *(f"{where}: listen: {problem}" for problem in problems)]
    if not faults:
        faults += _load_definitions(configuration)[1]
    if faults:
        print("\n".join(faults))
        return EXIT_UNUSABLE
    for warning in (*configuration.warnings, *tls.warnings):
        print(f"warning: {warning}")
    print("ok")
    return EXIT_OK


# -- ctl ------------------------------------------------------------------------------------------------------------


def _ctl(options: argparse.Namespace) -> int:
    from .control_client import DEFAULT_URL, ControlFailed, request, tls_context

    arguments: dict[str, Any] = {} if options.vhost is None else {"vhost": options.vhost}
    command, *action = RABBITMQCTL.get(options.command, (options.command,))
    unnamed = list(UNNAMED.get(command, ()))
    for item in (*action, *options.arguments):
        name, equals, value = item.partition("=")
        is_named = bool(equals) and ARGUMENT_NAME.fullmatch(name) is not None
        if not is_named and unnamed:
            name, value = unnamed.pop(0), item
        elif not is_named:
            print(f"leveret ctl: {item!r} is not NAME=VALUE", file=sys.stderr)
            return EXIT_UNUSABLE
        arguments[name] = value
    try:
        _read_what_is_not_said(command, arguments)
        files = (options.ca, options.certificate, options.key)
        context = tls_context(*files) if any(files) else None
        result = request(options.url or DEFAULT_URL, command, arguments, context=context)
    except ControlFailed as error:
        print(f"leveret ctl: {error}", file=sys.stderr)
        return EXIT_FAILED
    print(json.dumps(result) if options.json else _as_text(result, command))
    return EXIT_OK


def _read_what_is_not_said(command: str, arguments: dict[str, Any]) -> None:
    """A password from the terminal or standard input: the command line is for everybody to see. A file by its name."""
    from getpass import getpass

    from .control_client import ControlFailed

    wants_password = command == "users" and arguments.get("action") in ("add", "passwd")
    if wants_password and not {"password", "password-hash"} & arguments.keys():
        line = getpass("Password: ") if sys.stdin.isatty() else sys.stdin.readline()
        arguments["password"] = line.rstrip("\r\n")
    if command == "definitions" and "file" in arguments:
        name = arguments.pop("file")
        try:
            with open(name, encoding="utf-8") as file:
                arguments["definitions"] = json.load(file)
        except (OSError, ValueError, RecursionError) as error:
            raise ControlFailed(f"{name}: {getattr(error, 'strerror', None) or 'is not JSON'}") from None


def _as_text(result: Any, command: str) -> str:
    if command == "definitions" and "imported" not in result:
        return json.dumps(result, indent=2)
    if command == "explain":
        return "\n\n".join(explanation_text(explanation_of(one)) for one in result)
    if isinstance(result, list):
        return _as_table(result)
    if isinstance(result, dict):
        return "\n".join(f"{key}: {_value_text(value)}" for key, value in result.items())
    return str(result)


def _as_table(rows: list[Any]) -> str:
    """A line a row under the names of the columns that say anything."""
    if not all(isinstance(row, dict) for row in rows):
        return "\n".join(map(str, rows))
    names = list(dict.fromkeys(name for row in rows for name in row if name != "counters" and _cell(row[name])))
    lines = [names, *([_cell(row.get(name)) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _cell(value: Any) -> str:
    if value is None or value == {} or value == []:
        return ""
    return json.dumps(value) if isinstance(value, bool | dict | list) else str(value)


def _value_text(value: Any) -> str:
    """A list, of lines for people, stands below its name, and so does a table of numbers."""
    if isinstance(value, dict):
        return "".join(f"\n  {key}: {one}" for key, one in value.items())
    return "".join(f"\n  {line}" for line in value) if isinstance(value, list) else str(value)


if __name__ == "__main__":
    sys.exit(main())
