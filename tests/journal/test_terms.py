"""The term table: which leaders wrote a journal, and up to where two journals are the same."""

from random import Random

import pytest

from leveret.journal import JournalError
from leveret.journal.format.terms import FIRST_LSN, TermTable

NODE, OTHER = b"n" * 16, b"o" * 16


def table(*starts: tuple[int, int], node: bytes = NODE) -> TermTable:
    return TermTable(node, starts)


def test_a_table_as_octets() -> None:
    one = table((1, 1), (4, 900))
    assert one.octets == b'{"node": "6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e", "terms": [[1, 1], [4, 900]]}\n'
    assert TermTable.from_octets(one.octets) == one
    assert TermTable.from_octets(table().octets) == table()


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"\xff",
        b"7",
        b"{}",
        b'{"node": "6e"}',
        b'{"node": "6e", "terms": []}',
        b'{"node": "%s", "terms": [[2, 5], [1, 9]]}' % (b"6e" * 16),
        b'{"node": "%s", "terms": [[1, 5], [2, 4]]}' % (b"6e" * 16),
        b'{"node": "%s", "terms": [[1, 0]]}' % (b"6e" * 16),
        b'{"node": "%s", "terms": [[1, true]]}' % (b"6e" * 16),
        b'{"node": "%s", "terms": [[1, 2, 3]]}' % (b"6e" * 16),
        b'{"node": "%s", "terms": 7}' % (b"6e" * 16),
    ],
)
def test_octets_that_are_no_table(octets: bytes) -> None:
    with pytest.raises(JournalError):
        TermTable.from_octets(octets)


def test_terms_rise() -> None:
    one = table().with_term(1, 1).with_term(3, 700)
    assert one.starts == ((1, 1), (3, 700))
    assert (one.last_term, table().last_term) == (3, 0)
    with pytest.raises(ValueError):
        one.with_term(3, 800)


def test_a_leader_that_never_had_all_terms_of_its_last_leader() -> None:
    """It knew that term 3 began at 700, had copied up to 650, and leads."""
    assert table((1, 1), (3, 700)).with_term(4, 650) == table((1, 1), (4, 650))
    assert table((1, 1), (3, 700)).with_term(4, 700) == table((1, 1), (3, 700), (4, 700))


@pytest.mark.parametrize("lsn, term", [(1, 0), (9, 0), (10, 1), (499, 1), (500, 3), (10_000, 3)])
def test_the_term_of_a_record(lsn: int, term: int) -> None:
    """Term 2 is without records; those before 10 were written before there was a cluster."""
    assert table((1, 10), (2, 500), (3, 500)).term_at(lsn) == term


def test_leaderships_without_a_record() -> None:
    """What they wrote was cut, or never came here."""
    assert table((1, 1), (4, 500)).terms_since(500) == 3
    assert table((1, 1), (3, 500), (4, 500)).terms_since(500) == 3
    assert table((2, 1)).terms_since(1) == 2
    assert table((1, 1), (4, 500)).terms_since(501) == 0


def test_the_end_of_a_term() -> None:
    one = table((1, 1), (2, 500), (3, 500))
    assert (one.end_of(1, 900), one.end_of(2, 900), one.end_of(3, 900)) == (500, 500, 900)
    assert one.end_of(1, 300) == 300, "the table of its leader names terms that it has not copied yet"
    with pytest.raises(KeyError):
        one.end_of(4, 900)


@pytest.mark.parametrize(
    "lsn, left",
    [
        (900, ((1, 1), (2, 500), (3, 500))),
        (501, ((1, 1), (2, 500), (3, 500))),
        (500, ((1, 1),)),
        (2, ((1, 1),)),
        (1, ()),
    ],
)
def test_a_cut_table(lsn: int, left: tuple[tuple[int, int], ...]) -> None:
    assert table((1, 1), (2, 500), (3, 500)).cut_to(lsn) == table(*left)


@pytest.mark.parametrize(
    "mine, end, theirs, other_end, common",
    [
        # It is behind its leader; it has what its leader has; its leader has nothing more.
        (((1, 1),), 400, ((1, 1),), 900, 400),
        (((1, 1),), 900, ((1, 1),), 900, 900),
        # Records of term 1 that nobody else had, and term 2 began without them.
        (((1, 1),), 900, ((1, 1), (2, 800)), 1000, 800),
        # A leader that won term 2, and wrote its footer for itself alone.
        (((1, 1), (2, 800)), 801, ((1, 1), (3, 800)), 1000, 800),
        (((1, 1), (2, 700)), 801, ((1, 1), (3, 800)), 1000, 700),
        # Terms without records, on either side.
        (((1, 1), (2, 800)), 800, ((1, 1), (3, 800)), 800, 800),
        (((1, 1),), 800, ((1, 1), (2, 800), (3, 800)), 900, 800),
        # It copies term 1, and knows already that term 2 is to come.
        (((1, 1), (2, 800)), 400, ((1, 1), (2, 800)), 900, 400),
        (((1, 1), (2, 800)), 400, ((1, 1), (3, 600)), 900, 400),
        # Nothing in common: other terms, a term that began elsewhere, no terms at all.
        (((1, 1),), 400, ((2, 1),), 900, FIRST_LSN),
        (((1, 1), (2, 300)), 400, ((1, 1), (2, 200)), 900, 200),
        ((), 400, ((1, 401),), 900, FIRST_LSN),
        ((), 400, (), 400, FIRST_LSN),
    ],
)
def test_the_common_end(
    mine: tuple[tuple[int, int], ...], end: int, theirs: tuple[tuple[int, int], ...], other_end: int, common: int
) -> None:
    one, other = table(*mine), table(*theirs, node=OTHER)
    assert one.common_end(other, end, other_end) == common
    assert other.common_end(one, other_end, end) == common


def test_common_ends_are_right_whoever_led() -> None:
    """Journals as lists of (term, nonce): the common end is never behind the first record that differs."""
    chance = Random(7)
    for _ in range(300):
        journals: list[list[tuple[int, int]]] = [[], [], []]
        tables = [table(node=bytes([i]) * 16) for i in range(3)]
        for term in range(1, 6):
            leader = chance.randrange(3)
            tables[leader] = tables[leader].with_term(term, len(journals[leader]) + 1)
            journals[leader] += [(term, chance.random().__hash__()) for _ in range(chance.randrange(4))]
            for other in {0, 1, 2} - {leader}:
                ends = len(journals[other]) + 1, len(journals[leader]) + 1
                end = tables[other].common_end(tables[leader], *ends)
                same = [a == b for a, b in zip(journals[other], journals[leader])]
                assert end - 1 <= (same.index(False) if False in same else len(same)), "it keeps what is not the same"
                if chance.random() < 0.6:
                    del journals[other][end - 1 :]
                    tables[other] = tables[other].cut_to(end).with_starts_of(tables[leader])
                    there = len(journals[other])
                    journals[other] += journals[leader][there : chance.randint(there, len(journals[leader]))]
