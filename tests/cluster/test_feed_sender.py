"""What a follower is sent by the journal's thread and by the task of its link: all of it, in order, without waiting."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest

from leveret.cluster.link.feed import Feed, Position
from leveret.cluster.link.feed_sender import FeedSender, Pending
from leveret.cluster.link.frames import Beacon, Decoder, Message, Needs, Octets, Order, Unlink, encode

FIRST = Order("the first frame")
LIMIT = 64 * 1024 * 1024


class Bench:
    """An sender, and the other end of its socket."""

    def __init__(self, sock: socket.socket, other: socket.socket) -> None:
        self.wakes = 0
        self.other = other
        self.feed = Feed(Position(1, 0), Position(1, 0), LIMIT)
        self.sender = FeedSender(sock, self.feed, self._wake, encode(FIRST))
        self._decoder = Decoder(Octets, Beacon, Order, Unlink, Needs)

    def _wake(self) -> None:
        self.wakes += 1

    def receive(self) -> list[Message]:
        """What has come, once: the messages that are whole."""
        try:
            self._decoder.receive(self.other.recv(100_000))
        except BlockingIOError:
            return []
        return list(self._decoder.messages())


@contextmanager
def bench() -> Iterator[Bench]:
    sock, other = socket.socketpair()
    with sock, other:
        sock.setblocking(False)
        other.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000)
        yield Bench(sock, other)


@pytest.mark.parametrize("seed", range(3))
def test_all_octets_come_in_order_from_two_threads(seed: int) -> None:
    """The journal writes while the task of the link sends what the socket did not take, and beacons."""
    chance = Random(seed)
    blocks = [chance.randbytes(chance.choice((10, 5_000, 90_000))) for _ in range(150)]
    with bench() as at:

        def write() -> None:
            offset = 0
            for number, block in enumerate(blocks):
                at.sender.written(1, offset, block)
                offset += len(block)
                if number % 40 == 39:
                    at.sender.put(Unlink((number,)))

        thread = threading.Thread(target=write)
        thread.start()
        found: list[Message] = []
        whole = sum(map(len, blocks))
        came = 0
        while came < whole or thread.is_alive():
            at.sender.beacon(encode(Beacon(1, len(found), 0, {})))
            rest, span = at.sender.send_pending()
            assert rest in (Pending.NOTHING, Pending.SOCKET) and span is None
            for message in at.receive():
                found.append(message)
                if isinstance(message, Octets):
                    assert (message.base_lsn, message.offset) == (1, came)
                    came += len(message.octets)
        thread.join()
        assert b"".join(bytes(one.octets) for one in found if isinstance(one, Octets)) == b"".join(blocks)
        assert [one for one in found if isinstance(one, Unlink)] == [Unlink((39,)), Unlink((79,)), Unlink((119,))]
        agreed = [one.agreed for one in found if isinstance(one, Beacon)]
        assert agreed == sorted(agreed)
        assert found[0] == FIRST


def test_only_the_newest_beacon_waits_and_every_order() -> None:
    """The task is woken once, and then does the rest."""
    with bench() as at:
        at.sender.written(1, 0, bytes(200_000))
        assert at.wakes == 1
        for number in range(10):
            at.sender.beacon(encode(Beacon(1, number, 0, {})))
        at.sender.beacon(encode(Beacon(1, 10, 0, {})), encode(Order("drain")))
        assert at.wakes == 1
        found: list[Message] = []
        while at.sender.send_pending()[0] is Pending.SOCKET:
            found += at.receive()
        while more := at.receive():
            found += more
        assert [one.agreed for one in found if isinstance(one, Beacon)] == [10]
        assert [one for one in found if isinstance(one, Order)] == [FIRST, Order("drain")]


def test_a_newer_beacon_takes_the_place_of_one_that_waits() -> None:
    """A follower that reads slowly is told what is agreed now."""
    with bench() as at:
        at.sender.written(1, 0, bytes(200_000))
        for number in range(3):
            at.sender.beacon(encode(Beacon(1, number, 0, {})))
        found: list[Message] = []
        while at.sender.send_pending()[0] is Pending.SOCKET:
            found += at.receive()
        while more := at.receive():
            found += more
        assert [one.agreed for one in found if isinstance(one, Beacon)] == [2]


def test_the_task_is_told_of_files_and_of_a_lost_connection() -> None:
    """It is woken for both; after the end nothing is sent, and the socket is closed."""
    with bench() as at:
        at.sender.skip_to(Position(1, 100))
        at.sender.written(1, 100, b"x")
        assert at.wakes == 1
        assert at.sender.send_pending() == (Pending.FILES, (Position(1, 0), Position(1, 100)))
        at.sender.was_read(Position(1, 100), encode(Octets(1, 0, bytes(100))))
        assert at.sender.send_pending() == (Pending.NOTHING, None)
        assert [type(one) for one in at.receive()] == [Order, Octets, Octets]
        at.other.close()
        at.sender.written(1, 101, b"y")
        assert at.wakes == 2
        assert at.sender.send_pending()[0] is Pending.LOST
        at.sender.close()
        at.sender.written(1, 102, b"z")
        assert at.wakes == 2


def test_what_a_program_must_know_comes_before_the_octets_also_from_files() -> None:
    """Octets that are written while files are read are read from there, too."""
    with bench() as at:
        at.sender.skip_to(Position(2, 100))
        at.sender.put(Unlink((1,)))
        at.sender.put(Needs(frozenset({"leases"})))
        at.sender.written(2, 100, b"x")
        assert at.sender.send_pending()[1] == (Position(1, 0), Position(2, 101))
        at.sender.was_read(Position(2, 101), encode(Octets(2, 0, bytes(101))))
        assert at.sender.send_pending() == (Pending.NOTHING, None)
        assert [type(one) for one in at.receive()] == [Order, Needs, Octets, Unlink]
