"""The spool: what is put there comes back, room is given back, and a disk without room leaves things in memory."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.engine.stores.paged_run import Place
from leveret.journal.recording.spool import Spool


@given(st.lists(st.lists(st.binary(max_size=50), min_size=1, max_size=5), max_size=20), st.randoms())
def test_what_is_put_comes_back(
    tmp_path_factory: pytest.TempPathFactory, runs: list[list[bytes]], chance: object
) -> None:
    """In any order, over many chunks; the last one out closes a chunk's file."""
    spool = Spool(str(tmp_path_factory.getbasetemp()), chunk_size=100)
    held: list[tuple[Place, bytes]] = []
    for blobs in runs:
        place = spool.put(blobs)
        assert place is not None
        held.append((place, b"".join(blobs)))
    chance.shuffle(held)  # type: ignore[attr-defined]
    for place, octets in held:
        assert spool.get(place, len(octets)) == octets
        spool.release(place, len(octets))
    chunks = {id(place.chunk): place.chunk for place, _ in held}.values()
    assert sum(not chunk.file.closed for chunk in chunks) <= 1  # type: ignore[attr-defined]
    spool.close()
    assert all(chunk.file.closed for chunk in chunks)  # type: ignore[attr-defined]


def test_files_have_no_names(tmp_path: Path) -> None:
    """Nothing is left behind, however the broker ends."""
    spool = Spool(str(tmp_path))
    assert spool.put([b"x"]) is not None
    assert not os.listdir(tmp_path)
    spool.close()


def test_no_room(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """None, said once."""
    spool = Spool(str(tmp_path / "gone"))
    assert spool.put([b"x"]) is None
    assert spool.put([b"x"]) is None
    assert len(caplog.records) == 1 and "stay in memory" in caplog.text


def test_a_spool_that_was_cut(tmp_path: Path) -> None:
    """An error, never other octets."""
    spool = Spool(str(tmp_path))
    place = spool.put([b"0123456789"])
    assert place is not None
    place.chunk.file.truncate(4)  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="4 of 10 octets"):
        spool.get(place, 10)
    spool.close()
