"""How much of non-destructive and last-value queues is in memory: sizes of what is there, no clock."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from reachable import reachable
from simulated_files import SimulatedFiles

from leveret.engine import MS, Client, Envelope, Message
from leveret.engine.invariants import check_broker
from leveret.engine.messages.content import NATIVE, encode_header, scan_properties
from leveret.engine.messages.field_table import Field, FieldTable
from leveret.engine.queues import queue as queue_module
from leveret.engine.stores.last_value_store import PagedMessage
from leveret.engine.stores.non_destructive_store import NonDestructiveStore
from leveret.journal import JournalOptions
from leveret.settings import SettingsRepository, entry
from leveret.testing.harness import Harness

COUNT, SIZE, RUN = 20_000, 1024, 50
BUDGET = 1024 * 1024
MEASURED = 50  # a look at all that the broker holds takes a tenth of a second: not each of 600 rounds gets one
KEPT = {"x-non-destructive": Field("t", True)}
LAST_VALUES = {"x-last-value-key": Field("S", b"k")}


class Desk(Harness):
    """A broker on real files, with one client that reads nothing back until it is asked to."""

    ends_turns = has_temp_store = False

    def __init__(self, directory: Path, arguments: FieldTable) -> None:
        self.got: dict[str, list[int]] = {}
        super().__init__(journal=directory, journal_options=JournalOptions(fsync="never"), memory=BUDGET)
        self.q = self.queue(client=self.client, **arguments)

    def read(self, client: Client) -> None:
        """Numbers are kept, and no contents."""
        super().read(client)
        for one in self.deliveries:
            self.got.setdefault(one.consumer.tag, []).append(int(one.body[:8]))
        self.deliveries.clear()

    def fill(self, numbers: range, keys: int = COUNT) -> None:
        """A run of messages, each with its number, and the key that it has among so many."""
        headers = [
            encode_header(SIZE, {"delivery_mode": 2, "headers": {"k": Field("l", number % keys)}}) for number in numbers
        ]
        envelope = Envelope("", "q", scan_properties(headers[0][12:]))
        bodies = [b"%08d" % number + bytes(SIZE - 8) for number in numbers]
        self.session.publish(self.route("q"), envelope, list(map(NATIVE.join, headers, bodies)), mandatory=False)
        self.end_turn()

    def close(self) -> None:
        self.client.close()
        super().close()

    @property
    def log(self) -> NonDestructiveStore:
        """Of a non-destructive queue."""
        assert isinstance(self.q.store, NonDestructiveStore)
        return self.q.store

    @property
    def content_octets(self) -> int:
        """Of all contents of messages that the queue holds in memory, each counted once."""
        log = self.log
        windows = [message for reader in (None, *self.q.consumers) for message in log.windows.all(reader)]
        return sum({id(message.content): len(message.content) for message in (*log, *windows)}.values())

    @property
    def columns_octets(self) -> int:
        """Of what says where the others are."""
        paged_index = self.log.paged_index
        return sum(sys.getsizeof(getattr(paged_index, name)) for name in ("_ids", "_sizes", "_contents", "_gone"))

    @property
    def broker_octets(self) -> int:
        """Of the contents of all messages that this broker holds anywhere, each content once."""
        messages = [one for one in reachable(self) if isinstance(one, Message)]
        contents = [
            message.content for message in messages if not (isinstance(message, PagedMessage) and message.is_paged)
        ]
        return sum({id(content): len(content) for content in contents}.values())


def test_what_is_read_back_is_seen(tmp_path: Path) -> None:
    """The measure of the tests below, so that they can fail: contents that come back into memory count."""
    desk = Desk(tmp_path / "j", LAST_VALUES)
    for start in range(0, 4000, RUN):
        desk.fill(range(start, start + RUN))
    assert desk.broker_octets <= BUDGET
    held = [one for one in reachable(desk) if isinstance(one, PagedMessage) and one.is_paged]
    for message, content in zip(held, [message.content for message in held]):
        message.recall(content)
    assert len(held) > 3000 and desk.broker_octets > len(held) * SIZE
    desk.close()


def test_contents_stay_within_the_budget(tmp_path: Path) -> None:
    """20,000 messages of 1 KiB, a budget of 1 MiB: while they come, while two consumers read, and after a restart."""
    desk = Desk(tmp_path / "j", KEPT)
    most = 0
    for start in range(0, COUNT, RUN):
        desk.fill(range(start, start + RUN))
        most = max(most, desk.content_octets)
    assert len(desk.log) == COUNT and desk.log.in_memory < COUNT // 20
    assert most <= BUDGET
    assert desk.broker_octets <= BUDGET
    assert desk.columns_octets <= 40 * COUNT

    fast, slow = desk.client.open_session(), desk.client.open_session()
    desk.consume(tag="slow", by=slow, prefetch=3)
    desk.consume(tag="fast", by=fast, prefetch=700)
    desk.end_turn()
    while fast.unacked:
        fast.ack_each(list(fast.unacked))
        slow.ack_each(list(slow.unacked)[:1])
        desk.end_turn()
        most = max(most, desk.content_octets)
    assert desk.got["fast"] == list(range(COUNT))
    assert desk.got["slow"] == list(range(len(desk.got["slow"]))) and len(desk.got["slow"]) > 20
    assert most <= BUDGET + 2 * (SIZE + 100)  # each window has room for one message at least

    got = desk.session.get(desk.q, no_ack=True)
    assert got is not None and got[1].body[:8] == b"00000000" and got[3] == COUNT
    desk.close()
    del desk, got, fast, slow

    again = Desk(tmp_path / "j", KEPT)
    assert len(again.log) == COUNT and again.content_octets == 0
    assert again.broker_octets <= BUDGET
    assert again.columns_octets <= 40 * COUNT
    again.consume(tag="again", no_ack=True)
    again.end_turn()
    assert again.got["again"] == list(range(COUNT))
    again.close()


def test_last_values_stay_within_the_budget(tmp_path: Path) -> None:
    """20,000 keys, two values each; while they come, after a restart, and while a slow consumer takes them."""
    desk = Desk(tmp_path / "j", LAST_VALUES)
    for start in range(0, 2 * COUNT, RUN):
        desk.fill(range(start, start + RUN))
    assert desk.q.ready_count == COUNT
    assert desk.broker_octets <= BUDGET
    desk.close()
    del desk
    again = Desk(tmp_path / "j", LAST_VALUES)
    assert again.q.ready_count == COUNT
    assert again.broker_octets <= BUDGET
    again.fill(range(3 * COUNT, 3 * COUNT + RUN))  # newer ones of keys that are known, at the places of the old
    assert again.q.ready_count == COUNT
    again.consume(tag="t", prefetch=100)
    again.end_turn()
    while again.session.unacked:
        again.session.ack_each(list(again.session.unacked))
        again.end_turn()
        if again.q.ready_count % 5000 < 100:
            assert again.broker_octets <= BUDGET + 100 * (SIZE + 100)
    assert again.got["t"] == [*range(3 * COUNT, 3 * COUNT + RUN), *range(COUNT + RUN, 2 * COUNT)]
    again.close()


def test_a_search_through_last_values_keeps_no_contents(tmp_path: Path) -> None:
    """A consumer whose filter takes none has all of them read; then they are only in the journal again."""
    desk = Desk(tmp_path / "j", LAST_VALUES)
    for start in range(0, 5000, RUN):
        desk.fill(range(start, start + RUN))
    assert desk.broker_octets <= BUDGET
    desk.consume(tag="t", x_filter="k < 0")
    desk.end_turn()
    assert desk.q.selection is not None and all(group.is_at_end for group in desk.q.selection.groups)
    assert desk.broker_octets <= BUDGET + SIZE
    check_broker(desk.broker)
    desk.close()


@pytest.mark.parametrize("arguments", [KEPT, LAST_VALUES])
def test_dead_letters_of_many_that_expire_at_once(tmp_path: Path, arguments: FieldTable) -> None:
    """Their contents are not all read back at once."""
    rules = {"x-message-ttl": Field("l", 60_000), "x-dead-letter-exchange": Field("S", b"")}
    rules |= {"x-dead-letter-routing-key": Field("S", b"dead")}
    desk = Desk(tmp_path / "j", arguments | rules)
    dead = desk.queue("dead", client=desk.client)
    for start in range(0, COUNT, RUN):
        desk.fill(range(start, start + RUN))
    desk.clock.advance_ns(61 * 1_000_000_000)
    desk.broker.advance()
    most = rounds = 0
    while desk.broker.end_turn():
        rounds += 1
        desk.journal.commit()
        if rounds <= 5 or not rounds % MEASURED:
            most = max(most, desk.broker_octets)
    desk.end_turn()
    assert (desk.q.ready_count, dead.ready_count) == (0, COUNT)
    assert rounds > 3 and most <= 7 * BUDGET  # of 20: a slice that is read, and the other queue's share
    desk.consume(dead, "t", no_ack=True)
    desk.end_turn()
    assert desk.got["t"] == list(range(COUNT))
    desk.close()


@pytest.mark.parametrize("limit", [{"x_max_length": 3}, {"x_message_ttl": 1000}])
def test_octets_of_what_a_restart_found_on_disk_alone(limit: dict[str, int]) -> None:
    """A limit that comes later counts estimates; what leaves by its content counts no more than it counted before."""
    world = Harness(journal=SimulatedFiles(), memory=0)
    world.queue("dead")
    world.queue(x_non_destructive=True, x_dead_letter_exchange="", x_dead_letter_routing_key="dead", **limit)
    world.publish(*"abc", delivery_mode=2, headers={"h": "-" * 300})
    world.restart()
    world.reload(SettingsRepository([entry("q", max_size_bytes=1 << 20, address_full_policy="BLOCK")]))
    assert world.named().events.octets
    check_broker(world.broker)
    world.publish("d", delivery_mode=2)
    world.advance(1500)
    assert world.all("dead").startswith("a")
    check_broker(world.broker)


def test_a_get_passes_expired_messages_in_memory_to_a_live_one_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those on disk none expires; more have expired than go at once."""
    monkeypatch.setattr(queue_module, "EXPIRE_SLICE", 1)
    world = Harness(journal=SimulatedFiles(), memory=0)
    queue = world.queue(x_non_destructive=True)
    world.publish("a", "b", "x", expiration=b"100")
    world.publish("c", "d", delivery_mode=2)
    assert queue.store.has_tail
    world.ends_turns = False
    world.clock.advance_ns(150 * MS)
    got = world.get()
    assert got is not None and got[1].body == b"c"
