"""The differential mode itself: it finds what differs, makes it small, and says nothing where nothing differs."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from leveret.interop.brokers import peers
from leveret.interop.differential import brokers
from leveret.interop.differential.choices import Seeded
from leveret.interop.differential.programs import program
from leveret.interop.differential.regressions import Regression, load, save
from leveret.interop.differential.search import Search
from leveret.interop.differential.side import Side


def test_a_broker_does_not_differ_from_its_like(subject_url: str) -> None:
    """Operations of all kinds, good and bad, against two brokers of the same kind."""
    with brokers.subject(None, 1) as lanes:
        search = Search(Side(lanes.urls[0]), Side(subject_url))
        search.until(1_200, 1)
    assert not search.found, search.found[0].difference
    assert search.tally.operations >= 1_200 and search.tally.races == 0
    assert len(search.tally.methods) > 20 and len(search.tally.errors) > 3
    assert search.tally.batches > 10


def test_what_differs_is_found_made_small_and_saved(subject_url: str, tmp_path: Path) -> None:
    """Leveret's own profile honours channel.flow where RabbitMQ's answers 540: of a whole program that is what is
    left, and the saved file replays."""
    seed = next(
        seed
        for seed in itertools.count()
        if any(op["op"] == "channel.flow" and not op["active"] for op in program(Seeded(seed))[20:])
    )
    with brokers.subject(None, 1, profile="leveret") as lanes:
        found = Search(Side(subject_url), Side(lanes.urls[0])).examine(Seeded(seed))
        assert found is not None
        assert [(op["op"], op["active"]) for op in found.program] == [("channel.flow", False)]
        file = tmp_path / "found.json"
        save(file, Regression("flow", "leveret", found.program, found.expected))
        assert load(file).check(Side(subject_url)) is None
        difference = load(file).check(Side(lanes.urls[0]))
        assert difference is not None and "540" in str(difference) and "channel.flow-ok" in str(difference)


def test_programs_follow_from_their_seed() -> None:
    """The printed seed is enough to run the same again."""
    assert program(Seeded(5)) == program(Seeded(5)) != program(Seeded(6))


def test_without_a_reference_the_command_says_so() -> None:
    """One sentence, exit code 2."""
    ended = subprocess.run(
        [sys.executable, "-m", "leveret.interop.differential", "--operations", "1", "--seed", "4"],
        env={**os.environ, "RABBITMQ_SERVER": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert (ended.returncode, ended.stdout) == (2, "seed 4\n")
    assert ended.stderr == "no rabbitmq-server on this machine (make peers); or name one with --peer\n"


def test_of_a_broker_that_is_gone_one_reads_why(subject_url: str) -> None:
    """How it ended and what it wrote; the command ends with 3 and names what it cannot reach."""
    with peers.leveret("--log-level", "info") as peer:
        assert f"leveret (process {peer.pid}) runs; output ends:\nleveret ready amqp://" in peer.diagnosis()
        os.kill(peer.pid, signal.SIGKILL)
        os.waitid(os.P_PID, peer.pid, os.WEXITED | os.WNOWAIT)
        assert f"leveret (process {peer.pid}) was killed by SIGKILL; output ends:" in peer.diagnosis()
        ended = subprocess.run(
            [sys.executable, "-m", "leveret.interop.differential", "--peer", subject_url, "--subject", peer.url],
            capture_output=True,
            text=True,
            timeout=180,
        )
    assert ended.returncode == 3, ended.stderr
    assert "ConnectionRefusedError" in ended.stderr and f"{peer.url} is not ours" in ended.stderr


@pytest.mark.peer
def test_leveret_and_rabbitmq_agree(subject_url: str, reference_url: str) -> None:
    """A scaled run; `make differential` runs more."""
    search = Search(Side(reference_url), Side(subject_url), shrinks=False)
    search.until(1_500, 7)
    assert not search.found, "\n".join(str(found.difference) for found in search.found)
    assert search.tally.operations >= 1_500
