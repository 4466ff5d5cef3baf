"""What a follower takes of the octets of a segment: whole blocks that follow each other, and nothing else."""

import pytest

from leveret.journal import BadOctets
from leveret.journal.copying.block_checker import BlockChecker
from leveret.journal.format.block import IS_FOOTER, IS_HEAD, encode_block, encode_gap, encode_records
from leveret.journal.format.record import HEAD, PUBLISHED, Record

FIRST = bytes(encode_records(5, IS_HEAD, [Record(HEAD)]))
SECOND = bytes(encode_records(6, 0, [Record(PUBLISHED, msg_id=1), Record(PUBLISHED, msg_id=2)]))
FOOTER = bytes(encode_block(8, IS_FOOTER, 0, 0, (), (), 0))


def taken(*blocks: bytes, cut: int | None = None) -> BlockChecker:
    """A segment that begins with record 5 and gets these octets, in pieces of `cut`."""
    checker, octets = BlockChecker(5), b"".join(blocks)
    for start in range(0, len(octets), cut or len(octets)):
        checker.take(memoryview(octets[start : start + (cut or len(octets))]))
    return checker


@pytest.mark.parametrize("cut", [None, 1, 7])
def test_whole_blocks_count(cut: int | None) -> None:
    checker = taken(FIRST, SECOND, FOOTER[:-1], cut=cut)
    assert (checker.lsn, checker.size, checker.is_sealed) == (8, len(FIRST + SECOND), False)
    checker.take(memoryview(FOOTER[-1:]))
    assert (checker.lsn, checker.is_sealed) == (8, True)


GAP = bytes(encode_gap(6, 9))


@pytest.mark.parametrize("cut", [None, 7])
def test_a_gap_leads_over_records_that_are_nowhere(cut: int | None) -> None:
    assert taken(FIRST, GAP, cut=cut).lsn == 9


BAD = {
    "a segment without its head": [bytes(encode_records(5, 0, [Record(PUBLISHED, msg_id=1)]))],
    "a head in the middle": [FIRST, bytes(encode_records(6, IS_HEAD, [Record(HEAD)]))],
    "a block that comes twice": [FIRST, SECOND, SECOND],
    "a block that is left out": [FIRST, FOOTER],
    "a block behind the footer": [FIRST, SECOND, FOOTER, bytes(encode_records(8, 0, [Record(PUBLISHED, msg_id=3)]))],
    "a gap that ends where it begins": [FIRST, bytes(encode_gap(6, 6))],
    "a gap that ends before it begins": [FIRST, bytes(encode_gap(6, 3))],
    "a bit that flipped": [FIRST, SECOND[:-1] + bytes([SECOND[-1] ^ 1])],
}


@pytest.mark.parametrize("cut", [None, 7])
@pytest.mark.parametrize("name", BAD)
def test_nothing_else_is_taken(name: str, cut: int | None) -> None:
    """Else the follower would acknowledge what it cannot lead with."""
    with pytest.raises(BadOctets):
        taken(*BAD[name], cut=cut)
