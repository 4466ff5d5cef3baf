"""The parser of the command line: the arguments of the given command, or the names of all."""

import argparse
from collections.abc import Mapping
from types import ModuleType

from ..settings.command_parser import NearestParser

#: Word -> module, help.
Commands = Mapping[str, tuple[str, str]]
#: Options whose value may be an empty list.
REPEATED = frozenset({"arguments", "config", "files", "listen"})


def refuse_empty(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuse a second "--" in place of a word: argparse makes an empty list of it."""
    for name, value in vars(options).items():
        if value == [] and name not in REPEATED:
            parser.error(f"{name.upper()} is missing: '--' is none")


def parser_of(commands: Commands, word: str, command: ModuleType | None) -> argparse.ArgumentParser:
    """The parser of the given command, with its arguments; without one, of all commands, whose arguments it lacks."""
    parser = NearestParser(prog="leveret", description="An AMQP 0-9-1 broker.")
    if word in ("-h", "--help"):
        from .build_facts import pages

        parser.epilog = f"Pages that messages name (docs/...) are in {pages()}." if pages() else None
    parser.add_argument("--version", action=_Version, nargs=0, help="what is installed here, and on what it runs")
    verbs = parser.add_subparsers(required=True, metavar="COMMAND")
    if command is not None:
        command.add_arguments(verbs.add_parser(word, **getattr(command, "PARSER", {})))
    else:
        for one, (_, text) in commands.items():
            verbs.add_parser(one, help=text)
    return parser


def refuse_unknown(parser: argparse.ArgumentParser, commands: Commands, word: str) -> None:
    """Refuse an unknown first word, and name the nearest command or option."""
    if not word or word in commands or word == "-h" or any(one.startswith(word) for one in ("--help", "--version")):
        return
    from ..settings.faults import nearest

    what = "option" if word.startswith("-") else "command"
    known = ["--help", "--version"] if what == "option" else list(commands)
    parser.error(f"unknown {what} {word!r}{nearest(word, known)}, expected one of {', '.join(known)}")


class _Version(argparse.Action):
    """Print the facts of the build, and exit."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from .build_facts import build_facts

        print(build_facts())
        parser.exit()
