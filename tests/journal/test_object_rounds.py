"""Objects of every kind, checkpoints and kills, scaled down (`make crash-objects`: thousands of rounds)."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from object_rounds import Broken, run

from leveret.journal import Names
from leveret.journal.appending.records import ObjectRecords
from leveret.journal.format.record import DEFINE, HEAD, MOVED
from leveret.journal.recording.recorder import Recorder
from leveret.journal.recovery import replay


def test_nothing_comes_back_and_nothing_is_lost() -> None:
    """Some hundred rounds, the same ones each time."""
    figures = run(600, 1)
    assert figures["ends in the middle"] and figures["segments reclaimed"] and figures["ends in a start"]


def test_names_that_come_back_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recovery that reads of names before a checkpoint's begin, and not that they are gone; and nobody clears them."""
    monkeypatch.setattr(Recorder, "_is_in_use", lambda recorder, id_: True)
    monkeypatch.setattr(replay, "NAME_KINDS", frozenset({DEFINE, HEAD, MOVED}))
    with pytest.raises(Broken):
        run(600, 1)


def test_names_of_messages_that_are_lost_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exchange that is gone has no name any more, and messages were published to it."""
    monkeypatch.setattr(Names, "retire", lambda names, id_, lsn: names.forget(id_))
    with pytest.raises(Broken):
        run(600, 2)


@pytest.mark.parametrize("forgotten", ["undeclared", "unbound"])
def test_a_broker_that_forgets_is_noticed(forgotten: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes is not written down."""
    monkeypatch.setattr(ObjectRecords, forgotten, lambda records, *arguments, **more: 0)
    with pytest.raises(Broken):
        run(600, 1)
