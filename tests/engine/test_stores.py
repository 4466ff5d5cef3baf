"""Every kind of store keeps what the protocol promises, in memory and deep. See `check_store`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from check_store import KEY, Kind, Make, check_store
from hypothesis import given
from hypothesis import strategies as st
from store_owner import StoreOwner

from leveret.engine import Envelope, Message
from leveret.engine.leases import ranked_store
from leveret.engine.leases.ranked_store import RankedStore
from leveret.engine.messages.content import NATIVE, PropertySummary, encode_header
from leveret.engine.messages.field_table import Field
from leveret.engine.messages.levels import ONE_LEVEL, up_to
from leveret.engine.stores import (
    levels,
    memory_budget,
    paged_index,
    paged_run,
    read_windows,
    sorted_list,
    stream_store,
    tailed_store,
)
from leveret.engine.stores.last_value_store import LastValueStore, header_value
from leveret.engine.stores.non_destructive_store import NonDestructiveStore
from leveret.engine.stores.paged_index import PagedEntry
from leveret.engine.stores.storage import Storage
from leveret.engine.stores.stream_store import StreamStore
from leveret.engine.stores.tailed_store import TailedStore
from leveret.testing.memory_pager import MemoryPager

KINDS: dict[str, tuple[Make, Kind]] = {
    "plain": (TailedStore, Kind(has_tail=True)),
    "leveled": (
        lambda owner: TailedStore.of_levels(owner, up_to(2), counts_octets=False),
        Kind(level_max=2, has_tail=True),
    ),
    "counting": (
        lambda owner: TailedStore.of_levels(owner, ONE_LEVEL, counts_octets=True),
        Kind(counts=True, has_tail=True),
    ),
    "both": (
        lambda owner: TailedStore.of_levels(owner, up_to(1), counts_octets=True),
        Kind(level_max=1, counts=True, has_tail=True),
    ),
    "last value": (
        lambda owner: LastValueStore(owner, ONE_LEVEL, header_value(KEY)),
        Kind(replaces=True, counts=True),
    ),
    "kept": (NonDestructiveStore, Kind(in_order=True, keeps=True, counts=True)),
    "ranked": (RankedStore, Kind(in_order=True)),
    "stream": (StreamStore, Kind(reads_only=True)),
}
#: Octets of memory, and of the spool.
DEPTHS = {"in memory": (None, 0), "deep": (4000, 3000), "deeper, no spool": (1500, 0), "no journal": (None, 3000)}
#: What is done in slices and runs is so in small ones; a store is granted no memory for being small.
SMALL = [
    (memory_budget, "SMALL", 0),
    (paged_run, "APART_MIN", 3),
    (paged_run, "RUN_MAX", 10),
    (paged_index, "COMPACT_MIN", 3),
    (tailed_store, "LOAD_SLICE", 5),
    (tailed_store, "PAGE_SLICE", 4),
    (tailed_store, "PAGE_OUT_MAX", 6),
    (levels, "WINDOW_MESSAGES", 4),
    (levels, "NEAR", 2),
    (sorted_list, "BLOCK", 3),
    (ranked_store, "BLOCK_MAX", 3),
    (stream_store, "MEASURE_OCTETS", 300),
    (read_windows, "WINDOW_MESSAGES", 4),
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


class Kept:
    """A deep kept store of last values that holds next to nothing in memory."""

    def __init__(self) -> None:
        self.pager = MemoryPager(600)
        storage = Storage()
        storage.pager = self.pager
        self.store = NonDestructiveStore(StoreOwner(storage), header_value(KEY))

    def append(
        self, id_: int, key: bytes, expires_ns: int = 0, *, is_written: bool = True
    ) -> Message | PagedEntry | None:
        """One message comes. Returns the one that it replaced."""
        body = bytes(100)
        content = NATIVE.join(encode_header(len(body), {"headers": {KEY: Field("S", key)}}), body)
        message = Message(id_, content, PERSISTENT)
        message.expires_ns = expires_ns
        if is_written:
            self.pager.journal[id_] = (PERSISTENT, content)
        return self.store.append(message)

    @property
    def ids(self) -> list[int]:
        """All that are here."""
        paged = [id_ for part in self.store.paged_parts() for id_ in part.ids]  # type: ignore[union-attr]
        return sorted([*paged, *(message.id for message in self.store)])


PERSISTENT = Envelope("e", "q", PropertySummary(persistent=True, has_headers=True))


@given(st.lists(st.sampled_from(b"abcdefgh"), max_size=40))
def test_a_kept_store_has_the_newest_of_each_key(keys: list[int]) -> None:
    """The older one is out, wherever it was, and is handed back; so it is after a restart."""
    kept = Kept()
    newest: dict[int, int] = {}
    for id_, key in enumerate(keys, 1):
        older = kept.append(id_, bytes((key,)))
        assert (None if older is None else older.id) == newest.get(key)
        newest[key] = id_
    assert kept.ids == sorted(newest.values())
    again = Kept()
    again.pager.journal = kept.pager.journal
    again.store.paged_index.extend(kept.ids, [100] * len(newest), [0] * len(newest), None)
    assert again.store.read_keys_and_octets(counts_octets=True) == (again.store.paged_index.content_octets, [])
    assert again.store.read_keys_and_octets(counts_octets=False) == (0, [])
    for key, id_ in newest.items():
        older = again.append(100 + key, bytes((key,)))
        assert older is not None
        assert older.id == id_
    assert again.ids == sorted(100 + key for key in newest)


def test_what_the_journal_does_not_have_stays_in_memory() -> None:
    """While a disk is full nothing is recorded: nobody could read what left memory."""
    kept = Kept()
    for id_ in range(1, 31):
        kept.append(id_, b"%d" % id_, is_written=id_ % 3 > 0)
    assert kept.store.is_deep
    assert kept.ids == list(range(1, 31))
    assert {message.id for message in kept.store} >= set(range(3, 31, 3))


def test_the_head_of_a_kept_store_is_the_oldest_that_lives() -> None:
    """A get sees it wherever it is; nothing is taken."""
    kept = Kept()
    for id_ in range(1, 11):
        kept.append(id_, b"%d" % id_, expires_ns=5 if id_ in (1, 2, 4) else 0)
    assert kept.store.is_deep
    heads = [kept.store.head(now_ns) for now_ns in (1, 5)]
    assert [one and one.id for one in heads] == [1, 3]
    assert kept.store.first_alive(5) == 3
    assert kept.store.next_expiry_ns == 5
    octets = len(kept.pager.journal[3][1])
    assert kept.store.take_at([3, 4]).unread == [PagedEntry(3, octets, 0), PagedEntry(4, octets, 5)]
    kept.store.drop_all()
    assert kept.store.head(5) is None


def test_the_oldest_is_evicted_also_beside_one_that_left_before_it() -> None:
    """The message behind the head died, for its copies failed too often; then the head leaves, and the next one."""
    kept = Kept()
    for id_ in range(1, 11):
        kept.append(id_, b"%d" % id_)
    assert [one.id for one in kept.store.take_at([2]).unread] == [2]
    gone = [kept.store.evict_head(1, with_content=False).unread for _ in range(2)]
    assert [one.id for entries in gone for one in entries] == [1, 3]
    assert kept.ids == list(range(4, 11))


def test_a_stream_goes_on_after_a_restart_where_it_was() -> None:
    """By places alone; what is read has its offset."""
    pager = MemoryPager(8000)
    storage = Storage()
    storage.pager = pager
    store = StreamStore(StoreOwner(storage))
    content = NATIVE.join(encode_header(3, {}), b"abc")
    pager.journal = dict.fromkeys((*range(5, 9), *range(20, 23)), (PERSISTENT, content))
    store.start(100)
    store.restore(5, [3] * 4)
    store.restore(20, [3] * 3)
    store.restored(lambda id_: 1000 + id_)
    store.add(Message(30, content, PERSISTENT), 0)
    assert (store.first_offset, store.memory_offset, store.next_offset) == (100, 107, 108)
    assert store.offset_at(1021) == 105
    found, missing = store.scan(0, 20)
    assert (found, missing) == ([], True)
    positions: list[int] = []
    while len(positions) < 8:
        store.load_at(positions[-1] if positions else 0, 20)
        found, missing = store.scan(positions[-1] if positions else 0, 20)
        assert [store.position_of(message) for _, message in found] == [position for position, _ in found]
        positions += [position for position, _ in found]
    assert positions == list(range(101, 109))
    gone = store.drop_all()
    assert [list(ids) for ids, _ in gone.runs] == [[5, 6, 7, 8], [20, 21, 22]]
    assert len(gone.ready) == 1
    assert store.next_offset == 108


def test_what_left_at_the_head_does_not_come_back_with_others() -> None:
    """A scan has copied a stretch; then the head leaves, and only what stood before that comes back."""
    owner = StoreOwner(Storage())
    store = owner.store = TailedStore(owner)
    envelope = Envelope("", "q")
    store.append_run(1, envelope, [NATIVE.join(encode_header(1), b"x")] * 7)
    assert [position for position, _ in store.scan(3, 2).found] == [4, 5]
    taken = store.take(4, 1 << 30)
    store.put_back([taken[1], taken[0]])
    assert [position for position, _ in store.scan(3, 3).found] == [5, 6, 7]


def test_a_scan_tells_the_attempts_of_what_came_back() -> None:
    """Although it was read for a scan before it went out, and was paged out when it came back."""
    storage = Storage()
    storage.pager = pager = MemoryPager(600)
    owner = StoreOwner(storage)
    store = owner.store = TailedStore(owner)
    content = NATIVE.join(encode_header(3, {}), b"abc")
    pager.journal = dict.fromkeys(range(1, 7), (PERSISTENT, content))
    store.restore_run(1, [3] * 6)
    store.load_at(0, 3)
    assert [one.deliveries for _, one in store.scan(0, 3).found] == [0, 0, 0]
    (message,) = store.take_at([2]).messages
    message.deliveries = 1
    store.put_back([message])
    store.page_again()
    if store.scan(0, 3).missing:
        store.load_at(0, 3)
    assert [one.deliveries for _, one in store.scan(0, 3).found] == [0, 1, 0]
