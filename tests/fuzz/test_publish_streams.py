"""Runs, runs by shape and mixed runs mean what the same octets mean when they are read one frame at a time."""

from __future__ import annotations

import random
from typing import Any

import pytest
from fuzz_reader import Owner
from hypothesis import given, settings
from hypothesis import strategies as st
from publish_streams import damaged, messages, read_in

from leveret.amqp_frontend.states import ConnectionState


def read(reads: list[bytes]) -> Owner:
    """An open connection that got these reads, up to the first error."""
    owner = Owner(ConnectionState.RUNNING)
    for number in (3, 4):
        owner._open(number)
    for data in reads:
        if not owner.read(data):
            break
    return owner


def one_at_a_time(octets: bytes) -> list[tuple[Any, ...]]:
    """What the octets mean, read so that no message is there in one piece."""
    return read([octets[at : at + 1] for at in range(len(octets))]).outcome


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 2**30), max_size=6))
def test_streams_of_publishes(seed: int, places: list[int]) -> None:
    """Of few kinds, cut anywhere."""
    octets = b"".join(messages(random.Random(seed), 120))
    expected = one_at_a_time(octets)
    assert len(expected) == 120
    assert read([octets]).outcome == expected
    assert read(read_in(octets, places)).outcome == expected


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 2**30), max_size=4))
def test_streams_with_something_wrong(seed: int, places: list[int]) -> None:
    """In one message, late in the stream: the same messages before it, and the same error if it is one."""
    chance = random.Random(seed)
    stream = messages(chance, 100)
    at = chance.randrange(50, 100)
    stream[at] = damaged(chance, stream[at])
    octets = b"".join(stream)
    expected = one_at_a_time(octets)
    assert read([octets]).outcome == expected
    assert read(read_in(octets, places)).outcome == expected


@pytest.mark.parametrize("round_", range(8))
def test_damage_at_every_octet_of_a_mixed_run(round_: int) -> None:
    """Of one message among others that are read in one go: whichever octet it is, whatever it becomes."""
    chance = random.Random(round_)
    stream = messages(chance, 60)
    before, after = stream[:50], stream[50:]
    start = len(b"".join(before))
    whole = b"".join(stream)
    for place in range(start, start + len(after[0]), 1 + len(after[0]) // 60):
        changed = whole[place] ^ chance.choice((1, 2, 4, 0x80, 0xFF))
        octets = whole[:place] + bytes((changed,)) + whole[place + 1 :]
        # The first fifty are the same each time.
        expected = read([whole[:start], *(octets[at : at + 1] for at in range(start, len(octets)))]).outcome
        assert read([octets]).outcome == expected
        assert read([octets[:place], octets[place:]]).outcome == expected


def test_streams_are_read_as_mixed_runs_and_by_shape() -> None:
    """What these tests are about does happen in them, and much of it."""
    owners = [read([b"".join(messages(random.Random(seed), 120))]) for seed in range(40)]
    assert sum(owner.mixed for owner in owners) > 500
    assert sum(sum(map(len, owner.connection.memory.shapes.by_length.values())) for owner in owners) > 20
