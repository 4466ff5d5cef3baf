"""The pipeline on a node of a cluster: only what all nodes have, whatever is cut and copied behind it. No Java."""

from pathlib import Path
from random import Random

import pytest

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")

from copying_nodes import Leader, follow, led
from journal_workload import ID, PATH
from simulated_files import SimulatedFiles

from leveret.journal.copying.copied_journal import CopiedJournal
from leveret.pipeline.reading.chunks import read_chunks
from leveret.pipeline.reading.positions import JournalPlan, Position


def put(files: SimulatedFiles, path: Path) -> None:
    """The journal on a real disk, as it is now."""
    for name in files.names(PATH):
        (path / name).write_bytes(files.content(f"{PATH}/{name}"))
    for there in path.glob("*.log"):
        if there.name not in files.names(PATH):
            there.unlink()


def lsns(plan: JournalPlan, start: Position, end: Position) -> list[int]:
    return [
        int(lsn)
        for part in plan.slices(start, end)
        for chunk in read_chunks(plan.files, plan.directory, part, strict=False)
        for lsn in chunk.lsns
    ]


@pytest.mark.parametrize("seed", range(8))
def test_a_stream_reads_each_agreed_record_once(seed: int, tmp_path: Path) -> None:
    """On a follower, whose journal is cut and copied from another leader now and then, by one plan and by new ones,
    also by those that pass over damage, of which there is none."""
    chance = Random(seed)
    leader, disk = led(), SimulatedFiles()
    follower = CopiedJournal.open(PATH, files=disk)
    follower.begin(ID)
    follower.set_terms(follower.terms.with_term(1, 1))
    follow(follower, leader.files, leader.end, chance)
    put(disk, tmp_path)
    plan = JournalPlan(str(tmp_path), strict=seed < 4)
    at, seen = plan.first(), list[int]()
    for term in range(2, 8):
        driver = leader.driver
        for _ in range(chance.randint(2, 7)):
            leader.publish(chance.randint(1, 3), chance.randrange(900))
            if chance.random() < 0.5:
                follow(follower, leader.files, leader.end, chance)
                leader.journal.agree(follower.end)
            if chance.random() < 0.7:
                leader.journal.tick()
                leader.journal.writer.run_once()
            follow(follower, leader.files, leader.end, chance)
            put(disk, tmp_path)
            if chance.random() < 0.3:
                plan = JournalPlan(str(tmp_path), strict=seed < 4)
            end = plan.end()
            assert end.lsn <= leader.journal.committed_lsn
            seen += lsns(plan, at, end)
            at = max(at, end, key=lambda one: (one.segment, one.offset))
        agreed = leader.journal.committed_lsn
        leader.journal.abandon()
        leader = Leader(_cut(leader.files, agreed), term, agreed=agreed)
        leader.driver = driver
        driver.journal = leader.journal
        follower.cut(agreed)
        follower.set_terms(follower.terms.with_term(term, agreed))
    leader.journal.agree(leader.journal.durable_lsn)
    leader.journal.tick()
    leader.journal.writer.run_once()
    follow(follower, leader.files, leader.end, chance)
    put(disk, tmp_path)
    seen += lsns(plan, at, plan.end())
    assert seen == list(range(1, leader.journal.committed_lsn))
    assert lsns(plan, plan.first(), plan.end()) == seen


def _cut(files: SimulatedFiles, lsn: int) -> SimulatedFiles:
    """The next leader's disk: it has what was agreed, and nothing more."""
    left = files.crash()
    copied = CopiedJournal.open(PATH, files=left)
    copied.cut(lsn)
    copied.close()
    return left
