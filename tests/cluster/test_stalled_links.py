"""What a follower sends: to a leader that takes nothing for a while, and if its own status cannot be sent."""

import socket
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from leveret.cluster.link import open_link
from leveret.cluster.link.frames import Ack, Beacon, Decoder, Status
from leveret.cluster.link.open_link import FollowingNode, OpenLink
from leveret.cluster.link.options import LinkOptions

TERM = 2
OPTIONS = LinkOptions(beacon_s=0.5, silence_s=3.0)


class Bench:
    """A link from its Welcome on, without a leader."""

    def __init__(self, patch: pytest.MonkeyPatch, status: Callable[[], dict[str, object]] = dict) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        patch.setattr(open_link, "as_socket", lambda stream: (self.ours, None))
        follower = FollowingNode("", None, lambda event: None, OPTIONS, status=status)
        link: Any = SimpleNamespace(take_rest=lambda: b"", stream=None)
        self.following = OpenLink(follower, link, TERM, None)

    def sent(self) -> bytes:
        """What has come at the leader's end."""
        self.theirs.setblocking(False)
        octets = b""
        with suppress(BlockingIOError):
            while data := self.theirs.recv(1_000_000):
                octets += data
        return octets

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


def run(patch: pytest.MonkeyPatch, script: Any, **options: Any) -> None:
    """Run a script in virtual time."""

    async def main() -> None:
        bench = Bench(patch, **options)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.following._keep_telling)
            await script(bench)
            nursery.cancel_scope.cancel()
        bench.close()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_status_that_cannot_be_told_ends_the_link_and_not_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may refuse any question about itself for a moment."""

    def status() -> dict[str, object]:
        raise FileNotFoundError("no directory")

    async def script(bench: Bench) -> None:
        await later(1)
        assert bench.following._why == "the status of this node cannot be sent: no directory"

    run(monkeypatch, script, status=status)


def test_acknowledgements_without_room_are_made_up_for_by_a_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop of one of the two nodes hangs for a moment: no reason to end the link."""

    async def script(bench: Bench) -> None:
        following = bench.following
        following.acknowledge(True)
        for lsn in range(1, 5001):
            following._fsynced = lsn
            following._acknowledge()
        decoder = Decoder(Ack, Status)
        decoder.receive(bench.sent())
        *_, last = decoder.messages()
        assert last != Ack(TERM, 5000)
        await later(OPTIONS.beacon_s + 0.1)
        decoder.receive(bench.sent())
        assert Ack(TERM, 5000) in list(decoder.messages()) and following._why == ""

    run(monkeypatch, script)


class SlowSocket:
    """A connection that takes a few octets at a time."""

    def __init__(self) -> None:
        self.taken = b""

    def send(self, octets: bytes) -> int:
        self.taken += octets[:9]
        return min(len(octets), 9)


def test_a_message_is_sent_to_its_end_before_the_next_one_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the leader reads the beginning of one behind half of another, and closes the link."""

    async def script(bench: Bench) -> None:
        following, slow = bench.following, SlowSocket()
        monkeypatch.setattr(following, "_socket", slow)
        following.acknowledge(True)
        for lsn in range(1, 100):
            following._fsynced = lsn
            following._acknowledge()
        decoder = Decoder(Ack)
        decoder.receive(slow.taken)
        acknowledged = [one.lsn for one in decoder.messages() if isinstance(one, Ack)]
        assert len(acknowledged) > 20 and acknowledged == sorted(acknowledged)

    run(monkeypatch, script)


def test_the_status_is_sent_when_a_beacon_of_the_leader_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle node wakes up once for both, though the leader's beacons come a little late; and once for several."""

    async def script(bench: Bench) -> None:
        await trio.testing.wait_all_tasks_blocked()
        for beacons in (1, 1, 3, 1):
            await later(OPTIONS.beacon_s * 1.05)
            assert bench.sent() == b""
            for _ in range(beacons):
                bench.following._handle(Beacon(TERM, 1, 0, {}))
            await trio.testing.wait_all_tasks_blocked()
            decoder = Decoder(Status)
            decoder.receive(bench.sent())
            assert [type(one) for one in decoder.messages() if one is not None] == [Status]

    run(monkeypatch, script)


def test_a_leader_that_takes_nothing_for_as_long_as_silence_may_last_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one that takes a message now and then."""

    async def script(bench: Bench) -> None:
        following = bench.following
        following._socket = narrow = Narrow()  # type: ignore[assignment]
        for _ in range(3):
            await later(OPTIONS.silence_s - 0.1)
            narrow.room = 1000
            await later(OPTIONS.beacon_s)
            narrow.room = 0
        await later(OPTIONS.silence_s - 0.5)
        assert following._why == "" and len(narrow.taken) > 0
        await later(1.5)
        assert following._why == "the leader reads no messages"

    run(monkeypatch, script)


def test_the_rest_of_a_message_comes_before_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection may take only the beginning."""

    async def script(bench: Bench) -> None:
        following = bench.following
        following._socket = narrow = Narrow()  # type: ignore[assignment]
        following.acknowledge(True)
        for lsn in range(1, 30):
            narrow.room = 5
            following._fsynced = lsn
            following._acknowledge()
        narrow.room = 1000
        following._acknowledge()
        decoder = Decoder(Ack)
        decoder.receive(bytes(narrow.taken))
        acknowledged = [message.lsn for message in decoder.messages()]  # type: ignore[union-attr]
        decoder.end()
        assert 2 < len(acknowledged) < 29 and acknowledged == sorted(set(acknowledged)) and acknowledged[-1] == 29

    run(monkeypatch, script)


class Narrow:
    """A connection that takes `room` octets."""

    def __init__(self) -> None:
        self.room = 0
        self.taken = bytearray()

    def send(self, octets: bytes) -> int:
        taken = octets[: self.room]
        if not taken:
            raise BlockingIOError
        self.taken += taken
        self.room -= len(taken)
        return len(taken)

    def shutdown(self, how: int) -> None:
        pass


async def later(seconds: float) -> None:
    """Virtual time goes by."""
    with trio.move_on_after(seconds):
        await trio.sleep_forever()
