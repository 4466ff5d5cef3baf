"""`kill -9` of a process that writes, at random points, on a real disk, several lives one after the other."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from journal_writer import body_of

from leveret.engine import ManualClock
from leveret.engine.messages.content import NATIVE
from leveret.journal import Journal
from leveret.journal.recovery.check import verify

WRITER = Path(__file__).parents[1] / "support" / "journal_writer.py"
ROUNDS = int(os.environ.get("LEVERET_CRASH_ROUNDS", "6"))
SEED = int(os.environ.get("LEVERET_CRASH_SEED", "1"))


def life(directory: Path, seed: int, lines_max: int) -> list[str]:
    """What a writer said before it was killed, some lines on."""
    process = subprocess.Popen(
        [sys.executable, str(WRITER), str(directory), str(seed)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    lines: list[str] = []
    try:
        for line in process.stdout:
            lines.append(line)
            if len(lines) >= lines_max:
                break
    finally:
        process.kill()
        lines += process.stdout  # not communicate(): it would not give what this reader has read ahead
        errors = process.stderr.read()
        process.wait()
    assert not errors, errors
    return [line.strip() for line in lines if line.endswith("\n")]


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is Unix")
def test_killed_at_random_points(tmp_path: Path) -> None:
    """Every confirmed message is there once unless an acknowledgement was asked for; none whose ack was durable is."""
    chance = random.Random(SEED)
    told: dict[str, set[int]] = {"p": set(), "P": set(), "a": set(), "A": set()}
    for round_ in range(ROUNDS):
        for line in life(tmp_path / "journal", SEED * 1000 + round_, chance.randrange(1, 4000)):
            word, _, id_ = line.partition(" ")
            told[word].add(int(id_))
        assert not verify(str(tmp_path / "journal")).faults
        journal = Journal.open(str(tmp_path / "journal"), ManualClock())
        found = [message for queue in journal.recovered.queues.values() for message in queue.messages()]
        ids = {message.id for message in found}
        context = f"seed {SEED}, round {round_}"
        assert len(found) == len(ids), context
        assert told["P"] - told["a"] <= ids, context
        assert not ids & told["A"], context
        assert ids <= told["p"], context
        for message in found:
            assert NATIVE.split(journal.contents.read(message.content_lsn))[1] == body_of(message.id), context
        assert sum(row.live for row in journal.usage.segments) == len(ids), context
        journal.close()
        # What was open is known now: of what was asked for and not confirmed, some is there and some is not.
        # Ids that never reached the disk are given again.
        gone = {id_ for id_ in told["p"] - ids if id_ < journal.next_message_id}
        told = {"p": gone | ids, "P": set(ids), "a": set(gone), "A": set(gone)}
