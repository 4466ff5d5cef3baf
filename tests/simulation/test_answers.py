"""What an answer promises: see `simulator.answers`."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from simulator.answers import Answers
from simulator.ledger import Broken
from simulator.objects import Objects

QUEUE = "queue", "/", "q"


def objects_of(*states: tuple[int, dict[Any, Any]]) -> Objects:
    """What there was behind some turns, the first of them durable."""
    objects = Objects()
    objects.durable = states[0][1]
    objects._waiting.extend(states[1:])
    return objects


def answers_of(objects: Objects, committed_lsn: int, *, full: bool = False, unsafe: Any = None) -> Answers:
    left = unsafe if isinstance(unsafe, tuple) else None
    ledger: Any = SimpleNamespace(
        committed_lsn=lambda: committed_lsn, first_left=lambda _: left, is_safe=lambda key: key != unsafe
    )
    disk: Any = SimpleNamespace(is_troubled=False, has_been_full=full)
    return Answers(ledger, objects, disk, Counter())


@pytest.mark.parametrize(("committed_lsn", "is_there"), [(9, False), (10, True), (19, True), (20, False)])
def test_what_is_answered_is_there_wherever_the_next_broker_starts(committed_lsn: int, is_there: bool) -> None:
    """It is declared at 10, deleted at 20."""
    answers = answers_of(objects_of((0, {}), (10, {(*QUEUE, "of a kind"): 1}), (20, {})), committed_lsn)
    answers.of(*QUEUE, is_there=is_there)
    with pytest.raises(Broken, match="was answered before it was durably"):
        answers.of(*QUEUE, is_there=not is_there)


def test_nothing_is_known_while_the_broker_works_on_or_its_disk_is_full() -> None:
    objects = objects_of((0, {}))
    objects._broker = SimpleNamespace()  # type: ignore[assignment]
    objects._has_changed = True
    objects.turn_ended(10, 0, is_unfinished=True)
    objects._has_changed = False
    answers_of(objects, 5).of(*QUEUE)
    answers_of(objects_of((0, {})), 5, full=True).of(*QUEUE)


def test_an_answer_speaks_of_what_was_before_it() -> None:
    place = ("/", "q"), 1
    answers_of(objects_of((0, {})), 5).after([place], [b"key"])
    with pytest.raises(Broken, match="the acknowledgement of 1 was not durable"):
        answers_of(objects_of((0, {})), 5, unsafe=place).after([place])
    with pytest.raises(Broken, match="a message was not durable before a later answer"):
        answers_of(objects_of((0, {})), 5, unsafe=b"key").after((), [b"key"])
