"""A checkpoint of deep queues is many short steps, and states the right messages whatever happens between them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from recorded_broker import RecordedBroker

from leveret.engine import Message
from leveret.engine.messages.field_table import Field
from leveret.journal.appending.turns import Checkpoints
from leveret.journal.recording import checkpoint as stating
from leveret.journal.recording import message_index as indexes
from leveret.journal.recording.message_index import ContentIndex
from leveret.journal.recovery.recovered import RecoveredMessage

EXAMINED_SLICE = stating.EXAMINED_SLICE


def test_a_step_looks_at_a_slice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a queue that has many; nor are the ids of all that is alive collected in one step."""
    world = RecordedBroker(tmp_path, scope="durable")
    world.declare("q")
    for _ in range(6):
        world.publish("q", EXAMINED_SLICE // 2 + 1)
    looked = 0

    def id_of(message: Message) -> int:
        nonlocal looked
        looked += 1
        return message.id

    monkeypatch.setattr(stating, "_ID", id_of)
    each = []
    for _ in stating.checkpoint(world.broker, world.journal, world.recorder):
        each.append(looked)
        looked = 0
        world.settle()
    each.append(looked)
    assert max(each) <= EXAMINED_SLICE
    assert sum(each) == 3 * world.vhost.queues.named("q").ready_count, (
        "to put them in order, to state them, to know which are alive"
    )
    world.kill()
    again = RecordedBroker(tmp_path, scope="durable")
    assert again.vhost.queues.named("q").ready_count == 6 * (EXAMINED_SLICE // 2 + 1)
    again.journal.close()


def _act(world: RecordedBroker, random: Random, tags: list[int]) -> None:
    """Something that a client does to one of the queues."""
    queue = random.choice(["plain", "levels"])
    what = random.choice(["publish", "get", "ack", "requeue", "nothing"])
    if what == "publish":
        world.publish(queue, random.randint(1, 4), priority=random.randint(0, 3))
    elif what == "get":
        found = world.session.get(world.vhost.queues.named(queue), no_ack=False)
        if found is not None:
            tags.append(found[0])
    elif tags and what != "nothing":
        tag = tags.pop(random.randrange(len(tags)))
        if what == "ack":
            world.session.ack(tag)
        else:
            world.session.reject(tag, requeue=True)
    world.settle()


def _ids(world: RecordedBroker, queue: str) -> list[int]:
    found: Any = world.vhost.queues.named(queue)
    return sorted(message.id for message in (*found.messages(), *found.unacked_messages()))


@pytest.mark.parametrize("seed", range(6))
def test_what_happens_between_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Messages come, go out and come back while they are stated: after a kill each is there that should be, once."""
    monkeypatch.setattr(stating, "EXAMINED_SLICE", 5)
    monkeypatch.setattr(indexes, "KEEP_SLICE", 3)
    monkeypatch.setattr(stating, "RUNS_SPARE", 0)
    stated: list[list[int]] = []

    def snapshot(self: Checkpoints, queue_id: int, messages: Iterator[RecoveredMessage]) -> Iterator[int]:
        stated.append([])
        return whole(self, queue_id, (stated[-1].append(one.id) or one for one in messages))  # type: ignore[func-returns-value]

    whole = Checkpoints.snapshot
    monkeypatch.setattr(Checkpoints, "snapshot", snapshot)
    random = Random(seed)
    world = RecordedBroker(tmp_path, scope="durable")
    world.declare("plain")
    world.declare("levels", arguments={"x-max-priority": Field("l", 3)})
    tags: list[int] = []
    for _ in range(60):
        _act(world, random, tags)
        world.publish("plain", 1)
        world.publish("levels", 1, priority=random.randint(0, 3))
    for _ in range(3):
        for _ in stating.checkpoint(world.broker, world.journal, world.recorder):
            _act(world, random, tags)
        world.get("plain", 10)
    assert len(stated) == 6
    assert all(ids and ids == sorted(set(ids)) for ids in stated), "recovery wants them to rise"
    expected = {name: _ids(world, name) for name in ("plain", "levels")}
    world.kill()
    again = RecordedBroker(tmp_path, scope="durable")
    assert {name: _ids(again, name) for name in ("plain", "levels")} == expected
    again.journal.close()


def test_an_index_that_is_thinned_out_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept stays, what comes or is moved meanwhile, too; the rest is forgotten."""
    monkeypatch.setattr(indexes, "KEEP_SLICE", 10)
    index = ContentIndex()
    index.add(100, 100, 5000)
    index.move(110, 7000)
    pauses = 0
    for _ in index.keep_only(range(100, 200, 2), 200):
        index.add(200 + 3 * pauses, 3, 5100 + 3 * pauses)  # goes on where the run ended
        index.move(120 + 2 * pauses, 8000 + pauses)
        pauses += 1
    assert pauses == 4
    kept = {id_: 4900 + id_ for id_ in range(100, 200, 2)} | {id_: 4900 + id_ for id_ in range(200, 212)}
    kept |= {110: 7000, 120: 8000, 122: 8001, 124: 8002, 126: 8003}
    assert {id_: lsn for id_ in range(90, 220) if (lsn := index.lsn_of(id_)) is not None} == kept
