"""kill -9 under load, scaled to half a minute (`make crash`: thousands of rounds), and what the rounds would see."""

import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parent))
from crash.broker import Setup
from crash.lane import RULES, Lane
from crash.truth import Broken

from leveret.amqp_frontend.flow.parking import Parking
from leveret.amqp_frontend.flow.steps import ConnectionTurn
from leveret.amqp_frontend.peer.channel import Channel
from leveret.amqp_frontend.wire.events import MixedReceived, PublishReceived
from leveret.engine import FullLimit
from leveret.engine.events import EventKind
from leveret.journal.appending.records import MessageRecords, ObjectRecords

PROGRAM = Path(__file__).with_name("crash_rounds.py")
#: A rule that is broken now and then is seen within so many rounds.
ROUNDS_MAX = 80


def test_what_was_confirmed_is_there_and_nothing_comes_back() -> None:
    """A killed process loses nothing that was handed to the system, in any mode. `make crash` does it for hours."""
    command = [sys.executable, str(PROGRAM), "--seed", "1", "--seconds", "5", "--lanes", "2"]
    done = subprocess.run(command, capture_output=True, text=True)
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr


def lane_in(directory: Path, seed: int, rules: Sequence[int] = RULES) -> Lane:
    return Lane(Setup(str(directory), memory="64KiB", segment_size="64KiB"), random.Random(seed), rules)


def test_a_journal_of_yesterday_is_noticed(tmp_path: Path) -> None:
    """Files that lack the last rounds: what was confirmed there is lost, what was acknowledged is back."""
    lane = lane_in(tmp_path, 7)
    lane.round()
    shutil.copytree(lane.setup.journal, tmp_path / "yesterday")
    for _ in range(3):
        lane.round()
    shutil.rmtree(lane.setup.journal)
    shutil.copytree(tmp_path / "yesterday", lane.setup.journal)
    with pytest.raises(Broken):
        lane.round()


@pytest.mark.parametrize(
    "kind",
    [
        EventKind.ACKED,
        *(
            pytest.param(rarer, marks=pytest.mark.long)  # they take tens of rounds
            for rarer in (EventKind.DEAD_LETTERED, EventKind.REQUEUED)
        ),
    ],
)
def test_a_broker_that_forgets_is_noticed(kind: EventKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One in five of what happens to messages in queues is not written down.

    That values were replaced, or that a ring dropped its oldest, is no such thing: a start does the same again, and
    nobody takes anything out of the rings of these rounds (`test_restart_rows.py` does).
    """
    written, count = MessageRecords.happened, 0

    def happened(records: MessageRecords, of: EventKind, *arguments: Any, **more: Any) -> int:
        nonlocal count
        count += of is kind
        if of is kind and not count % 5:
            return 0
        return written(records, of, *arguments, **more)

    monkeypatch.setattr(MessageRecords, "happened", happened)
    lane = lane_in(tmp_path, 8, rules=(1,))  # an operator takes time in which no message is replaced
    with pytest.raises(Broken):
        for _ in range(ROUNDS_MAX):
            lane.round()


def test_a_broker_whose_deleted_objects_come_back_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Users, policies, virtual hosts, queues, exchanges: that they are gone is not written down."""
    monkeypatch.setattr(ObjectRecords, "undeclared", lambda records, *arguments, **more: 0)
    lane = lane_in(tmp_path, 9)
    with pytest.raises(Broken):
        for _ in range(ROUNDS_MAX):
            lane.round()


def test_a_broker_that_confirms_what_it_holds_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishes that wait for room are in no journal."""
    held = Parking.park_for

    def park_for(area: Parking, full: FullLimit, channel: Channel, event: Any, turn: ConnectionTurn) -> None:
        if channel.session.confirms is not None and isinstance(event, PublishReceived | MixedReceived):
            channel.session.confirms.add(len(event.contents), ())
        held(area, full, channel, event, turn)

    monkeypatch.setattr(Parking, "park_for", park_for)
    lane = lane_in(tmp_path, 10, rules=(1,))
    with pytest.raises(Broken):
        for _ in range(ROUNDS_MAX):
            lane.round()
