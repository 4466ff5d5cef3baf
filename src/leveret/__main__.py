"""The command line: serve, check, explain, diff, ctl, journal, pipeline. Source: interfaces page."""

import argparse
import io
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .serving.addresses import Address, AddressError, parse_address
from .settings import Configuration, load_configuration
from .settings.command_words import NearestParser
from .settings.faults import Origin, in_order
from .settings.printable import printable, printable_lines

if TYPE_CHECKING:
    from .operator.json_file import JsonFile
    from .serving.app import ConsoleWish

EXIT_OK, EXIT_FAILED, EXIT_UNUSABLE, EXIT_INTERRUPTED = 0, 1, 2, 130

#: Options that may be given more than once, or not at all.
REPEATED = frozenset({"arguments", "config", "files", "listen"})
#: Of a file that another one includes, in characters.
INCLUDED_SIZE_MAX = 1024**2
LOG_LEVELS = ("debug", "info", "warning", "error")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # no traceback for names that the terminal's encoding lacks
    if arguments[:1] == ["pipeline"]:  # it parses its own arguments
        try:
            from .cli.pipeline_command import run

            return run(arguments[1:])
        except KeyboardInterrupt:  # before it listens to signals, or a second one after it has
            return EXIT_INTERRUPTED
    parser = _parser(arguments)
    _refuse_unknown(parser, arguments)
    options = parser.parse_args(arguments)
    refuse_empty(parser, options)
    command: Any = options.run
    try:
        return int(command(options))
    except KeyboardInterrupt:
        return EXIT_OK
    except BrokenPipeError:
        return EXIT_FAILED


class PrintableFormatter(logging.Formatter):
    """Makes lines of the log safe for terminals, whatever names they contain."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        return printable_lines(super().format(record))


def refuse_empty(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuse a second "--" in place of a word, of which argparse makes an empty list."""
    for name, value in vars(options).items():
        if value == [] and name not in REPEATED:
            parser.error(f"{name.upper()} is missing: '--' is none")


def _refuse_unknown(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    """Name the nearest command, or option, for a first word that is none."""
    first = arguments[0] if arguments else ""
    (verbs,) = (one.choices for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    if not first or first in verbs or first == "-h" or any(one.startswith(first) for one in ("--help", "--version")):
        return
    from .settings.faults import nearest

    what = "option" if first.startswith("-") else "command"
    known = ["--help", "--version"] if what == "option" else list(verbs)
    parser.error(f"unknown {what} {first!r}{nearest(first, known)}, expected one of {', '.join(known)}")


class _Version(argparse.Action):
    """Prints the facts of the build, and nothing else is done."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from .cli.build_facts import build_facts

        print(build_facts())
        parser.exit()


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = NearestParser(prog="leveret", description="An AMQP 0-9-1 broker.")
    if arguments[:1] in (["-h"], ["--help"]):
        from .cli.build_facts import pages

        parser.epilog = f"Pages that messages name (docs/...) are in {pages()}." if pages() else None
    parser.add_argument("--version", action=_Version, nargs=0, help="what is installed here, and on what it runs")
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
    where.add_argument("--data", metavar="DIR", help="directory of the journal (default: ./leveret-data)")
    where.add_argument("--memory", action="store_true", help="keep everything in memory")
    serve.add_argument("--profile", metavar="NAME", help="RabbitMQ version to follow (default: leveret)")
    serve.add_argument(
        "--management", metavar="ADDRESS", help="where the console listens, or off (default: 127.0.0.1:15672)"
    )
    serve.add_argument("--log-level", choices=LOG_LEVELS, default="info")
    serve.add_argument("--force", action="store_true", help="start though the log lacks the recovery point of a queue")
    serve.add_argument(
        "--review-queues", action="store_true", help="build leased queues from their recovery points once more"
    )
    serve.add_argument(
        "--debug", action="store_true", help="check the engine every second, and stop when it contradicts itself"
    )
    serve.set_defaults(run=_serve)

    check = verbs.add_parser("check", help="check configuration files as serve would")
    check.add_argument("files", nargs="+", metavar="FILE")
    check.add_argument("--strict", action="store_true", help="exit 2 for a warning, too")
    check.set_defaults(run=_check)

    # The other verbs' arguments are added only for them: a third of the start-up time of every other command.
    if arguments[:1] in (["explain"], ["diff"]):
        from .cli.explain import add_commands

        add_commands(verbs, _load)
    else:
        verbs.add_parser("explain", help="every setting of a queue or address, and which rule gave it")
        verbs.add_parser("diff", help="what another configuration would change")
    if arguments[:1] == ["journal"]:
        from .cli.journal_commands import add_commands as add_journal_commands

        add_journal_commands(verbs)
    else:
        verbs.add_parser("journal", help="check, repair or print a journal")

    verbs.add_parser("pipeline", help="audits and statistics from the journal, with DuckDB or Spark")

    if arguments[:1] == ["init"]:
        from .cli.init_command import add_command as add_init

        add_init(verbs)
    else:
        verbs.add_parser("init", help="write a configuration to begin with, with comments")
    if arguments[:1] == ["doctor"]:
        from .cli.doctor_command import add_command as add_doctor

        add_doctor(verbs, _load)
    else:
        verbs.add_parser("doctor", help="what is wrong with this machine, a configuration, a data directory")
    if arguments[:1] == ["test-server"]:
        from .testing.remote.command import add_command as add_test_server

        add_test_server(verbs)
    else:
        verbs.add_parser("test-server", help="a broker for tests in any language, controlled by HTTP")

    if arguments[:1] == ["ctl"]:
        from .cli.ctl_command import add_command as add_ctl

        add_ctl(verbs)
    else:
        verbs.add_parser("ctl", help="manage a running broker")
    return parser


# -- serve ----------------------------------------------------------------------------------------------------------


def _serve(options: argparse.Namespace) -> int:
    from tempfile import gettempdir

    from .configured.machine import fitted_to_machine
    from .serving.app import ServeOptions, serve  # heavy: only when a broker is started
    from .serving.file_watch import FileWatch, marks_of
    from .serving.log_tail import LogTail
    from .serving.tls_files import load_tls

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    tail = LogTail()
    tail.setFormatter(PrintableFormatter("%(message)s"))
    logging.basicConfig(level=options.log_level.upper(), handlers=[handler, tail])

    def load() -> tuple[Configuration, list[str]]:
        configuration, faults = _load(options.config)
        if options.profile is not None:
            configuration, more = _with_profile(configuration, options.profile)
            faults += more
        return fitted_to_machine(configuration, data_of(configuration) or gettempdir()), faults

    def data_of(configuration: Configuration) -> str | None:
        return None if options.memory else options.data or configuration.value("broker", "data")

    watch = FileWatch(marks_of(options.config)) if options.config else None  # before they are read
    configuration, faults = load()
    if watch is not None:
        watch.follow(marks_of(configuration.included))
    tls = load_tls(configuration)
    console, more = _console(options.management, configuration)
    faults += more
    listen, problems = _addresses(options.listen or configuration.value("broker", "listen"), configuration)
    where = "leveret: --listen" if options.listen else f"{_configured_at(configuration, 'listen')}: listen:"
    faults += [*tls.faults, *(f"{where} {problem}" for problem in problems)]
    definitions, more = _load_definitions(configuration)
    faults += more
    if faults:
        print("\n".join(map(printable, in_order(faults, options.config))), file=sys.stderr)
        return EXIT_UNUSABLE
    data = data_of(configuration)
    again = load if options.config else None
    wanted = ServeOptions(configuration, listen, data, again, watch, tls, definitions, console)
    wanted.log_lines = tail.lines
    wanted.is_forced, wanted.reviews_queues = options.force, options.review_queues
    wanted.checks_invariants = options.debug
    return serve(wanted)


def _console(given: str | None, configuration: Configuration) -> "tuple[ConsoleWish | None, list[str]]":
    """Where the console is served, and what is wrong with that; None where it is not installed, or not wanted."""
    from .serving.app import ConsoleWish

    places, faults = _console_places(given, configuration)
    if places is None:
        return None, faults
    explicit = configuration.explicit
    is_named = given is not None or ("management", "listen") in explicit
    return ConsoleWish(places[0], is_named, places[1], ("management", "metrics") in explicit), faults


def _console_places(
    given: str | None, configuration: Configuration
) -> tuple[tuple[list[Address], list[Address]] | None, list[str]]:
    """The addresses of the console and of its metrics, and what is wrong; None where nobody is to listen there."""
    from importlib.util import find_spec

    origins = [origin for (table, _), origin in configuration.origins.items() if table == "management"]
    texts = configuration.value("management", "listen") if given is None else (given,)
    if tuple(texts) == ("off",) or (given is None and not configuration.value("management", "enabled")):
        return None, []
    if find_spec("h11") is None:
        where = "leveret: --management" if given is not None else f"{origins[0]}: management" if origins else None
        needs = 'needs the console, expected: pip install "leveret[console]"'
        return None, [] if where is None else [f"{where}: {needs}"]
    file = _configured_at(configuration, "listen", "management")
    where = "leveret: --management:" if given is not None else f"{file}: listen:"
    listen, faults = _console_addresses(where, texts, configuration)
    text = configuration.value("management", "metrics")
    where = f"{_configured_at(configuration, 'metrics', 'management')}: metrics:"
    metrics, more = _console_addresses(where, () if text == "off" else (text,), configuration)
    return (listen, metrics), faults + more


def _console_addresses(
    where: str, texts: Sequence[str], configuration: Configuration
) -> tuple[list[Address], list[str]]:
    """Addresses of HTTP, and what is wrong with them."""
    listen: list[Address] = []
    faults: list[str] = []
    for text in texts:
        try:
            address = parse_address(text, is_http=True)
        except AddressError as error:
            faults.append(f"{where} {error}")
            continue
        is_inside = address.path or address.host in ("localhost", "::1") or address.host.startswith("127.")
        if address.is_tls and configuration.value("tls", "certificate") is None:
            faults.append(f"{where} {text!r}: TLS needs a certificate: [tls] certificate is missing")
        elif not address.is_tls and not is_inside and not configuration.value("management", "plain-outside"):
            faults.append(
                f"{where} {text!r}: is outside loopback, where passwords could be read: expected https:// with [tls], "
                "127.0.0.1, or plain-outside = true in [management]"
            )
        listen.append(address)
    return listen, faults


def _addresses(texts: Sequence[str], configuration: Configuration) -> tuple[list[Address], list[str]]:
    """The addresses to listen on, and what is wrong with them."""
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


def _configured_at(configuration: Configuration, key: str, table: str = "broker") -> str:
    """FILE:LINE of a key."""
    origin = configuration.origins.get((table, key))
    return str(origin) if origin is not None else "leveret"


def _with_profile(configuration: Configuration, profile: str) -> tuple[Configuration, list[str]]:
    from .settings.declared.configuration import KEYS

    try:
        explicit = {**configuration.explicit, ("broker", "profile"): KEYS["broker"]["profile"].read(profile)}
    except ValueError as error:
        return configuration, [f"leveret: --profile {profile}: expected {error}"]
    return replace(configuration, explicit=explicit), []


def _load(names: Sequence[str]) -> tuple[Configuration, list[str]]:
    """The configuration of some files, and every fault as a line, including those that only a broker finds."""
    from .configured.configured import doubtful_arguments, faults_of
    from .configured.configured_users import open_secrets

    texts: list[tuple[str, str]] = []
    is_private: dict[str, bool] = {}
    unreadable: list[str] = []
    for name in names:
        try:
            with open(name, encoding="utf-8") as file:
                texts.append((name, file.read()))
                # Without POSIX modes a file is assumed to be private.
                is_private[name] = os.name != "posix" or not os.fstat(file.fileno()).st_mode & 0o077
        except OSError as error:
            unreadable.append(f"{name}: cannot be read: {error.strerror}")
        except UnicodeDecodeError:
            unreadable.append(f"{name}:1: FILE: is not UTF-8 text")
    configuration, faults = load_configuration(texts, os.environ, _fetch)
    lines = [*map(str, faults), *open_secrets(configuration, is_private)]
    lines += faults_of(configuration, {str(Origin(fault.file, fault.line)) for fault in faults})
    warnings = (*configuration.warnings, *doubtful_arguments(configuration))
    return replace(configuration, warnings=warnings), in_order([*unreadable, *lines], names)


def _fetch(file: str, path: str) -> tuple[str, str]:
    """Name and text of a file that another one includes. Raises: ValueError with what is wrong."""
    name = os.path.normpath(os.path.join(os.path.dirname(file), path))
    try:
        if not os.path.isfile(name):
            raise ValueError("is no file")
        with open(name, encoding="utf-8") as included:
            content = included.read(INCLUDED_SIZE_MAX + 1)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text") from None
    if len(content) > INCLUDED_SIZE_MAX:
        raise ValueError(f"is longer than {INCLUDED_SIZE_MAX} characters")
    return name, content


def _load_definitions(configuration: Configuration) -> "tuple[JsonFile | None, list[str]]":
    """The file that `definitions` names, and why it cannot be read; None without that key."""
    name = configuration.value("broker", "definitions")
    if name is None:
        return None, []
    from .operator.json_file import JsonFault, read_json_file

    try:
        return read_json_file(name), []
    except OSError as error:
        return None, [f"{name}: cannot be read: {error.strerror}"]
    except JsonFault as fault:
        return None, [f"{name}:{fault.line}: FILE: {fault}"]


def _check_definitions(configuration: Configuration, *, is_sound: bool) -> tuple[list[str], list[str]]:
    """Faults and warnings of the file that `definitions` names; without a sound configuration, whether it is JSON."""
    from .operator.definitions import looked_through
    from .operator.definitions_reader import DefinitionsFault

    file, faults = _load_definitions(configuration)
    if file is None or not is_sound:
        return faults, []
    try:
        wrong, remarks = looked_through(configuration, file.value)
    except DefinitionsFault as fault:
        return file.placed(fault.faults), []
    if configuration.value("broker", "definitions-all-or-nothing"):
        return file.placed(wrong), file.placed(remarks)
    return [], file.placed([*(f"{one} (left out)" for one in wrong), *remarks])


# -- check ----------------------------------------------------------------------------------------------------------


def _check(options: argparse.Namespace) -> int:
    from .configured.machine import fitted_to_machine
    from .serving.tls_files import load_tls

    configuration, faults = _load(options.files)
    configuration = fitted_to_machine(configuration, configuration.value("broker", "data"))
    tls = load_tls(configuration)
    _, problems = _addresses(configuration.value("broker", "listen"), configuration)
    where = _configured_at(configuration, "listen")
    faults += [*tls.faults, *(f"{where}: listen: {problem}" for problem in problems)]
    faults += _console_places(None, configuration)[1]
    wrong, doubtful = _check_definitions(configuration, is_sound=not faults)
    faults += wrong
    warnings = in_order([*configuration.warnings, *tls.warnings, *doubtful], options.files)
    if faults:
        print("\n".join(map(printable, in_order(faults, options.files))))
        return EXIT_UNUSABLE
    for warning in warnings:
        print(printable(f"warning: {warning}"))
    if warnings and options.strict:
        return EXIT_UNUSABLE
    print("ok")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
