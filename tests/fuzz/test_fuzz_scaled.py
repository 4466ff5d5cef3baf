"""The fuzz target without its fuzzer: chance, and mutations of valid conversations, so that every run has some."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from fuzz_frames import Crash, one_input, seeds
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands

from leveret.amqp_frontend.session import handling

SEEDS = list(seeds())
#: Octets that mean something somewhere: frame types, ends, class ids, signs, sizes.
TELLING = bytes((0, 1, 2, 3, 8, 10, 20, 40, 50, 60, 80, 85, 90, 127, 128, 206, 255))


@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_seeds_are_clean(number: int) -> None:
    """Every conversation of the corpus has a documented outcome."""
    one_input(SEEDS[number])


def test_the_corpus_gets_deep() -> None:
    """Fuzzing is worth something only if valid conversations come through: no close on the complete ones."""
    survivors = [peer for seed in SEEDS if seed[0] == 3 and (peer := one_input(seed)) is not None]
    published = [peer.pair.broker.statistics().counters["published"] for peer in survivors]
    assert sum(count > 4 for count in published) >= 8


@settings(max_examples=300, deadline=None)
@given(head=st.binary(min_size=3, max_size=3), octets=st.binary(max_size=400))
def test_any_octets(head: bytes, octets: bytes) -> None:
    """Pure chance."""
    one_input(head + octets)


Mutation = Callable[[random.Random, bytearray], None]


def _replace(chance: random.Random, data: bytearray) -> None:
    data[chance.randrange(len(data))] = chance.choice(TELLING)


def _flip(chance: random.Random, data: bytearray) -> None:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _drop(chance: random.Random, data: bytearray) -> None:
    start = chance.randrange(len(data))
    del data[start : start + chance.choice((1, 1, 2, 4, 8, 30))]


def _insert(chance: random.Random, data: bytearray) -> None:
    start = chance.randrange(len(data))
    data[start:start] = bytes(chance.choice(TELLING) for _ in range(chance.choice((1, 1, 2, 4, 8))))


def _repeat(chance: random.Random, data: bytearray) -> None:
    start = chance.randrange(len(data))
    data[start:start] = data[start : start + chance.randrange(1, 80)]


def _splice(chance: random.Random, data: bytearray) -> None:
    other = chance.choice(SEEDS)[3:]
    cut = chance.randrange(len(other))
    data[chance.randrange(len(data)) :] = other[cut:]


MUTATIONS: tuple[Mutation, ...] = (_replace, _replace, _flip, _drop, _insert, _repeat, _splice)


@pytest.mark.parametrize("round_", range(20))
def test_mutations_of_valid_conversations(round_: int) -> None:
    """A few thousand of them, the same ones in every run."""
    chance = random.Random(round_)
    for number in range(200):
        head, octets = chance.randbytes(3), bytearray(chance.choice(SEEDS)[3:])
        for _ in range(chance.choice((1, 1, 2, 3, 6))):
            if octets:
                chance.choice(MUTATIONS)(chance, octets)
        data = bytes((3 if chance.random() < 0.7 else head[0],)) + head[1:] + bytes(octets)
        try:
            one_input(data)
        except BaseException as error:
            raise AssertionError(f"round {round_}, input {number}: {data!r}") from error


def test_a_crash_is_seen() -> None:
    """The target would notice: an exception in a handler is a Crash, not a quiet 541."""
    original = handling.HANDLERS[commands.Basic.Qos]
    handling.HANDLERS[commands.Basic.Qos] = lambda session, channel, method: 1 / 0  # type: ignore[return-value]
    try:
        with pytest.raises(Crash):
            one_input(next(seed for seed in SEEDS if seed[0] == 3 and b"\x00\x3c\x00\x0a" in seed))
    finally:
        handling.HANDLERS[commands.Basic.Qos] = original
