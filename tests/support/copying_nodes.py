"""A leader's journal and followers that copy it, on simulated disks. Used by the tests of journal/copying."""

from collections.abc import Iterator
from random import Random

from journal_workload import PATH
from simulated_files import SimulatedFiles

from leveret.journal import Journal, recover
from leveret.journal.copying.copied_journal import CopiedJournal
from leveret.journal.copying.octet_reader import OctetReader, position_of
from leveret.journal.disk.segment import Scan, opened, path_of, segments_in

NODE = b"n" * 16


def written(journal: Journal) -> tuple[int, int]:
    """Where the octets of a leader end."""
    segment = journal.writer.file.segment
    assert segment is not None
    return segment.base_lsn, segment.size


def octets_of(files: SimulatedFiles, end: tuple[int, int], path: str = PATH) -> dict[int, bytes]:
    """The octets of each segment, up to where they end."""
    return {
        base: files.content(path_of(path, base))[: end[1] if base == end[0] else None]
        for base in segments_in(files, path)
        if base <= end[0]
    }


def octets_in(copied: CopiedJournal, files: SimulatedFiles, path: str = PATH) -> dict[int, bytes]:
    """The octets of each segment of a copy: without a piece of a block at the end."""
    found = {base: files.content(path_of(path, base)) for base in segments_in(files, path)}
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
            found += [block.end_lsn for block in Scan(files, handle, base) if block.header.record_count]
    return found


def state_of(files: SimulatedFiles) -> object:
    """What a start would find."""
    found = recover(files, PATH)
    queues = {id_: list(queue.messages()) for id_, queue in found.queues.items()}
    return found.next_lsn, found.next_message_id, queues, sorted(found.objects)
