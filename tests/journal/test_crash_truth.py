"""The model of what may be there after a crash: it accepts each end that a crash can leave, and no other."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from crash.truth import Broken, Fact, Operation, Truth

A1, B1, A2, B2, DEAD1 = ("m", "a", 1), ("m", "b", 1), ("m", "a", 2), ("m", "b", 2), ("m", "dead", 1)


def story() -> tuple[Truth, list[Operation]]:
    """Message 1 to queues a and b, then 2, then 1 is taken out of a, then rejected from b: a dead letter."""
    truth = Truth()
    return truth, [
        truth.did(0, "publish 1", adds=(A1, B1)),
        truth.did(0, "publish 2", adds=(A2, B2)),
        truth.did(0, "ack 1", removes=(A1,)),
        truth.did(0, "reject 1", adds=(DEAD1,), removes=(B1,)),
    ]


#: What is there when the first so many were done.
ENDS: list[set[Fact]] = [set(), {A1, B1}, {A1, B1, A2, B2}, {B1, A2, B2}, {A2, B2, DEAD1}]


@pytest.mark.parametrize("answered", range(5))
@pytest.mark.parametrize("done", range(5))
def test_each_end_from_the_last_answer_on_is_possible(answered: int, done: int) -> None:
    """What was answered is there; what was not may be, in order."""
    truth, operations = story()
    if answered:
        truth.answered(operations[answered - 1])
    if done >= answered:
        truth.look(ENDS[done])
        assert truth.here == ENDS[done]
    else:
        with pytest.raises(Broken):
            truth.look(ENDS[done])


@pytest.mark.parametrize("answered", range(5))
def test_no_other_end_is_possible(answered: int) -> None:
    """Every other set of these facts: half a publish, a dead letter in both queues or in none, one out of order."""
    facts = [A1, B1, A2, B2, DEAD1]
    for bits in range(32):
        found = {fact for at, fact in enumerate(facts) if bits >> at & 1}
        if found in ENDS:
            continue
        truth, operations = story()
        if answered:
            truth.answered(operations[answered - 1])
        with pytest.raises(Broken):
            truth.look(found)


FAULTS: dict[str, list[Fact]] = {
    "lost": [B1],
    "doubled": [B1, A2, A2],
    "back": [A1, B1, A2],
    "never published": [B1, A2, ("m", "a", 9)],
}


@pytest.mark.parametrize("found", FAULTS.values(), ids=FAULTS)
def test_what_an_earlier_look_found_stays(found: list[Fact]) -> None:
    """Message 2 was found, and 1 gone from a: neither changes by itself."""
    truth, _ = story()
    truth.look({B1, A2, B2})
    truth.answered(truth.did(0, "ack 2", removes=(B2,)))
    with pytest.raises(Broken):
        truth.look(found)


def over_two_lines(answered: str) -> Truth:
    """Line 0 publishes 2, then 1; line 1 acknowledges 1, then publishes 1 to b."""
    truth = Truth()
    operations = {
        "publish 2": truth.did(0, "publish 2", adds=(A2,)),
        "publish 1": truth.did(0, "publish 1", adds=(A1,)),
        "ack 1": truth.did(1, "ack 1", removes=(A1,)),
        "publish b": truth.did(1, "publish b", adds=(B1,)),
    }
    if answered:
        truth.answered(operations[answered])
    return truth


@pytest.mark.parametrize(
    "answered, found, is_possible",
    [
        ("", [], True),
        ("", [A2], True),
        ("", [A2, A1], True),
        ("", [A2, B1], True),
        ("", [A1], False),  # 2 came first
        ("", [A1, A2, B1], False),  # the ack came before b
        ("", [B1], False),  # what was acknowledged had been published, and 2 before it
        ("publish 1", [A2, A1], True),
        ("publish 1", [A2], True),
        ("publish 1", [], False),
        ("publish b", [A2, B1], True),
        ("publish b", [A2], False),
        ("publish b", [A2, A1, B1], False),
    ],
)
def test_what_one_connection_published_another_takes(answered: str, found: list[Fact], is_possible: bool) -> None:
    """What is known of one line tells of the other."""
    truth = over_two_lines(answered)
    if is_possible:
        truth.look(found)
        assert truth.here == set(found)
    else:
        with pytest.raises(Broken):
            truth.look(found)
