"""What a wake-up costs before a broker does anything: messages at a fixed pace from one socket to another.

    python benchmarks/wake_ups.py [--count 8000] [--rounds 3]

Ways to wait for the socket: `epoll` alone (what the kernel takes); `trio`, through a task; `nested`, an epoll of
our own with persistent registrations whose descriptor trio waits for; `own`, the same, but waiting in it for up to a
millisecond before trio is asked; `poller`, as the broker does it on Linux. All forward each read with one send.
"""

from __future__ import annotations

import argparse
import select
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

import trio

from leveret.amqp_frontend.edge.poller import poller_of_this_run

SIZE, PACE = 1100, 2000
#: How long `own` waits by itself, and after so many reads it lets other tasks have a turn.
TIMEOUT_S, READS_A_TURN = 0.001, 4
CLIENT = f"""
import select, socket, sys, time
port, count = map(int, sys.argv[1:])
to = socket.create_connection(("127.0.0.1", port))
back = socket.create_connection(("127.0.0.1", port))
to.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
due, sent, left = time.perf_counter(), 0, count * {SIZE}
while left:
    if sent < count and time.perf_counter() >= due:
        to.sendall(bytes({SIZE}))
        sent, due = sent + 1, due + 1 / {PACE}
    ready = select.select([back], [], [], max(0, due - time.perf_counter()) if sent < count else None)[0]
    left -= len(back.recv(65536)) if ready else 0
"""


class Forwarder:
    """From `source` to `target`, until `left` octets have passed."""

    def __init__(self, source: socket.socket, target: socket.socket, left: int) -> None:
        self.source, self.target, self.left = source, target, left
        self.reads = 0

    def read(self) -> None:
        """One wake-up."""
        data = self.source.recv(131072)
        self.left -= len(data)
        self.reads += 1
        self.target.send(data)

    def registered(self) -> select.epoll:
        """An epoll with the source in it."""
        epoll = select.epoll()
        epoll.register(self.source.fileno(), select.EPOLLIN)
        return epoll


async def by_epoll(forwarder: Forwarder) -> None:
    """The kernel and Python's calls alone; nothing else runs meanwhile."""
    with forwarder.registered() as epoll:
        while forwarder.left:
            epoll.poll()
            forwarder.read()
    await trio.lowlevel.checkpoint()


async def by_trio(forwarder: Forwarder) -> None:
    """As the broker where it has no poller."""
    while forwarder.left:
        await trio.lowlevel.wait_readable(forwarder.source)
        forwarder.read()


async def nested(forwarder: Forwarder) -> None:
    """One wait of trio's for all that is registered."""
    with forwarder.registered() as epoll:
        while forwarder.left:
            await trio.lowlevel.wait_readable(epoll.fileno())
            for _ in epoll.poll(0):
                forwarder.read()


async def own(forwarder: Forwarder) -> None:
    """While messages come, trio's other tasks wait for up to a millisecond."""
    with forwarder.registered() as epoll:
        while forwarder.left:
            if not epoll.poll(TIMEOUT_S):
                await trio.lowlevel.wait_readable(epoll.fileno())
                continue
            forwarder.read()
            if forwarder.reads % READS_A_TURN == 0:
                await trio.lowlevel.checkpoint()


async def by_poller(forwarder: Forwarder) -> None:
    """As the broker: without a switch to this task."""
    poller = poller_of_this_run()
    assert poller is not None, "an epoll is needed"

    def turn() -> bool | None:
        forwarder.read()
        return None if forwarder.left else True

    await poller.until(forwarder.source.fileno(), turn)


WAYS: dict[str, Callable[[Forwarder], Awaitable[None]]] = {
    "epoll": by_epoll,
    "trio": by_trio,
    "nested": nested,
    "own": own,
    "poller": by_poller,
}


async def measure(way: Callable[[Forwarder], Awaitable[None]], count: int) -> float:
    """Microseconds of CPU a wake-up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = subprocess.Popen([sys.executable, "-c", CLIENT, str(listener.getsockname()[1]), str(count)])
        source, target = (listener.accept()[0] for _ in range(2))
    with source, target:
        source.setblocking(False)
        target.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        forwarder = Forwarder(source, target, count * SIZE)
        before = time.process_time()
        await way(forwarder)
        spent = time.process_time() - before
    client.wait()
    return spent / forwarder.reads * 1e6


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=8000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    figures: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(options.rounds):
        for name, way in WAYS.items():
            figures[name].append(trio.run(measure, way, options.count))
    for name, values in figures.items():
        spread = f"({min(values):.1f} to {max(values):.1f})"
        print(f"{name:7} {statistics.median(values):.1f} us of CPU a wake-up {spread}")


if __name__ == "__main__":
    main()
