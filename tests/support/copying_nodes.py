"""A leader's journal and followers that copy it, on simulated disks. Used by the tests of journal/copying."""

from collections.abc import Iterator, Sequence
from random import Random

from journal_workload import ID, PATH, Driver
from simulated_files import SimulatedFiles

from leveret.engine import ManualClock
from leveret.journal import ClusterJournal, Journal, JournalOptions, recover
from leveret.journal.copying.copied_journal import CopiedJournal
from leveret.journal.copying.octet_reader import OctetReader, position_of
from leveret.journal.disk.segment import opened, path_of, segments_in
from leveret.journal.disk.segment_scan import SegmentScan

NODE = b"n" * 16
TINY = JournalOptions(segment_size=1500, preallocate_size=4096)


def written(journal: Journal) -> tuple[int, int]:
    """Where the octets of a leader end."""
    segment = journal.writer.file.segment
    assert segment is not None
    return segment.base_lsn, segment.size


def octets_of(files: SimulatedFiles, end: tuple[int, int]) -> dict[int, bytes]:
    """The octets of each segment, up to where they end."""
    return {
        base: files.content(path_of(PATH, base))[: end[1] if base == end[0] else None]
        for base in segments_in(files, PATH)
        if base <= end[0]
    }


def octets_in(copied: CopiedJournal, files: SimulatedFiles) -> dict[int, bytes]:
    """The octets of each segment of a copy: without a piece of a block at the end."""
    found = {base: files.content(path_of(PATH, base)) for base in segments_in(files, PATH)}
    if found:
        found[max(found)] = found[max(found)][: copied._blocks.size]
    return found


def new_copy(files: SimulatedFiles, journal_id: bytes) -> CopiedJournal:
    """A node with an empty directory, which joins."""
    copied = CopiedJournal.open(PATH, files=files, node_id=NODE)
    copied.begin(journal_id)
    return copied


def pieces(
    files: SimulatedFiles, start: tuple[int, int], end: tuple[int, int], chance: Random, largest: int = 900
) -> Iterator[tuple[int, int, bytes]]:
    """The octets between two positions, cut at random."""
    reader = OctetReader(PATH, *start, files)
    while (piece := reader.read(end, chance.randint(1, largest))) is not None:
        yield piece
    reader.close()


def follow(copied: CopiedJournal, files: SimulatedFiles, end: tuple[int, int], chance: Random) -> None:
    """Join the leader whose files these are, and copy all that it has."""
    lsn = copied.sync()
    start = position_of(PATH, lsn, files) if segments_in(copied._files, PATH) else (segments_in(files, PATH)[0], 0)
    for piece in pieces(files, start, end, chance):
        copied.append(*piece)
        if chance.random() < 0.3:
            copied.sync()
    copied.sync()


def boundaries(files: SimulatedFiles) -> list[int]:
    """LSNs at which a block ends."""
    found: list[int] = []
    for base in segments_in(files, PATH):
        with opened(files, PATH, base) as handle:
            found += [block.end_lsn for block in SegmentScan(files, handle, base) if block.header.record_count]
    return found


def state_of(files: SimulatedFiles) -> object:
    """What a start would find."""
    found = recover(files, PATH)
    queues = {id_: list(queue.messages()) for id_, queue in found.queues.items()}
    return found.next_lsn, found.next_message_id, queues, sorted(found.objects)


class Leader:
    """A node that leads, and what its journal reported: all octets, and the order of reports."""

    def __init__(
        self,
        files: SimulatedFiles,
        term: int = 1,
        *,
        agreed: int = 1,
        threaded: bool = False,
        options: JournalOptions = TINY,
    ) -> None:
        self.files = files
        self.octets: dict[int, bytes] = {}
        self.reports: list[str] = []
        self.synced_lsn = 0
        self.safe: list[int] = []
        copied = CopiedJournal.open(PATH, files=files, node_id=NODE)
        if copied.journal_id is None:
            copied.begin(ID)
        copied.upgrade()
        copied.set_terms(copied.terms.with_term(term, copied.end))
        self.first_lsn = copied.end
        self.cluster = ClusterJournal(
            copied.hand_over(), agreed, self._written, self._synced, self._unlinked, self.needed
        )
        self.journal = Journal.open(PATH, ManualClock(), options, files=files, threaded=threaded, cluster=self.cluster)
        self.journal.set_callbacks(self.safe.append, lambda error: self.reports.append(str(error)))
        self.driver = Driver(self.journal)

    def _written(self, base_lsn: int, offset: int, octets: bytearray, end_lsn: int) -> None:
        before = self.octets.setdefault(base_lsn, b"")
        assert len(before) == offset or not before
        self.octets[base_lsn] = before + bytes(octets)
        self.reports.append(f"written {end_lsn}")

    def _synced(self, lsn: int) -> None:
        self.synced_lsn = lsn
        self.reports.append(f"synced {lsn}")

    def _unlinked(self, base_lsns: Sequence[int]) -> None:
        self.reports.append(f"unlinked {list(base_lsns)}")

    def needed(self, needs: frozenset[str]) -> None:
        self.reports.append(f"needs {sorted(needs)}")

    def commit(self) -> int:
        """Commit what was appended, on the own disk."""
        lsn = self.journal.commit()
        self.journal.writer.wait(lsn, on_own_disk=True)
        return lsn

    def publish(self, count: int = 1, size: int = 10) -> int:
        """Messages in a turn of their own."""
        self.driver.publish([b"x" * size] * count, "a")
        return self.commit()

    def turn(self) -> None:
        """Commit, and all nodes have it."""
        self.journal.agree(self.commit())

    @property
    def end(self) -> tuple[int, int]:
        return written(self.journal)


def led() -> Leader:
    """A leader in its first term, with the queues a and b, which all nodes have."""
    leader = Leader(SimulatedFiles())
    leader.driver.declare("a", "b")
    leader.turn()
    return leader
