"""Lifetimes of messages that go in any order."""

from random import Random

import pytest

from leveret.engine.leases.lifetimes import Lifetimes


@pytest.mark.parametrize("seed", range(20))
def test_each_message_that_is_there_is_due_in_time(seed: int) -> None:
    chance, noted, there = Random(seed), Lifetimes(), dict[int, int]()
    now = 0
    for key in range(1, 3000):
        due = now + chance.choice((5, 50, 5000))
        there[key] = due
        noted.add(due, key, len(there), there.__contains__)
        now += chance.randrange(3)
        for gone in chance.sample([*there], min(len(there), chance.randrange(4))):
            if chance.random() < 0.5:
                del there[gone]
            else:  # leased, and given back
                noted.add(there[gone], gone, len(there), there.__contains__)
        found = noted.due(now, 1000)
        expected = {key for key, due in there.items() if due <= now}
        assert expected == {key for key in found if key in there}
        for key in expected:
            del there[key]
        noted.drop_first_gone(there.__contains__)
        assert noted.next_ns() == min(there.values(), default=0)


def test_entries_of_messages_that_are_gone_do_not_pile_up() -> None:
    noted, there = Lifetimes(), {0}
    sizes = set()
    for key in range(10_000):
        noted.add(1_000_000 + key, key, len(there), there.__contains__)
        sizes.add(len(noted))
    assert max(sizes) < 200
    assert noted.due(2_000_000, 1000)[0] == 0, "the one that is there"
