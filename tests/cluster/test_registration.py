"""A node keeps its own key in etcd as it is, and gives its name back when its directory has another id."""

from dataclasses import replace
from typing import Any

import trio
import trio.testing

from leveret.cluster.agreement.view import NodeKey, View
from leveret.cluster.coordinator import errors
from leveret.cluster.coordinator.coordinator import Lease
from leveret.cluster.registration import GROWN_S, RETRY_S, Registration

KEY = NodeKey("a", b"a" * 16, "a:1")


async def later(seconds: float) -> None:
    """Virtual time goes by."""
    with trio.move_on_after(seconds):
        await trio.sleep_forever()


class Etcd:
    """What was written, and answers that a test chooses."""

    def __init__(self) -> None:
        self.written: list[NodeKey] = []
        self.ended: list[Lease] = []
        self.answers: list[Any] = []

    async def register(self, key: NodeKey) -> bool:
        await trio.lowlevel.checkpoint()
        answer = self.answers.pop(0) if self.answers else True
        if isinstance(answer, Exception):
            raise answer
        if answer:
            self.written.append(key)
        return bool(answer)

    async def end_lease(self, lease: Lease) -> None:
        self.ended.append(lease)


class World:
    def __init__(self) -> None:
        self.etcd, self.key = Etcd(), KEY
        self.registration = Registration(self.etcd, lambda: self.key)  # type: ignore[arg-type]

    def run(self, story: Any) -> None:
        async def main() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.registration.run)
                await story()
                nursery.cancel_scope.cancel()

        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_nothing_is_written_before_the_name_is_free() -> None:
    world = World()

    async def story() -> None:
        world.registration.wake()
        await later(3 * GROWN_S)
        assert world.etcd.written == []
        world.registration.begin()
        await later(RETRY_S)
        assert world.etcd.written == [KEY]

    world.run(story)


def test_what_has_changed_is_written_at_once_when_told_and_else_after_a_while() -> None:
    """And what has not is not."""
    world = World()

    async def story() -> None:
        world.registration.begin()
        await later(5 * GROWN_S)
        assert world.etcd.written == [KEY]
        world.key = drained = replace(KEY, is_drained=True)
        world.registration.wake()
        await later(RETRY_S)
        assert world.etcd.written == [KEY, drained]
        world.key = longer = replace(drained, end=20)
        await later(GROWN_S)
        assert world.etcd.written == [KEY, drained, longer]

    world.run(story)


def test_a_key_that_is_gone_is_written_again() -> None:
    """Its lease was over while this node stood still."""
    world = World()

    async def story() -> None:
        world.registration.begin()
        await later(RETRY_S)
        world.registration.take_view(View(7, nodes=(KEY,)))
        await later(RETRY_S)
        assert world.etcd.written == [KEY]
        world.registration.take_view(View(8))
        await later(RETRY_S)
        assert world.etcd.written == [KEY, KEY]

    world.run(story)


def test_a_write_that_fails_is_tried_again() -> None:
    """Whether etcd was not reached, or another node has the name."""
    world = World()
    world.etcd.answers = [errors.Unreachable("no member"), False]

    async def story() -> None:
        world.registration.begin()
        await later(3 * RETRY_S)
        assert world.etcd.written == [KEY] and world.etcd.answers == []

    world.run(story)


def test_a_name_that_was_given_back_is_not_written() -> None:
    """The directory has another id, under which it will be registered."""
    world = World()

    async def story() -> None:
        world.registration.begin()
        await later(RETRY_S)
        await world.registration.end()
        world.key = replace(KEY, node_id=b"b" * 16)
        world.registration.wake()
        await later(3 * GROWN_S)
        assert world.etcd.written == [KEY] and world.etcd.ended == [Lease.NODE]

    world.run(story)


def test_a_write_under_way_is_awaited_before_a_name_is_given_back() -> None:
    """Else it would grant a lease behind the end of the last one, and the old id would stay registered."""
    world = World()
    told: list[str] = []

    async def register(key: NodeKey) -> bool:
        await later(RETRY_S)
        told.append("written")
        return True

    async def end_lease(lease: Lease) -> None:
        told.append("ended")

    async def story() -> None:
        world.registration.begin()
        await later(RETRY_S / 2)
        await world.registration.end()
        await later(GROWN_S)
        assert told == ["written", "ended"]

    world.etcd.register, world.etcd.end_lease = register, end_lease  # type: ignore[method-assign]
    world.run(story)


def test_a_node_that_begins_again_is_written_again() -> None:
    """Its lease was ended, and its key with it: it has the same value, but is no longer there."""
    world = World()

    async def story() -> None:
        for count in (1, 2):
            world.registration.begin()
            await later(RETRY_S)
            assert world.etcd.written == [KEY] * count

    world.run(story)
