"""The command line. Each command is a module, and only the module of the given command is imported.

A module has `add_arguments(parser)` and `run(options)`, which returns the exit code; without `add_arguments` its `run`
parses the words itself. Source: interfaces page.
"""

import argparse
import io
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

from .settings.command_words import NearestParser

EXIT_OK, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 130

#: Word -> module, help.
COMMANDS = {
    "serve": ("cli.serve_command", "run a broker"),
    "check": ("cli.check_command", "check configuration files as serve would"),
    "explain": ("cli.explain", "every setting of a queue or address, and which rule gave it"),
    "diff": ("cli.diff_command", "what another configuration would change"),
    "journal": ("cli.journal_commands", "check, repair or print a journal"),
    "pipeline": ("cli.pipeline_command", "audits and statistics from the journal, with DuckDB or Spark"),
    "cluster": ("cli.cluster_command", "write an etcd for a cluster; begin a cluster again whose etcd lost its data"),
    "init": ("cli.init_command", "write a configuration to begin with, with comments"),
    "demo": ("cli.demo_command", "a broker that works badly, and a tour of its console"),
    "doctor": ("cli.doctor_command", "what is wrong with this machine, a configuration, a data directory"),
    "test-server": ("testing.remote.command", "a broker for tests in any language, controlled by HTTP"),
    "ctl": ("cli.ctl_command", "manage a running broker"),
}
#: Options whose value may be an empty list.
REPEATED = frozenset({"arguments", "config", "files", "listen"})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names that the terminal cannot encode must not raise
    word = arguments[0] if arguments else ""
    command = import_module(f".{COMMANDS[word][0]}", __package__) if word in COMMANDS else None
    if command is not None and not hasattr(command, "add_arguments"):
        try:
            return int(command.run(arguments[1:]))
        except KeyboardInterrupt:  # before or after the command handles signals
            return EXIT_INTERRUPTED
    parser = _parser(word, command)
    _refuse_unknown(parser, word)
    options = parser.parse_args(arguments)
    refuse_empty(parser, options)
    assert command is not None  # otherwise the parser has exited
    try:
        return int(command.run(options))
    except KeyboardInterrupt:
        return EXIT_OK
    except BrokenPipeError:
        return EXIT_FAILED


def refuse_empty(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuse a second "--" in place of a word: argparse makes an empty list of it."""
    for name, value in vars(options).items():
        if value == [] and name not in REPEATED:
            parser.error(f"{name.upper()} is missing: '--' is none")


def _parser(word: str, command: ModuleType | None) -> argparse.ArgumentParser:
    """The parser of all commands. Only the given command has its arguments."""
    parser = NearestParser(prog="leveret", description="An AMQP 0-9-1 broker.")
    if word in ("-h", "--help"):
        from .cli.build_facts import pages

        parser.epilog = f"Pages that messages name (docs/...) are in {pages()}." if pages() else None
    parser.add_argument("--version", action=_Version, nargs=0, help="what is installed here, and on what it runs")
    verbs = parser.add_subparsers(required=True, metavar="COMMAND")
    for one, (_, text) in COMMANDS.items():
        if command is None or one != word:
            verbs.add_parser(one, help=text)
        else:
            command.add_arguments(verbs.add_parser(one, help=text, **getattr(command, "PARSER", {})))
    return parser


def _refuse_unknown(parser: argparse.ArgumentParser, word: str) -> None:
    """Refuse an unknown first word, and name the nearest command or option."""
    if not word or word in COMMANDS or word == "-h" or any(one.startswith(word) for one in ("--help", "--version")):
        return
    from .settings.faults import nearest

    what = "option" if word.startswith("-") else "command"
    known = ["--help", "--version"] if what == "option" else list(COMMANDS)
    parser.error(f"unknown {what} {word!r}{nearest(word, known)}, expected one of {', '.join(known)}")


class _Version(argparse.Action):
    """Print the facts of the build, and exit."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from .cli.build_facts import build_facts

        print(build_facts())
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
