"""A broker that leads, and one that goes on with the octets copied from it: real files, all kinds of queues."""

from pathlib import Path
from random import Random
from typing import Any

import pytest
from copying_nodes import written

from leveret.__main__ import main
from leveret.engine import ManualClock
from leveret.journal import REAL, ClusterJournal, Journal, JournalOptions, JournalReader, recover, register_reader
from leveret.journal.copying.copied_journal import CopiedJournal
from leveret.journal.copying.octet_reader import OctetReader, position_of
from leveret.journal.disk.segment import segments_in
from leveret.journal.recovery.check import verify
from leveret.serving.composition import Data, DataUnusable, build_broker
from leveret.testing.harness import Harness, load

KINDS = {
    "c": {},
    "q": {"x_queue_type": "quorum"},
    "s": {"x_queue_type": "stream"},
    "r": {"x_ring_size": 5},
    "p": {"x_max_priority": 5},
    "d": {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "c", "x_max_length": 4},
    "v": {"x_last_value_key": "k"},
}


class Node(Harness):
    """It leads. What is written is agreed at once, while `agrees`."""

    term = 1
    agrees = True

    def _open_journal(self) -> None:
        copied = CopiedJournal.open(self.path)
        if copied.journal_id is None:
            copied.begin(bytes(range(16)))
        copied.upgrade()
        copied.set_terms(copied.terms.with_term(max(self.term, copied.terms.last_term + 1), copied.end))
        self.terms = copied.terms
        self.journal = Journal.open(
            self.path,
            self.clock,
            JournalOptions(segment_size=20_000),
            files=self.files,
            threaded=False,
            cluster=ClusterJournal(copied.hand_over()),
        )
        self.recorder = self._make_recorder(self.broker, self.journal)

    def write_journal(self) -> None:
        self.journal.writer.wait(self.journal.commit(), on_own_disk=True)
        if self.agrees:
            self.journal.agree(self.journal.durable_lsn)
        self.broker.release_awaiting()

    def tick(self) -> None:
        """What a later block alone can say: that the last records are agreed. And what else is to be done."""
        self.journal.tick()
        while self.journal.writer.run_once():
            pass

    def close(self) -> None:
        assert self.journal.abandon()
        self.broker.context.storage.close()


class Follower:
    """Copies a node's octets, in pieces of any size."""

    def __init__(self, path: Path, leader: Node, chance: Random) -> None:
        self.path = str(path)
        self.chance = chance
        self.copied = CopiedJournal.open(self.path)
        self.copied.begin(bytes(range(16)))
        self.leader = leader
        self.copied.set_terms(self.copied.terms.with_starts_of(leader.terms))
        self.reader = OctetReader(leader.path, segments_in(REAL, leader.path)[0], 0)

    def follow(self) -> int:
        while (piece := self.reader.read(written(self.leader.journal), self.chance.randint(1, 30_000))) is not None:
            self.copied.append(*piece)
        return self.copied.sync()


def declare(node: Node) -> None:
    for name, arguments in KINDS.items():
        node.queue(name, **arguments)
    node.end_turn()


def act(node: Node, chance: Random, number: int) -> None:
    """Something that leaves records."""
    name = chance.choice(list(KINDS))
    match chance.randrange(8):
        case 0 | 1 | 2 | 3:
            properties: dict[str, Any] = {"delivery_mode": 2}
            if name == "p":
                properties["priority"] = chance.randrange(6)
            if name == "v":
                properties["headers"] = {"k": f"{chance.randrange(3)}"}
            bodies = [f"{number}.{at}," + "x" * chance.choice([0, 0, 9000]) for at in range(chance.randint(1, 4))]
            node.publish(*bodies, key=name, **properties)
        case 4 if name != "s":
            if (got := node.get(name, no_ack=False)) is not None:
                node.session.ack(got[0])
                node.end_turn()
        case 5 if name != "s":
            if (got := node.get(name, no_ack=False)) is not None:
                node.session.reject(got[0], requeue=chance.random() < 0.5)
                node.end_turn()
        case 6:
            node.checkpoint(reclaims=True)
        case _:
            node.tick()


def content(node: Harness) -> dict[str, list[tuple[bytes, str]]]:
    """What is in each queue."""
    return {name: [(one.body, one.envelope.routing_key) for one in node.named(name).messages()] for name in KINDS}


@pytest.mark.parametrize("seed", range(6))
def test_a_copy_restores_the_same_broker(seed: int, tmp_path: Path) -> None:
    chance = Random(seed)
    node = Node(journal=tmp_path / "a", clock=ManualClock())
    declare(node)
    follower = Follower(tmp_path / "b", node, chance)
    for number in range(60):
        act(node, chance, number)
        if chance.random() < 0.4:
            assert follower.follow() == node.journal.durable_lsn
    follower.follow()
    there = content(node)
    assert any(there.values())
    position = written(node.journal)
    node.close()
    for base in segments_in(REAL, str(tmp_path / "a")):
        octets = (tmp_path / "a" / f"{base:020}.log").read_bytes()
        end = position[1] if base == position[0] else None  # zeros that were reserved stand behind it
        assert (tmp_path / "b" / f"{base:020}.log").read_bytes()[:end] == octets[:end]
    report = verify(follower.path)
    assert not report.faults and not report.torn_bytes and report.next_lsn == follower.copied.end
    follower.copied.close()
    assert recover(REAL, str(tmp_path / "a")).queues.keys() == recover(REAL, follower.path).queues.keys()
    found = []
    for path in (tmp_path / "b", tmp_path / "a"):
        again = Node(journal=path, clock=ManualClock())
        found.append(content(again))
        again.publish("more", key="q", delivery_mode=2)
        again.close()
    assert found[0] == found[1]
    assert {name: sorted(rows) for name, rows in found[0].items()} == {
        name: sorted(rows) for name, rows in there.items()
    }


def test_confirms_wait_for_all_nodes(tmp_path: Path) -> None:
    """Not for the own disk alone; nor does a commit of it tell the client anything."""
    node = Node(journal=tmp_path / "a")
    node.queue("q")
    node.end_turn()
    node.session.select_confirms()
    node.agrees = False
    before = node.journal.committed_lsn
    node.publish("A", "B", delivery_mode=2)
    assert node.journal.durable_lsn > before
    confirms = node.session.confirms
    assert confirms is not None and node.recorder.safe_lsn == before
    assert confirms.take(node.recorder.safe_lsn) == []
    node.journal.agree(node.journal.durable_lsn)
    assert confirms.take(node.recorder.safe_lsn) == [(2, True, True)]
    node.close()


def test_its_own_readers_follow_a_node(tmp_path: Path) -> None:
    """Of the follower's directory, while it is copied: only what is agreed; what the reader needs stays."""
    chance = Random(1)
    node = Node(journal=tmp_path / "a")
    declare(node)
    follower = Follower(tmp_path / "b", node, chance)
    register_reader(follower.path, "spark", 1)
    node.agrees = False
    agreed = node.journal.committed_lsn
    for _ in range(20):
        node.publish("x" * 5000, key="q", delivery_mode=2)
    follower.follow()
    assert len(segments_in(REAL, follower.path)) > 2
    assert [lsn for lsn, _ in JournalReader(follower.path).records()] == list(range(1, agreed))
    node.agrees = True
    while node.get("q") is not None:
        pass
    node.checkpoint(reclaims=True)
    node.tick()
    follower.follow()
    gone = set(segments_in(REAL, follower.path)) - set(segments_in(REAL, node.path))
    assert gone
    assert follower.copied.unlink(sorted(gone)) == []
    lsns = [lsn for lsn, _ in JournalReader(follower.path).records()]
    assert lsns == list(range(1, node.journal.committed_lsn))
    register_reader(follower.path, "spark", lsns[-1])
    assert follower.copied.unlink(sorted(gone)) == sorted(gone)
    node.close()
    follower.copied.close()


def test_a_leader_that_was_gone_is_cut_and_follows(tmp_path: Path) -> None:
    """It has records that nobody else had, in a sealed segment; they are kept for people."""
    chance = Random(2)
    node = Node(journal=tmp_path / "a")
    declare(node)
    follower = Follower(tmp_path / "b", node, chance)
    node.publish("agreed", key="q", delivery_mode=2)
    agreed = follower.follow()
    node.agrees = False
    for _ in range(9):
        node.publish("lost" * 2000, key="q", delivery_mode=2)
    node.close()
    follower.copied.close()
    other = Node(journal=tmp_path / "b")
    assert other.bodies("q") == [b"agreed"]
    other.publish("later", key="q", delivery_mode=2)
    old = CopiedJournal.open(node.path)
    common = old.terms.common_end(other.terms, old.end, other.journal.durable_lsn)
    assert common == agreed < old.end
    old.cut(common)
    assert (tmp_path / "a" / "cut" / f"1-{agreed}.log").read_bytes().count(b"lost") == 18_000
    old.set_terms(old.terms.with_starts_of(other.terms))
    reader = OctetReader(other.path, *position_of(other.path, common))
    while (piece := reader.read(written(other.journal))) is not None:
        old.append(*piece)
    assert old.sync() == other.journal.durable_lsn
    old.close()
    other.close()
    assert Node(journal=tmp_path / "a").bodies("q") == [b"agreed", b"later"]


def test_commands_on_the_directory_of_a_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """verify, cat and doctor work; a plain broker is refused in words; repair makes a plain journal."""
    node = Node(journal=tmp_path / "a")
    declare(node)
    node.publish("A", key="q", delivery_mode=2)
    node.tick()
    node.close()
    copied = CopiedJournal.open(str(tmp_path / "a"))
    assert main(["journal", "verify", str(tmp_path / "a")]) in (0, 1)
    assert main(["journal", "cat", str(tmp_path / "a")]) == 0
    copied.close()
    assert "published" in capsys.readouterr().out
    main(["doctor", "--data", str(tmp_path / "a")])
    assert "records, all intact" in capsys.readouterr().out
    with pytest.raises(DataUnusable, match=r"node of a cluster.*\[cluster\].*leveret journal repair"):
        build_broker(load(""), ManualClock(), lambda: 0.5, Data(str(tmp_path / "a")))
    assert main(["journal", "repair", str(tmp_path / "a"), "--out", str(tmp_path / "plain")]) == 0
    plain = Harness(journal=tmp_path / "plain")
    assert plain.bodies("q") == [b"A"]
    plain.close()
