"""Every kind of store keeps what the protocol promises, in memory and deep. See `check_store`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from check_store import KEY, Kind, check_store
from memory_pager import StoreOwner

from leveret.engine.stores import kept_windows, paged_places, paged_run, scanning, stream_store, tailed_store
from leveret.engine.stores.kinds import make_store
from leveret.engine.stores.store import Store
from leveret.engine.stores.stream_store import StreamStore

KINDS: dict[str, tuple[Callable[[StoreOwner], Store], Kind]] = {
    "plain": (lambda owner: make_store(owner), Kind()),
    "leveled": (lambda owner: make_store(owner, level_max=2), Kind(level_max=2)),
    "counting": (lambda owner: make_store(owner, counts_octets=True), Kind(counts=True)),
    "both": (lambda owner: make_store(owner, level_max=1, counts_octets=True), Kind(level_max=1, counts=True)),
    "last value": (lambda owner: make_store(owner, last_value_key=KEY), Kind(replaces=True, counts=True)),
    "kept": (lambda owner: make_store(owner, keeps=True), Kind(in_order=True, counts=True)),
    "stream": (StreamStore, Kind(reads_only=True)),
}
#: Octets of memory, and of the spool.
DEPTHS = {"in memory": (None, 0), "deep": (4000, 3000), "deeper, no spool": (1500, 0)}
#: What is done in slices and runs is so in small ones.
SMALL = [
    (paged_run, "APART_MIN", 3),
    (paged_run, "RUN_MAX", 10),
    (paged_places, "COMPACT_MIN", 3),
    (tailed_store, "SLICE", 5),
    (tailed_store, "PAGE_SLICE", 4),
    (tailed_store, "EXPIRED_SLICES_MAX", 100),
    (scanning, "WINDOW_MESSAGES", 4),
    (kept_windows, "WINDOW_MESSAGES", 4),
    (stream_store, "LOOK_OCTETS", 300),
    (stream_store, "WINDOW_MESSAGES", 4),
]


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    """Slices, runs and windows of a few messages."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in SMALL:
            patch.setattr(module, name, value)
        yield


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("name", KINDS)
def test_a_store_does_as_lists_do(name: str, depth: str) -> None:
    """Whatever is put and taken where, in whatever order."""
    make, kind = KINDS[name]
    memory, spool_octets = DEPTHS[depth]
    check_store(make, kind, memory=memory, spool_octets=spool_octets)
