"""Runs, runs by shape and mixed runs mean what the same octets mean when they are read one frame at a time."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest
from fuzz_reader import Owner
from hypothesis import given, settings
from hypothesis import strategies as st
from peer import cut_at
from publish_streams import damaged, messages, properties_of, publish_of

from leveret.amqp_frontend.wire.states import ConnectionState
from leveret.interop.wire.raw_codec import frame


def read(reads: Iterable[bytes]) -> Owner:
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
    assert read(cut_at(places)(octets)).outcome == expected


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
    assert read(cut_at(places)(octets)).outcome == expected


ALIKE = [publish_of(1, b"q", properties_of(1, number), b"body") for number in range(20)]
OTHER_SIZES = [publish_of(1, b"q", properties_of(1, number), b"b" * (1 + number % 5)) for number in range(20)]
MIXED = [publish_of(1, b"k" * (1 + number % 2), properties_of(number % 3, number), b"body") for number in range(30)]


@pytest.mark.parametrize("stream", [ALIKE, OTHER_SIZES, MIXED], ids=["alike", "other sizes", "mixed"])
def test_damage_at_every_octet(stream: list[bytes]) -> None:
    """Of a message between others that are read in one go: whichever octet it is, whatever it becomes."""
    before, one, after = b"".join(stream[:-3]), stream[-3], b"".join(stream[-2:])
    for place in range(len(one)):
        for change in (1, 2, 0x80, 0xFF):
            octets = one[:place] + bytes((one[place] ^ change,)) + one[place + 1 :] + after
            expected = read([before, *(octets[at : at + 1] for at in range(len(octets)))]).outcome
            assert read([before + octets]).outcome == expected
            assert read([before, octets]).outcome == expected


@pytest.mark.parametrize("size", [0, 1, 299, 300, 301, 4088, 4089])
@pytest.mark.parametrize("has_frame", [True, False])
def test_bodies_of_every_size(size: int, has_frame: bool) -> None:
    """In the middle of a run by shape: at the limits of messages and frames, none, and a frame where none is due."""
    stream = list(ALIKE)
    stream[15] = publish_of(1, b"q", properties_of(1, 15), bytes(size))
    if has_frame and not size:
        stream[15] += frame(3, 1, b"")
    octets = b"".join(stream)
    assert read([octets]).outcome == one_at_a_time(octets)


def test_streams_are_read_as_mixed_runs_and_by_shape() -> None:
    """What these tests are about does happen in them, and much of it."""
    owners = [read([b"".join(messages(random.Random(seed), 120))]) for seed in range(40)]
    assert sum(owner.mixed for owner in owners) > 500
    assert sum(sum(map(len, owner.connection.publish_cache.shapes.by_length.values())) for owner in owners) > 20
