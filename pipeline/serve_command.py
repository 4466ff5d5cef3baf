"""The command `serve`: runs commands, one a line, with one session of Spark, so that Java starts once.

The answers are those of the commands; behind each is a line of JSON with the command and its exit code.
"""

import argparse
import json
import shlex
from collections.abc import Iterable

from .answers import EXIT_OK
from .error_texts import spark_error_text
from .lazy_engines import LazyEngines
from .options import Refused, parse
from .output.results import print_text
from .running import fail, run, worst_code

#: Commands that would never end.
EXCLUDED = ("serve", "follow")


def serve(options: argparse.Namespace, lines: Iterable[str]) -> int:
    """Run commands, each written as behind `leveret pipeline`. Empty lines and comments (#) are skipped.

    Returns the exit code, the worst of the commands'. A command that fails does not end the others.
    """
    engines = LazyEngines(options)
    codes = [EXIT_OK]
    try:
        for line in lines:
            try:
                words = shlex.split(line, comments=True)
            except ValueError as error:
                codes.append(fail("serve", str(error)))
            else:
                if not words:
                    continue
                codes.append(_run_one(words, options, engines))
            print_text(json.dumps({"command": line.strip(), "exit": codes[-1]}) + "\n")
    finally:
        engines.close()
    return worst_code(codes)


def _run_one(words: list[str], options: argparse.Namespace, engines: LazyEngines) -> int:
    """Run a command with the session of `engines`. Returns its exit code."""
    try:
        given = parse(words, served_by=options)
    except Refused as refused:
        return refused.code
    if given.job in EXCLUDED:
        return fail("serve", f"{given.job} would not end; start it by itself")
    try:
        return run(given, engines.spark)
    except Exception as error:  # Spark's Java has ended, and with it what the command had cached
        return fail(given.job, spark_error_text(error))
