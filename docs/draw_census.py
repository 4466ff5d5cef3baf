"""Draw docs/census.md, the counts of this tree beside those of an earlier revision: `make census`.

`--tree DIR` counts another tree, `--before DIR` compares with another one; `--plain` lists what was found.
"""

import argparse
import datetime
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from census import MEASURES, NONE, Finding, census, counted  # noqa: E402

#: The last revision before the engine was split into rooms.
BEFORE = "7200397"

#: Why something remains: `Finding.key`, or a path for all that is found in a file, or a measure -> one sentence.
REASONS: Mapping[str, str] = {
    "engine/peers/session.py: Session": (
        "a method for each thing that a channel asks for, and for each that delivery asks of it; "
        "subscriptions, settling and what is unacknowledged are in files of their own"
    ),
    "engine/peers/session.py": "see its class",
    "engine/queues/ledger.py: Ledger": "a method for each event: the only place that counts and announces",
    "engine/stores/store.py: Store": "the protocol that every kind of store implements: a method for each verb",
    "engine/stores/kept_store.py: KeptStore": (
        "a kind of store implements the whole protocol, and what its consumers read"
    ),
    "engine/stores/kept_store.py": (
        "one class, see there; places, windows and the list in memory are in files of their own"
    ),
    "engine/stores/stream_store.py: StreamStore": (
        "a kind of store implements the whole protocol, and what its consumers read"
    ),
    "engine/stores/stream_store.py": "one class, see there",
    "engine/stores/tailed_store.py: TailedStore": (
        "what three kinds of store share of the protocol: messages at hand and a tail"
    ),
    "journal/recording/full_recorder.py: FullRecorder": 'a method for each event that only `scope = "all"` records',
    "journal/recovery/recovered.py: RecoveredQueue": "columns with a method for each record that changes them",
    "src/leveret/testing/server.py": "what a test broker may do instead of a real server, fault by fault",
    "amqp_frontend/connection.py: events": "the loop over frames: a call more would be one for each frame",
    "amqp_frontend/runs.py: read_run": "the hottest loop: a call more would be one for each message",
    "amqp_frontend/mixed_runs.py: read_mixed": "the hottest loop: a call more would be one for each message",
    "engine/broker.py: __init__": "puts the parts together, a line each",
    "engine/declared_queues.py: declare": "the order of checks is RabbitMQ's, and is read from top to bottom",
    "engine/messages/deaths.py: dead_letter": "writes the headers of a death one after the other",
    "engine/queues/admission.py: admit": "the order of rules for an arrival, read from top to bottom",
    "engine/queues/returns.py: give_back": "the order of rules for a return, read from top to bottom",
    "journal/appending/message_records.py: happened": "one record, field by field",
    "journal/recording/restore.py: restore": "the order in which things are put back, read from top to bottom",
}


def page(before: list[Finding], now: list[Finding], day: datetime.date) -> str:
    """The whole page."""
    return "\n".join(
        [
            "# Structure in numbers",
            "",
            f"Counted in the source by `make census` on {day.isoformat()}; do not edit by hand. Before: revision"
            f" {BEFORE}.",
            "",
            *sums(before, now),
            "",
            "By room, before → now:",
            "",
            *by_room(before, now),
            "",
            "## What remains, and why",
            *what_stays(now),
            "",
        ]
    )


def sums(before: list[Finding], now: list[Finding]) -> list[str]:
    """A row for each measure."""
    lines = ["| what | before | now |", "|---|---:|---:|"]
    old, new = counted(before), counted(now)
    return lines + [f"| {one} | {sum(old[one].values())} | {sum(new[one].values())} |" for one in MEASURES]


def by_room(before: list[Finding], now: list[Finding]) -> list[str]:
    """A row for each room in which anything is or was found."""
    old, new = counted(before), counted(now)
    rooms = sorted({one.room for one in (*before, *now)})
    lines = [f"| room | {' | '.join(MEASURES)} |", f"|---|{'---|' * len(MEASURES)}"]
    for room in rooms:
        pairs = [(old[measure].get(room, 0), new[measure].get(room, 0)) for measure in MEASURES]
        lines.append(f"| `{room}` | {' | '.join(f'{a} → {b}' if a or b else '' for a, b in pairs)} |")
    return lines


def what_stays(now: Iterable[Finding]) -> list[str]:
    """All that is found now, by measure, with the reason."""
    lines = []
    for measure in MEASURES:
        found = [one for one in now if one.measure == measure]
        if not found:
            continue
        lines += [
            "",
            f"**{measure[0].upper()}{measure[1:]}**{' (there are to be none)' if measure in NONE else ''}",
            "",
        ]
        for one in found:
            keys = (one.key, one.path, one.measure)
            reason = next((REASONS[key] for key in keys if key in REASONS), "no reason given yet")
            lines.append(f"- `{one.path}`{f', {one.what}' if one.what else ''}: {reason}")
    return lines


def tree_of(revision: str, directory: Path) -> Path:
    """What the repository held at a revision, unpacked. Raises: CalledProcessError."""
    packed = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", directory], input=packed.stdout, check=True)
    return directory


def main() -> None:
    """Print the page, or the findings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tree", type=Path, default=ROOT, help="count this tree (default: its own)")
    parser.add_argument("--before", type=Path, help=f"count this one before (default: revision {BEFORE})")
    parser.add_argument("--plain", action="store_true", help="print each finding of the tree, and no page")
    options = parser.parse_args()
    now = census(options.tree.resolve())
    if options.plain:
        print(*(f"{one.measure}: {one.path}: {one.what}" for one in now), sep="\n")
        return
    with tempfile.TemporaryDirectory() as directory:
        before = census(options.before.resolve() if options.before else tree_of(BEFORE, Path(directory)))
    print(page(before, now, datetime.datetime.now(datetime.UTC).date()), end="")


if __name__ == "__main__":
    main()
