"""The command line. Each command is a module, and only the module of the given command is imported.

A module has `add_arguments(parser)` and `run(options)`, which returns the exit code; without `add_arguments` its `run`
parses the words itself. Source: interfaces page.
"""

import sys
from collections.abc import Sequence

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
    "demo": ("cli.demo_command", "a broker with clients that misuse it, and a tour of its console"),
    "doctor": ("cli.doctor_command", "what is wrong with this machine, a configuration, a data directory"),
    "test-server": ("testing.remote.command", "a broker for tests in any language, controlled by HTTP"),
    "ctl": ("cli.ctl_command", "manage a running broker"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code; 130 if it is interrupted while modules are imported."""
    try:
        return _main(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _main(arguments: Sequence[str]) -> int:
    # Nothing is imported before: an interrupt then would end in a traceback.
    import io
    from importlib import import_module

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names that the terminal cannot encode must not raise
    if arguments and arguments[0] == "help":
        arguments = [*arguments[1:2], "--help"]
    word = arguments[0] if arguments else ""
    command = import_module(f".{COMMANDS[word][0]}", __package__) if word in COMMANDS else None
    if command is not None and not hasattr(command, "add_arguments"):
        return int(command.run(arguments[1:]))  # its `run` handles interrupts
    from .cli.parser import parser_of, refuse_empty, refuse_unknown

    parser = parser_of(COMMANDS, word, command)
    refuse_unknown(parser, COMMANDS, word)
    options = parser.parse_args(arguments)
    refuse_empty(parser, options)
    assert command is not None  # otherwise the parser has exited
    try:
        return int(command.run(options))
    except KeyboardInterrupt:
        return EXIT_OK
    except BrokenPipeError:
        return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
