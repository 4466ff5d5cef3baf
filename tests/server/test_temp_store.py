"""A broker without a data directory has a temp store all the same, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from leveret.engine import ManualClock
from leveret.serving.composition import Data, build_broker
from leveret.settings import Configuration

SCRIPT = """
import sys
sys.path[:0] = {path!r}
from leveret.engine import ManualClock
from leveret.serving.composition import build_broker
from leveret.settings import Configuration
built = build_broker(Configuration(), ManualClock(), lambda: 0.5)
before = "leveret.journal" in sys.modules
built.broker.context.storage.temp
print(before, "leveret.journal" in sys.modules)
"""


def test_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of its own, made by the first use, gone with the broker."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    built = build_broker(Configuration(), ManualClock(), lambda: 0.5)
    temp = built.broker.context.storage.temp
    assert built.broker.context.storage.temp is temp
    assert not os.listdir(tmp_path)
    place = temp.spool([b"12345"])
    assert place is not None
    assert os.listdir(tmp_path)
    assert temp.unspool(place, 5) == b"12345"
    built.close()
    assert not os.listdir(tmp_path)
    assert built.broker.context.storage.temp.spool([b"late"]) is None


def test_with_a_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files are there, and have no names."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    data = tmp_path / "data"
    # No reserve: the journal's own thread lays it beside, whenever it comes to it.
    built = build_broker(Configuration(), ManualClock(), lambda: 0.5, Data(str(data), holds_reserve=False))
    names = os.listdir(data)
    assert built.broker.context.storage.temp.spool([b"12345"]) is not None
    assert os.listdir(data) == names
    built.close()


def test_nothing_of_the_journal_is_loaded_before_it_is_used() -> None:
    """A broker in memory starts without."""
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(path=sys.path)], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["False", "True"]


def test_what_cannot_be_read_back_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To whoever the broker has to be stopped by, also when he came later."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    built = build_broker(Configuration(), ManualClock(), lambda: 0.5)
    temp = built.broker.context.storage.temp
    place = temp.spool([b"12345"])
    assert place is not None
    errors: list[Exception] = []
    built.broker.context.storage.on_unreadable = errors.append
    place.chunk.file.truncate(0)  # type: ignore[attr-defined]
    with pytest.raises(Exception, match="0 of 5 octets") as raised:
        temp.unspool(place, 5)
    assert errors == [raised.value]
    built.close()
