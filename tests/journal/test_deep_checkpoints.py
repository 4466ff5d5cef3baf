"""A checkpoint of a deep queue beside what goes on: what leaves meanwhile stays away, what stays is there as it was."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from depth_world import DepthWorld, page_early

from leveret.engine.messages.field_table import Field, FieldTable
from leveret.engine.stores.paged_run import Part
from leveret.journal.recording import checkpoint as stating
from leveret.journal.recovery import snapshot

PLAIN_QUEUE: FieldTable = {}
LEVELS: FieldTable = {"x-max-priority": Field("l", 3)}
#: Message id -> octets of its body.
SIZES: dict[int, int] = {}
KINDS = pytest.mark.parametrize("arguments", [PLAIN_QUEUE, LEVELS], ids=["plain", "levels"])


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue is deep from its first messages on, and is stated two messages at a time."""
    page_early(monkeypatch)
    for module, name in ((stating, "PART_MESSAGES"), (stating, "EXAMINED_SLICE"), (snapshot, "PART_MESSAGES")):
        monkeypatch.setattr(module, name, 2)


def filled(arguments: FieldTable) -> DepthWorld:
    """Runs of unlike sizes and priorities; some expire. Two are out."""
    world = DepthWorld(arguments, {}, memory=0)
    for number in range(6):
        more = {"expiration": b"90000"} if number == 3 else {}
        bodies = [10 * number, 7, 900, 3, 50]
        SIZES.update((world.broker.context.next_id + at, 3 + size) for at, size in enumerate(bodies))
        world.fill(bodies, {"delivery_mode": 2, "priority": number % 4, **more}, number)
        world.end_turn()
    assert world.q.store.is_deep
    return world


def sizes_paged(world: DepthWorld) -> dict[int, int]:
    """Octets of the bodies of what is paged out, as the queue counts them."""
    parts = [part for part in world.q.store.paged_parts() if isinstance(part, Part)]
    return {id_: size for part in parts for id_, size in zip(part.ids, part.sizes)}


def contents(world: DepthWorld) -> list[Any]:
    """Redelivered or not, and what a client sees, in order; the queue is empty then."""
    found = []
    while (got := world.fetch()) is not None:
        found.append((got[1], got[3]))
        world.end_turn()
    return found


def restarted(world: DepthWorld) -> DepthWorld:
    """As after a kill."""
    return DepthWorld(world.arguments, {}, memory=0, files=world.files.crash())


def take_one(world: DepthWorld) -> None:
    world.fetch()


def take_seven(world: DepthWorld) -> None:
    for _ in range(7):
        world.fetch()
        world.end_turn()


def return_five(world: DepthWorld) -> None:
    for tag in [world.fetch(no_ack=False)[0] for _ in range(5)]:
        world.sessions[2].reject(tag, requeue=True)


def purge(world: DepthWorld) -> None:
    world.q.purge()


def steps_of(world: DepthWorld) -> Iterator[None]:
    for _ in stating.checkpoint(world.broker, world.journal, world.recorder):
        world.end_turn()
        yield
    world.end_turn()


@KINDS
@pytest.mark.parametrize("act", [take_one, take_seven, return_five, purge])
def test_what_happens_between_two_steps(arguments: FieldTable, act: Callable[[DepthWorld], None]) -> None:
    """Whichever two: what left stays away, what was returned is redelivered, and nothing is missing."""
    step, is_over = 0, False
    while not is_over:
        world, is_over = filled(arguments), True
        for at, _ in enumerate(steps_of(world)):
            if at == step:
                act(world)
                world.end_turn()
                is_over = False
        after = restarted(world)
        assert contents(after) == contents(world), f"after step {step}"
        world.close()
        after.close()
        step += 1
    assert step > 8


@KINDS
def test_what_is_delayed_between_two_steps_is_delayed_after_a_restart(arguments: FieldTable) -> None:
    """Whichever two: messages that were returned wait for their redelivery as long as before."""
    delay = {"redelivery_delay_ms": 60_000}
    step, is_over = 0, False
    while not is_over:
        world, is_over = filled(arguments), True
        world.configure(delay)
        for at, _ in enumerate(steps_of(world)):
            if at == step:
                return_five(world)
                world.end_turn()
                is_over = False
        after = DepthWorld(arguments, delay, memory=0, files=world.files.crash())
        delayed = {message.id for message in world.q.scheduled}
        assert {message.id for message in after.q.scheduled} == delayed, f"after step {step}"
        assert is_over or len(delayed) == 5
        world.close()
        after.close()
        step += 1
    assert step > 8


@KINDS
def test_what_is_stated_is_as_it_was(arguments: FieldTable) -> None:
    """Sizes, priorities and times of what is paged out, and of what is out to a consumer."""
    world = filled(arguments)
    out = [world.fetch(no_ack=False)[0] for _ in range(2)]
    world.end_turn()
    for _ in steps_of(world):
        pass
    after = restarted(world)
    for tag in out:
        world.sessions[2].reject(tag, requeue=True)
    world.end_turn()
    sizes = sizes_paged(after)
    assert len(sizes) > 20 and sizes == {id_: SIZES[id_] for id_ in sizes}
    assert [content for _, content in contents(after)] == [content for _, content in contents(world)]
    world.close()
    after.close()


@KINDS
def test_what_expires_does_so_after_a_checkpoint_and_a_restart(arguments: FieldTable) -> None:
    """And nothing else does."""
    world = filled(arguments)
    for _ in steps_of(world):
        pass
    after = restarted(world)
    after.advance(91_000)
    after.end_turn()
    bodies = [content[0] for _, content in contents(after)]
    assert len(bodies) == 25 and not any(body.startswith(b"3.") for body in bodies)
    world.close()
    after.close()


@KINDS
def test_times_belong_to_their_messages_when_others_leave_meanwhile(arguments: FieldTable) -> None:
    """Every other message expires; whichever leave while they are stated, the rest keeps its own time."""
    step, is_over = 0, False
    while not is_over:
        world, is_over = DepthWorld(arguments, {}, memory=0), True
        for number in range(14):
            more = {"expiration": b"90000"} if number % 2 else {}
            world.fill([number], {"delivery_mode": 2, **more}, number)
        world.end_turn()
        for at, _ in enumerate(steps_of(world)):
            if at == step:
                for _ in range(3):
                    world.fetch()
                    world.end_turn()
                is_over = False
        after = restarted(world)
        for one in (world, after):
            one.advance(91_000)
            one.end_turn()
        left = [content for _, content in contents(world)]
        assert len(left) in (5, 7) and [content for _, content in contents(after)] == left, f"after step {step}"
        world.close()
        after.close()
        step += 1
    assert step > 5
