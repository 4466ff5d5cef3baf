"""Clients that other nodes pass to the listener of a node: taken while its broker serves them, else told why not."""

import logging
import socket
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from in_trio import in_trio

from leveret.cluster.link import listener as listener_module
from leveret.cluster.link.challenge import ChallengeFault, Credentials
from leveret.cluster.link.frames import VERSION, Accept, Client
from leveret.cluster.link.introduction import Reach, connect, reach
from leveret.cluster.link.listener import REFUSAL_S, LinkListener
from leveret.cluster.link.options import Address, LinkOptions
from leveret.cluster.link.stream import Declined, LinkFault

CIRCLE = Credentials("orders")


@pytest.mark.parametrize(
    "links, serves, words",
    [
        (SimpleNamespace(is_closed=False), True, ""),
        (SimpleNamespace(is_closed=False), False, "does not serve clients yet"),
        (SimpleNamespace(is_closed=True), True, "does not lead"),
        (None, True, "does not lead"),
    ],
    ids=["leads", "takes over", "has resigned", "follows"],
)
@in_trio
async def test_a_client_is_taken_while_the_leader_serves(links: Any, serves: bool, words: str) -> None:
    """One that is told so is held by its own node, and passed on again."""
    taken: list[Any] = []

    def take(sock: socket.socket, *said: object) -> None:
        taken.append(said)
        sock.close()

    listener = LinkListener(CIRCLE, "n1", take, takes_clients=lambda: serves)
    listener.links = links
    listening = socket.create_server(("127.0.0.1", 0))
    async with trio.open_nursery() as nursery:
        await nursery.start(listener.serve, [listening])
        link = await connect(Address(*listening.getsockname()[:2]), CIRCLE, None, LinkOptions())
        await link.send(Client(VERSION, "orders", 0, "n2", "amqp", b"header"))
        if words:
            with pytest.raises(Declined, match=words) as declined:
                await link.receive(Accept, timeout_s=60)
            assert taken == [] and not declined.value.is_final
        else:
            assert await link.receive(Accept, timeout_s=60) == Accept()
            assert await link.stream.receive_some(1) == b"" and taken == [(b"", b"header", "amqp", "n2")]
        await link.close()
        nursery.cancel_scope.cancel()


@in_trio
async def test_connections_that_have_ended_take_no_memory() -> None:
    """Nodes probe each other every two seconds, for years."""
    listener = LinkListener(CIRCLE, "n1", print)
    listening = socket.create_server(("127.0.0.1", 0))
    address = Address(*listening.getsockname()[:2])
    async with trio.open_nursery() as nursery:
        await nursery.start(listener.serve, [listening])
        for _ in range(3):
            assert await reach(address, CIRCLE, None, LinkOptions(connect_s=60)) is Reach.REACHED
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert not listener._served and not listener._introducing
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("secret, cluster", [("another secret, as long", "orders"), ("", "invoices")])
def test_a_host_that_is_refused_again_and_again_is_told_once_a_minute(
    caplog: pytest.LogCaptureFixture, secret: str, cluster: str
) -> None:
    """It has another secret, or belongs to another cluster; its ports differ."""
    clock = trio.testing.MockClock()
    other = Credentials(cluster, 0, secret.encode())

    async def main() -> None:
        listener = LinkListener(Credentials("orders", 0, b"the secret of these nodes" if secret else b""), "n1", print)
        listening = socket.create_server(("127.0.0.1", 0))
        async with trio.open_nursery() as nursery:
            await nursery.start(listener.serve, [listening])
            for _ in range(2):
                for _ in range(3):
                    await refused(Address(*listening.getsockname()[:2]), other)
                await trio.testing.wait_all_tasks_blocked()
                clock.jump(REFUSAL_S)
            nursery.cancel_scope.cancel()

    with caplog.at_level(logging.INFO, "leveret.cluster"):
        trio.run(main, clock=clock)
    assert [one.levelno for one in caplog.records] == [logging.WARNING] * 2


@in_trio
async def test_many_strangers_fill_neither_the_log_nor_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of so many hosts within a minute the first ones are told; the others have no line, and are not remembered."""
    monkeypatch.setattr(listener_module, "REFUSED_MAX", 3)
    listener = LinkListener(CIRCLE, "n1", print)
    told = [host for host in ("a", "b", "a", "c", "d", "e", "b", "d") if listener._is_first_refusal(host)]
    assert told == ["a", "b", "c"] == list(listener._refused_s)


async def refused(address: Address, credentials: Credentials) -> None:
    """Connect as a node that does not belong here, until the listener has closed the connection."""
    try:
        link = await connect(address, credentials, None, LinkOptions(introduction_s=10_000, connect_s=10_000))
        await link.send(Client(VERSION, credentials.cluster, 0, "n2", "amqp", b"header"))
        await link.receive(Accept, timeout_s=10_000)
    except (LinkFault, ChallengeFault):
        return
    raise AssertionError("it was taken")
