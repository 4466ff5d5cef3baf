"""The frame reader's fuzz target without its fuzzer: the corpus, mutations of it, and chance."""

from __future__ import annotations

import random

import pytest
from fuzz_frames import SET_UP, seeds
from fuzz_reader import PRELUDES, Crash, Owner, one_input
from hypothesis import given, settings
from hypothesis import strategies as st
from test_fuzz_scaled import MUTATIONS

from leveret.amqp_frontend.wire.states import ConnectionState

RUNNING = PRELUDES.index(ConnectionState.RUNNING)
CONVERSATIONS = sorted({seed[3:] for seed in seeds()})


@pytest.mark.parametrize("number", range(len(CONVERSATIONS)))
@pytest.mark.parametrize("prelude", range(len(PRELUDES)))
def test_conversations_mean_the_same_however_they_are_cut(prelude: int, number: int) -> None:
    """Whole, byte by byte, and in a few pieces."""
    for cut in range(8):
        one_input(bytes((prelude, cut, number)) + CONVERSATIONS[number])


def test_the_corpus_gets_deep() -> None:
    """Valid conversations are read to their ends: publishes, acknowledgements and methods come out."""
    found = {one[0] for octets in CONVERSATIONS for one in one_input(bytes((RUNNING, 1, 1)) + octets)}
    assert {"publish", "ack", "queue.declare", "tx.commit", "channel.close", "connection.close"} <= found


@settings(max_examples=300, deadline=None)
@given(head=st.binary(min_size=3, max_size=3), octets=st.binary(max_size=400))
def test_any_octets(head: bytes, octets: bytes) -> None:
    """Pure chance."""
    one_input(head + octets)


@pytest.mark.parametrize("round_", range(10))
def test_mutations_of_valid_conversations(round_: int) -> None:
    """A few thousand of them, the same ones in every run."""
    chance = random.Random(round_)
    for number in range(400):
        head, octets = chance.randbytes(3), bytearray(chance.choice(CONVERSATIONS))
        for _ in range(chance.choice((1, 1, 2, 3, 6))):
            if octets:
                chance.choice(MUTATIONS)(chance, octets)
        prelude = RUNNING if chance.random() < 0.7 else head[0]
        data = bytes((prelude,)) + head[1:] + bytes(octets)
        try:
            one_input(data)
        except BaseException as error:
            raise AssertionError(f"round {round_}, input {number}: {data!r}") from error


def test_a_difference_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target would notice a reader whose events depend on how the octets were cut."""
    original = Owner.read
    monkeypatch.setattr(Owner, "read", lambda self, data: original(self, data[:100]))
    with pytest.raises(Crash):
        one_input(bytes((RUNNING, 0, 1)) + SET_UP)
