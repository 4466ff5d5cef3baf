"""The command line of `leveret pipeline`: names and options of jobs, and checks of them."""

import argparse
from collections.abc import Callable, Sequence
from datetime import date
from math import inf
from typing import TypeVar
from urllib.parse import unquote

from ..settings.command_parser import NearestParser
from ..settings.faults import nearest
from ..settings.values import duration_ms
from .output.formats import FORMATS, PAGES, ROWS, SUFFIXES
from .selection import WITHOUT_SINCE, Selection, moment_us

N = TypeVar("N", int, float)

#: Jobs on a lake -> their help.
JOBS = {
    "audit": "whether anything was lost, duplicated or reordered: then the exit code is 2",
    "latency": "how long messages waited and were processed",
    "depth": "how many messages were waiting, over time",
    "redelivery": "which messages keep failing",
    "loss": "which messages were removed unread, and which of them are lost",
    "fairness": "how many messages each consumer got",
    "blocked": "which publishers waited for room, where and how long",
    "trace": "all events of one message",
    "deadletters": "why messages died, and where their copies arrived",
    "whatif": "what another configuration would have done with the same messages",
    "replay": "publish chosen messages again; a dry run without --go",
    "report": "one HTML page with plots",
}
#: Other commands -> their help.
OTHER_COMMANDS = {
    "ingest": "bring a lake of Delta tables up to date with the journal",
    "follow": "ingest the journals of running brokers again and again, until interrupted",
    "compact": "replace a lake's many small files by few large ones",
    "retain": "drop the days of a lake that are too old, as ingest --retain 90d does",
    "migrate": "convert a lake of an older release, as ingest does",
    "iceberg": "bring the tables of a catalog of Iceberg up to date with a lake; no file is copied",
    "readers": "list the readers of a journal: how far behind, and what is kept for each; needs no lake",
    "forget": "stop keeping records for a lake that is no longer needed",
    "serve": "run commands from stdin, one a line, as behind `leveret pipeline`: Spark's Java starts once",
}
#: The default width of windows, in seconds.
WINDOW_S = 60
#: The largest number in the column `window_s`.
WINDOW_MAX_S = 2**31 - 1
DAY_MS = 86_400_000
#: The longest pause between two rounds of `follow`.
PAUSE_MAX_DAYS = 7
#: The values of --engine; see jobs/opening.py.
ENGINES = ("auto", "local", "spark")
#: Jobs that cannot be combined with others.
ALONE = ("trace", "replay", "whatif", *OTHER_COMMANDS)
#: Commands that never start Spark.
WITHOUT_SPARK = ("compact", "retain", "migrate", "iceberg", "readers", "forget")
#: Jobs that read contents of messages, so that an ingest before them stores contents.
WITH_CONTENTS = ("trace", "replay", "deadletters")
JOURNALS_HELP = (
    "a journal, or a broker's data directory; a directory of these; @FILE, a list of them; or URI; may be repeated"
)
JOURNAL_HELP = f"{JOURNALS_HELP}. With a name, it may become another node of the lake"
#: Options whose values are paths or URIs.
PLACES = ("journal", "lake", "out")
USAGE = "leveret pipeline JOB[,JOB ...] (--journal DIR [--lake DIR] | --lake DIR) [options]"
EPILOG = """
Exit codes: 0: done; 1: failed, or nothing was found; 2: the audit, or whatif --verify, found a fault; 3: a condition of
--fail-if is true; 130: interrupted.
`leveret pipeline JOB --help` lists the options of a job.
"""


class _Once(argparse.Action):
    """Stores a value, and refuses another one, which would replace it in silence."""

    def __call__(self, parser: argparse.ArgumentParser, found: argparse.Namespace, value: object, *_: object) -> None:
        if getattr(found, self.dest, None) is not None:
            parser.error(f"{self.option_strings[0]} is given twice")
        setattr(found, self.dest, value)


class Refused(Exception):
    """argparse has ended with an error, or with help (`code` 0)."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def parse(arguments: Sequence[str] | None = None, *, served_by: argparse.Namespace | None = None) -> argparse.Namespace:
    """Read the options of a command. They include `jobs`, the names in order, and `job`, the same as one text.

    Args:   served_by: the options of `serve`, whose session of Spark the command uses: it has no options of Spark.
    Raises: Refused.
    """
    import sys

    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        names = _names_of_jobs(given)
        one = parser(names)
        if served_by is None:
            add_spark_options(one, names)
        else:
            one.set_defaults(master=served_by.master, driver_memory=served_by.driver_memory, conf=served_by.conf)
        found = one.parse_args(given[1:])
        if getattr(found, "message", "") == []:  # argparse makes an empty list of a second "--"
            one.error("MESSAGE is missing: '--' is not a message")
        found.jobs, found.job = names, given[0]
        _check_places(found, one)
        for setting in getattr(found, "conf", ()):
            if "=" not in setting:
                one.error(f"--conf {setting}: expected NAME=VALUE")
        if getattr(found, "format", None) == "parquet" and not found.out:
            one.error("--format parquet needs --out")
        if names[0] in JOBS:
            _check_job_options(found, one)
        return found
    except SystemExit as end:  # argparse exits with 2, which is the audit's code for a fault here
        raise Refused(1 if end.code else 0) from None


def _names_of_jobs(given: Sequence[str]) -> list[str]:
    names = given[0].split(",") if given else []
    known = JOBS | OTHER_COMMANDS
    if not names or names == [""] or names[0].startswith("-"):
        _overview().parse_args([] if names == [""] else given[:1])
        _overview().error("JOB is missing")
    for name in names:
        if name not in known:
            _overview().error(f"there is no job {name!r}{nearest(name, known)}; there are {', '.join(known)}")
        if len(names) > 1 and name in ALONE:
            _overview().error(f"{name} cannot be combined with other jobs")
    if len(set(names)) < len(names):
        _overview().error(f"{given[0]}: a job is named twice")
    return names


def _check_places(found: argparse.Namespace, one: argparse.ArgumentParser) -> None:
    """Check the options `PLACES`, and replace file:// URIs by paths."""
    for name in PLACES:
        where = getattr(found, name, None)
        is_list = isinstance(where, list)
        places = where if isinstance(where, list) else [where]
        if "" in places:  # from an unset variable of a script
            one.error(f"--{name} is empty")
        paths = [_on_this_machine(place) if place else place for place in places]
        setattr(found, name, paths if is_list else paths[0])


def _on_this_machine(where: str) -> str:
    """The path of a file:// URI without a host, as users of Spark write it; any other text unchanged."""
    return unquote(where.removeprefix("file://")) if where.startswith("file:///") else where


def _overview() -> argparse.ArgumentParser:
    lines = "\n".join(f"  {name:12} {text}" for name, text in (JOBS | OTHER_COMMANDS).items())
    return NearestParser(
        prog="leveret pipeline",
        usage=USAGE,
        description="Read the journal. Jobs, several with commas between them:\n\n" + lines,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def parser(names: Sequence[str]) -> argparse.ArgumentParser:
    """The parser for the options of these jobs, without those of Spark."""
    text = "; ".join((JOBS | OTHER_COMMANDS)[name] for name in names)
    one = NearestParser(prog=f"leveret pipeline {','.join(names)}", description=text, epilog=EPILOG)
    if names[0] in ("ingest", "follow"):
        one.add_argument("--journal", required=True, action="append", metavar="[NAME=]DIR", help=JOURNAL_HELP)
        one.add_argument(
            "--lake", "--out", action=_Once, required=True, metavar="DIR", help="directory of the tables; or URI"
        )
        _add_ingest_options(one)
        text = "then drop the days of the lake that are older than this, such as 90d"
        one.add_argument("--retain", type=_days, metavar="DAYS", help=text)
        if names[0] == "ingest":
            _add_lineage_option(one)
        else:
            text = f"the time between two rounds, such as 1m (10s); from 1s to {PAUSE_MAX_DAYS}d"
            one.add_argument("--every", type=_pause, default=10.0, metavar="TIME", help=text)
    elif names[0] in ("compact", "retain", "migrate", "iceberg"):
        one.add_argument("--lake", action=_Once, required=True, metavar="DIR", help="a lake that ingest filled; or URI")
        if names[0] == "retain":
            _add_retain_options(one)
        if names[0] == "iceberg":
            text = "its name in the configuration of pyiceberg: ~/.pyiceberg.yaml, or PYICEBERG_CATALOG__NAME__URI"
            one.add_argument("--catalog", required=True, metavar="NAME", help=text)
            one.add_argument("--namespace", default="leveret", metavar="NAME", help="of the tables (leveret)")
        if names[0] in ("compact", "retain"):
            text = "hours for which replaced and dropped files are kept, for jobs that still read them (24)"
            one.add_argument("--keep-hours", type=_count, default=24, metavar="N", help=text)
        one.set_defaults(journal=None)
    elif names[0] == "readers":
        one.add_argument("--journal", required=True, action="append", metavar="DIR", help=JOURNALS_HELP)
        text = "stop keeping records for this reader; may be repeated"
        one.add_argument("--drop", action="append", default=[], metavar="READER", help=text)
        _add_result_options(one)
    elif names[0] == "forget":
        one.add_argument("--journal", required=True, action="append", metavar="DIR", help=JOURNALS_HELP)
        one.add_argument(
            "--lake", action=_Once, required=True, metavar="DIR", help="the lake, which may be deleted already; or URI"
        )
    elif names[0] != "serve":
        _add_job_options(one, names)
    return one


def _add_job_options(one: argparse.ArgumentParser, names: Sequence[str]) -> None:
    one.add_argument(
        "--lake",
        action=_Once,
        metavar="DIR",
        help="a lake that ingest filled; or URI. With --journal: where it is made",
    )
    text = "first bring the lake up to date with this journal; as for ingest"
    one.add_argument("--journal", action="append", default=[], metavar="[NAME=]DIR", help=text)
    _add_ingest_options(one)
    choice = one.add_argument_group("selection")
    choice.add_argument(
        "--vhost", action="append", default=[], metavar="NAME", help="only this virtual host; may be repeated"
    )
    choice.add_argument("--queue", action="append", default=[], metavar="NAME", help="only this queue; may be repeated")
    choice.add_argument(
        "--node", action="append", default=[], metavar="NAME", help="only this broker or cluster; may be repeated"
    )
    choice.add_argument("--since", type=_moment, metavar="TIME", help="2026-11-21T09:30 (UTC), or 2h: two hours ago")
    choice.add_argument("--until", type=_moment, metavar="TIME", help="as if the journal ended then")
    choice.add_argument(
        "--window", type=_window, metavar="SECONDS", help=f"the width of windows ({WINDOW_S}; a report chooses it)"
    )
    _add_result_options(one)
    _add_lineage_option(one)
    one.add_argument(
        "--engine", choices=ENGINES, default="auto", help="local: DuckDB, in this process; auto: by the lake's size"
    )
    if "trace" in names:
        one.add_argument("message", metavar="MESSAGE", help="broker's id, correlation-id, message-id, or HEADER=VALUE")
    if "redelivery" in names:
        one.add_argument(
            "--poison-attempts",
            type=_positive,
            default=5,
            metavar="N",
            help="a message is poison from this many attempts or returns on (5)",
        )
    if "whatif" in names:
        one.add_argument("--settings", metavar="FILE", help="TOML, as for serve --config")
        text = "check that these settings, or the defaults, give what was recorded: show differences, with exit code 2"
        one.add_argument("--verify", action="store_true", help=text)
    if "replay" in names:
        _add_replay_options(one)


def _add_result_options(one: argparse.ArgumentParser) -> None:
    result = one.add_argument_group("output")
    result.add_argument(
        "--format",
        choices=FORMATS,
        help="by default table on a terminal, else json; for --out by its name, else parquet",
    )
    result.add_argument(
        "--out", action=_Once, metavar="PATH", help="a file, or a directory for all tables; for a report, its page"
    )
    result.add_argument("--rows", type=_count, metavar="N", help=f"the most rows ({ROWS} in tables, else all)")
    result.add_argument(
        "--fail-if",
        action="append",
        default=[],
        metavar="CONDITION",
        help="exit code 3 if it is true for a row: 'n > 0'",
    )


def _add_lineage_option(one: argparse.ArgumentParser) -> None:
    one.add_argument(
        "--lineage", metavar="TARGET", help="append an OpenLineage event to this file, or POST it to this http(s) URL"
    )


def _check_job_options(found: argparse.Namespace, one: argparse.ArgumentParser) -> None:
    """Check combinations of options, and make `selection` of those that select messages."""
    if not found.lake and not found.journal:
        one.error("one of --lake and --journal is needed")
    if len(found.journal) > 1 and not found.lake:
        one.error("--lake is needed beside several journals")
    if found.journal and not found.lake and ("://" in found.journal[0] or found.journal[0].startswith("@")):
        one.error("--lake is needed beside a journal that is a URI, or a list")
    if found.since is not None and found.until is not None and found.since >= found.until:
        one.error("--since is not before --until")
    for name in found.jobs:
        if found.since is not None and name in WITHOUT_SINCE:
            one.error(f"{name} reads the journal from its beginning: it has no --since")
    if found.job == "whatif" and not found.settings and not found.verify:
        one.error("the following arguments are required: --settings")
    if len(found.jobs) > 1 and found.out and found.out.endswith((*SUFFIXES, *PAGES)):
        one.error(f"--out {found.out}: several jobs need a directory")
    if found.fail_if and found.jobs == ["report"]:
        one.error("report has no table for --fail-if; name another job, as in `report,loss`")
    if found.format == "csv" and len(found.jobs) > 1 and not found.out:
        one.error("several jobs as csv need --out DIR")
    found.is_window_given = found.window is not None
    found.window = found.window or WINDOW_S
    found.selection = Selection(tuple(found.vhost), tuple(found.queue), found.since, found.until)


def _add_ingest_options(one: argparse.ArgumentParser) -> None:
    one.add_argument("--payloads", action="store_true", help="also store the contents of messages")
    one.add_argument("--max-bytes", type=_positive, default=None, metavar="N", help="octets of journal per micro-batch")
    one.add_argument("--strict", action="store_true", help="fail at damage in the journal instead of making it a hole")
    text = "skip records that the journal deleted before they were read: they become a hole"
    one.add_argument("--past-deleted", action="store_true", help=text)


def _add_retain_options(one: argparse.ArgumentParser) -> None:
    which = one.add_mutually_exclusive_group(required=True)
    which.add_argument("--days", type=_positive, metavar="N", help="drop everything that is more than N days old")
    which.add_argument("--before", type=_day, metavar="DATE", help="drop the days before this one (2026-11-21; UTC)")
    one.add_argument("--dry-run", action="store_true", help="only show what would be dropped")


def _add_replay_options(one: argparse.ArgumentParser) -> None:
    one.add_argument("--where", required=True, metavar="SQL", help="SQL over the columns of events and payloads")
    one.add_argument("--go", action="store_true", help="send; otherwise only show what would be sent")
    one.add_argument("--url", metavar="URL", help="the broker: amqp://USER:PASSWORD@HOST:PORT/VHOST")
    one.add_argument(
        "--rate", type=_rate, default=100.0, metavar="N", help="messages per second (100); 0: as fast as possible"
    )
    one.add_argument("--id", metavar="ID", help="continue the replay with this id: send only what it has not sent")
    one.add_argument(
        "--replays-max", type=_positive, default=3, metavar="N", help="skip messages that were replayed this often (3)"
    )


def add_spark_options(one: argparse.ArgumentParser, names: Sequence[str]) -> None:
    """Add the options of Spark, if these jobs may start it."""
    if names[0] in WITHOUT_SPARK:
        return
    group = one.add_argument_group("Spark")
    group.add_argument("--master", default="local[*]", metavar="URL", help="local[N], spark://HOST:PORT, yarn, ...")
    group.add_argument("--driver-memory", default="2g", metavar="SIZE", help="heap of Spark's Java on this machine")
    group.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark")


def _moment(text: str) -> int:
    try:
        return moment_us(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a day; such as 2026-11-21") from None


def _days(text: str) -> int:
    """The days of a span of time such as 90d."""
    try:
        days, rest = divmod(duration_ms(text), DAY_MS)
    except ValueError:
        days, rest = 0, 0
    if rest or not days:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of whole days; such as 90d")
    return days


def _pause(text: str) -> float:
    """The seconds of a span of time such as 10s."""
    try:
        milliseconds = duration_ms(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a span of time; such as 10s") from None
    if not 1000 <= milliseconds <= PAUSE_MAX_DAYS * DAY_MS:
        raise argparse.ArgumentTypeError(f"must be from 1s to {PAUSE_MAX_DAYS}d")
    return milliseconds / 1000


def _positive(text: str) -> int:
    return _number(text, int, 1)


def _window(text: str) -> int:
    seconds = _positive(text)
    if seconds > WINDOW_MAX_S:
        raise argparse.ArgumentTypeError(f"must be {WINDOW_MAX_S} or less")
    return seconds


def _count(text: str) -> int:
    return _number(text, int, 0)


def _rate(text: str) -> float:
    return _number(text, float, 0)


def _number(text: str, kind: Callable[[str], N], least: int) -> N:
    try:
        number = kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not least <= number < inf:
        raise argparse.ArgumentTypeError(f"must be {least} or more")
    return number
