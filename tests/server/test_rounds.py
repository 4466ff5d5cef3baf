"""Many busy clients: in a round of turns they share what one of them may do alone, so that others wait no longer.

Work is counted in units of effort, in the rounds of the loop; never in time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import pytest
import trio
from desk import load
from pamqp import commands as C
from peer import method
from rawclient import Client
from socket_broker import SocketBroker
from trio.testing import wait_all_tasks_blocked

from leveret.amqp_frontend.edge.server import ACCEPTS_A_TURN
from leveret.amqp_frontend.peer.channel import EFFORT_MAX
from leveret.engine import Broker, ManualClock
from leveret.engine.turn import SHARE_MIN, share_of
from leveret.serving.runtime import Runtime

CLIENTS = 16
NEWCOMERS = 100
#: What one method or one message more may cost.
ONE_MORE = 300


class Rounds(trio.abc.Instrument):
    """What each round of the loop spent, and how many connections had more to do when it began."""

    def __init__(self, broker: Broker) -> None:
        self.context = broker.context
        self.taken: list[tuple[int, int]] = []
        self._before = (0, 0)

    def after_io_wait(self, timeout: float) -> None:
        self._before = (self.context.interrupted, self.context.turn.effort)

    def before_io_wait(self, timeout: float) -> None:
        waiting, spent = self._before
        self.taken.append((waiting, self.context.turn.effort - spent))


@contextmanager
def busy(octets: bytes) -> Iterator[Rounds]:
    """All clients send this at once; afterwards each of them was served."""
    with SocketBroker(load("")) as broker:
        port = int(broker.url.rsplit(":", 1)[1].split("/")[0])
        clients = [Client.open("127.0.0.1", port) for _ in range(CLIENTS)]
        rounds = Rounds(broker.broker)
        broker.do(lambda: trio.lowlevel.add_instrument(rounds))
        are_sent = Event()
        loop = Thread(target=broker.do, args=(are_sent.wait,))  # stands still: else the first are served meanwhile
        loop.start()
        for client in clients:
            client.send_octets(octets)
        are_sent.set()
        loop.join()
        for client in clients:
            client.call("basic.qos", prefetch_count=1)
        yield rounds
        for client in clients:
            client.close()


def test_busy_clients_share_a_round() -> None:
    """Each has a thousand declarations to be done: a round is not as long as all their turns would be alone."""
    octets = method(1, C.Queue.Declare, queue="q", nowait=True) * 1_000
    with busy(octets) as rounds:
        pass
    shared = [spent for waiting, spent in rounds.taken if waiting >= CLIENTS // 2]
    assert shared, "they were never busy together"
    assert max(shared) <= EFFORT_MAX * 2 + CLIENTS * SHARE_MIN + ONE_MORE
    assert rounds.context.interrupted == 0


@pytest.mark.parametrize(("waiting", "most"), [(0, 4_000), (1, 2_000), (7, 500), (1_000, SHARE_MIN)])
def test_a_share(waiting: int, most: int) -> None:
    """Of what a connection may do alone; but something in any case."""
    assert share_of(4_000, waiting) == most


class Deep(Broker):
    """One with more to do than fits into a turn, for so many turns."""

    def __init__(self, turns: int) -> None:
        super().__init__(ManualClock())
        self.left = turns
        self.ends: list[bool] = []  # whether each was a short one

    def end_turn(self, *, is_short: bool = False) -> bool:
        self.ends.append(is_short)
        if not is_short:
            self.left -= 1
        return self.left > 0


def test_ends_of_turns_are_short_while_somebody_does_the_rest() -> None:
    """Each round of the loop has one long end, however many have a turn in it; afterwards all is as before."""
    broker = Deep(turns=10)

    async def main() -> None:
        runtime = Runtime(broker)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.run)
            while broker.left > 0:
                for _ in range(CLIENTS):
                    runtime.end_turn()
                await trio.lowlevel.checkpoint()
            await wait_all_tasks_blocked()
            runtime.end_turn()
            nursery.cancel_scope.cancel()

    trio.run(main)
    *ends, last = broker.ends
    assert last is False
    assert ends.count(False) <= 10 + 1
    assert ends.count(True) >= 8 * (CLIENTS - 1)


class Newcomers(trio.abc.Instrument):
    """How many tasks each round of the loop began: one for a connection."""

    def __init__(self) -> None:
        self.taken = [0]

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self.taken[-1] += 1

    def before_io_wait(self, timeout: float) -> None:
        self.taken.append(0)


def test_many_who_connect_at_once_are_let_in_some_at_a_time() -> None:
    """Each logs in with its first turn: hundreds of them in one round would be as many turns, for which others wait."""
    newcomers = Newcomers()
    with SocketBroker(load("")) as broker:
        port = int(broker.url.rsplit(":", 1)[1].split("/")[0])

        def come() -> list[Client]:
            """While the loop stands still, as it does for a moment beside other work."""
            trio.lowlevel.add_instrument(newcomers)
            return [Client("127.0.0.1", port) for _ in range(NEWCOMERS)]

        clients = broker.do(come)
        for client in clients:
            client.handshake()
            client.close()
    assert sum(newcomers.taken) >= NEWCOMERS
    assert max(newcomers.taken) <= ACCEPTS_A_TURN
