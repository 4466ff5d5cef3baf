"""Clients of a node that does not lead: held, passed on, handed to this node's frontends, or told to come back."""

import json
import math
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
import trio
import trio.testing
from cluster_nodes import until
from configured_broker import load
from rawclient import Client
from socket_broker import SocketBroker

from leveret.amqp_frontend.edge.arrival import Arrival
from leveret.amqp_frontend.edge.server import serve
from leveret.cluster.link.clients import Passed
from leveret.serving import gate as gate_module
from leveret.serving.addresses import Address, bind
from leveret.serving.gate import GRACE_S, HTTP_PATIENCE_S, PEEK_S, Frontends, Gate, goodbye
from leveret.serving.gate_client import GateClient, Service
from leveret.serving.listeners import Listeners

PATIENCE_S = 30.0
#: What a client of AMQP is told while no node leads.
GOODBYE = goodbye(Service.AMQP, "no node of this cluster leads")
LOOPBACK = Address("127.0.0.1", 0)


@dataclass
class World:
    """A gate on real sockets, in virtual time, and what it did."""

    gate: Gate
    listeners: Listeners
    answered: list[GateClient] = field(default_factory=list)
    passed: list[GateClient] = field(default_factory=list)

    async def client(self, of: dict[socket.socket, Address]) -> trio.SocketStream:
        """A client of the first of these listeners."""
        return await trio.open_tcp_stream(*next(iter(of)).getsockname()[:2])

    async def pass_on(self, client: GateClient) -> Passed:
        """A leader that refuses the first two attempts."""
        self.passed.append(client)
        if len(self.passed) < 3:
            return Passed.REFUSED
        with pytest.raises(BlockingIOError):
            while client.socket.recv(1000):
                pass
        client.socket.send(b"led")
        return Passed.SERVED

    async def answer(self, client: GateClient) -> None:
        """This node's own answer."""
        self.answered.append(client)
        await trio.lowlevel.wait_readable(client.socket)
        client.socket.recv(1000)
        client.socket.send(b"own")


def run(script: Callable[[World], Awaitable[None]], patience_s: float = PATIENCE_S) -> None:
    """Run a script in virtual time."""

    async def main() -> None:
        listeners = Listeners(*({bind(LOOPBACK, 8): LOOPBACK} for _ in range(3)))
        world = World(Gate(listeners, lambda: patience_s, lambda client: world.answer(client)), listeners)
        async with trio.open_nursery() as nursery:
            await nursery.start(world.gate.run)
            await script(world)
            nursery.cancel_scope.cancel()
        listeners.close()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.02))


async def everything(stream: trio.SocketStream) -> bytes:
    """All octets up to the end."""
    return b"".join([data async for data in stream])


def test_a_client_is_held_until_patience_is_over() -> None:
    """Then AMQP's 320; the socket ends."""

    async def script(world: World) -> None:
        client = await world.client(world.listeners.amqp)
        began = trio.current_time()
        await client.send_all(b"AMQP\0\0\x09\x01")
        assert await everything(client) == GOODBYE
        assert trio.current_time() - began == pytest.approx(PATIENCE_S, abs=1.0)

    run(script)


@pytest.mark.parametrize("patience_s, held_s", [(PATIENCE_S, HTTP_PATIENCE_S), (3.0, 3.0)])
def test_a_request_is_answered_before_monitors_give_up(patience_s: float, held_s: float) -> None:
    """With 503 and the reason, since many tools wait for 15 s at most; a lost leader is replaced earlier."""

    async def script(world: World) -> None:
        client = await world.client(world.listeners.console)
        began = trio.current_time()
        await client.send_all(b"GET /api/overview HTTP/1.1\r\n\r\n")
        head, _, body = (await everything(client)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ") and f"content-length: {len(body)}".encode() in head
        assert json.loads(body) == {"error": "not_leading", "reason": "no node of this cluster leads"}
        assert trio.current_time() - began == pytest.approx(held_s, abs=1.0)

    run(script, patience_s)


def test_a_client_of_amqp_that_asks_for_this_node_is_answered_at_once() -> None:
    """`leveret ctl` does while it is kept waiting; also when there is a leader, which may not serve."""

    async def script(world: World) -> None:
        for lead in (world.gate.hold, lambda: world.gate.pass_on(world.pass_on)):
            lead()
            client = await world.client(world.listeners.amqp)
            began = trio.current_time()
            await client.send_all(b"GET /cluster HTTP/1.1\r\n\r\n")
            assert await everything(client) == b"own" and trio.current_time() - began < 1
        assert world.passed == []

    run(script)


def test_a_client_of_a_silent_broker_waits_for_it_or_is_answered_by_the_node() -> None:
    """`leveret ctl` asks the node; a client of AMQP gets to the broker when that goes on."""

    async def script(world: World) -> None:
        goes_on = trio.Event()
        amqp_out, amqp_in = trio.open_memory_channel[Arrival](math.inf)
        world.gate.hand_over(Frontends(amqp_out, amqp_out))
        for first, answer in ((b"GET /cluster HTTP/1.1\r\n\r\n", b"own"), (b"AMQP\0\0\x09\x01", b"")):
            ours, theirs = socket.socketpair()
            theirs.send(first)
            world.gate.take(Arrival(ours, ""), goes_on.wait)
            await trio.testing.wait_all_tasks_blocked(0.01)
            theirs.setblocking(False)
            assert (theirs.recv(10) if answer else b"") == answer
        with pytest.raises(trio.WouldBlock):
            amqp_in.receive_nowait()
        goes_on.set()
        assert (await amqp_in.receive()).socket is ours

    run(script)


def test_who_connects_to_a_silent_broker_gets_to_the_node() -> None:
    """On the listener that the broker has; afterwards the broker serves again."""
    diverted: list[socket.socket] = []
    with SocketBroker(load("")) as broker:
        runtime, port = broker._runtime, int(broker.url.rpartition(":")[2].partition("/")[0])
        broker.do(lambda: setattr(runtime, "divert", lambda arrival: diverted.append(arrival.socket)))
        broker.do(runtime.suspend)
        with socket.create_connection(("127.0.0.1", port)):
            until(lambda: diverted, "the connection")
        diverted[0].close()
        broker.do(runtime.resume)
        Client.open("127.0.0.1", port).close()
    assert len(diverted) == 1


def test_the_goodbye_is_a_close_of_the_connection() -> None:
    """As another implementation reads it."""
    from pamqp import commands, frame

    _, channel, close = frame.unmarshal(GOODBYE)
    assert channel == 0 and isinstance(close, commands.Connection.Close) and close.reply_code == 320


def test_a_client_is_passed_on_as_soon_as_there_is_a_leader() -> None:
    """Attempts that are refused are repeated while patience lasts."""

    async def script(world: World) -> None:
        client = await world.client(world.listeners.amqp)
        await trio.testing.wait_all_tasks_blocked()
        assert not world.passed
        world.gate.pass_on(world.pass_on)
        assert await everything(client) == b"led"
        assert len(world.passed) == 3

    run(script)


def test_what_asks_for_this_node_is_answered_here() -> None:
    """Metrics and health of HTTP, at each port of it; the rest is the broker's."""

    async def script(world: World) -> None:
        for of, request, answer in (
            (world.listeners.console, b"GET /metrics HTTP/1.1\r\n\r\n", b"own"),
            (world.listeners.console, b"GET /health/live HTTP/1.1\r\n\r\n", b"own"),
            (world.listeners.metrics, b"GET / HTTP/1.1\r\n\r\n", b"own"),
            (world.listeners.console, b"GET /api/overview HTTP/1.1\r\n\r\n", b"HTTP/1.1 503 Service Unavailable"),
        ):
            client = await world.client(of)
            await client.send_all(request)
            assert (await everything(client)).startswith(answer)

    run(script)


def test_held_clients_are_handed_to_the_frontend_that_begins() -> None:
    """Unread, with the addresses that they came from; later ones are accepted by the frontend alone."""

    async def script(world: World) -> None:
        held = await world.client(world.listeners.amqp)
        await held.send_all(b"AMQP\0\0\x09\x01")
        await trio.testing.wait_all_tasks_blocked()
        send, receive = trio.open_memory_channel[Arrival](math.inf)
        world.gate.hand_over(Frontends(send, send))
        arrival = await receive.receive()
        assert arrival.address == held.socket.getsockname() and not arrival.is_tls
        assert arrival.socket.recv(100) == b"AMQP\0\0\x09\x01"
        async with world.gate.lent_listeners():
            late = await world.client(world.listeners.amqp)
            await late.send_all(b"AMQP\0\0\x09\x01")
            await trio.testing.wait_all_tasks_blocked(0.01)
            with pytest.raises(trio.WouldBlock):
                receive.receive_nowait()
            world.gate.hold()
        world.gate.pass_on(world.pass_on)
        assert await everything(late) == b"led"

    run(script)


def test_the_frontend_serves_what_it_is_handed() -> None:
    """A client that was held until the broker was there gets its connection.start."""
    from leveret.engine import Broker
    from leveret.serving.composition import default_users
    from leveret.serving.runtime import Runtime, SystemClock

    async def script(world: World) -> None:
        held = await world.client(world.listeners.amqp)
        await held.send_all(b"AMQP\0\0\x09\x01")
        send, receive = trio.open_memory_channel[Arrival](0)
        world.gate.hand_over(Frontends(send, send))
        runtime, stopping = Runtime(Broker(SystemClock(), default_users())), trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: serve(runtime, [], arrivals=receive, stopping=stopping))
            assert (await held.receive_some()).startswith(b"\x01\x00\x00")
            await held.aclose()
            stopping.set()

    run(script)


def test_a_client_whose_leader_never_takes_it_is_told_when_patience_is_over() -> None:
    """Patience begins once, not with each attempt."""

    async def script(world: World) -> None:
        async def refuse(client: GateClient) -> Passed:
            return Passed.REFUSED

        world.gate.pass_on(refuse)
        client = await world.client(world.listeners.amqp)
        await client.send_all(b"AMQP\0\0\x09\x01")
        with trio.fail_after(2 * PATIENCE_S):
            assert b"CONNECTION_FORCED - the node that leads does not serve clients" in await everything(client)

    run(script)


def test_clients_that_were_passed_on_end_with_their_leader() -> None:
    """Soon after there is another, or none: the octets of one that is lost without a word never end."""

    async def script(world: World) -> None:
        async def stay(client: GateClient) -> Passed:
            client.socket.recv(1000)
            await trio.sleep_forever()
            return Passed.SERVED

        for change in (world.gate.hold, lambda: world.gate.pass_on(stay)):
            world.gate.pass_on(stay)
            client = await world.client(world.listeners.amqp)
            await client.send_all(b"AMQP\0\0\x09\x01")
            await trio.testing.wait_all_tasks_blocked(0.01)
            change()
            with trio.fail_after(PATIENCE_S):
                assert await everything(client) == b""

    run(script)


def test_a_node_that_cannot_be_one_of_the_cluster_holds_nobody() -> None:
    """Neither those who wait already."""

    async def script(world: World) -> None:
        early = await world.client(world.listeners.amqp)
        await early.send_all(b"AMQP\0\0\x09\x01")
        await trio.testing.wait_all_tasks_blocked(0.01)
        world.gate.close()
        late = await world.client(world.listeners.amqp)
        await late.send_all(b"AMQP\0\0\x09\x01")
        with trio.fail_after(PATIENCE_S):
            why = goodbye(Service.AMQP, "this node cannot be one of the cluster")
            assert await everything(early) == await everything(late) == why

    run(script)


def test_a_leader_that_resigns_has_the_last_word() -> None:
    """320 comes a moment after the key in etcd is gone: clients are not cut off before."""

    async def script(world: World) -> None:
        resigned = trio.Event()

        async def say_goodbye(client: GateClient) -> Passed:
            client.socket.recv(1000)
            await resigned.wait()
            await later(GRACE_S / 2)
            client.socket.send(b"320")
            return Passed.SERVED

        world.gate.pass_on(say_goodbye)
        client = await world.client(world.listeners.amqp)
        await client.send_all(b"AMQP\0\0\x09\x01")
        await trio.testing.wait_all_tasks_blocked(0.01)
        world.gate.hold()
        resigned.set()
        assert await everything(client) == b"320"

    run(script)


def test_a_client_whose_broker_ends_just_now_goes_to_the_next_one() -> None:
    """It was about to be handed over."""

    async def script(world: World) -> None:
        ended, _ = trio.open_memory_channel[Arrival](0)
        send, receive = trio.open_memory_channel[Arrival](math.inf)
        world.gate.hand_over(Frontends(ended, ended))
        client = await world.client(world.listeners.amqp)
        await client.send_all(b"AMQP\0\0\x09\x01")
        await trio.testing.wait_all_tasks_blocked(0.01)
        world.gate.hand_over(Frontends(send, send))
        ended.close()
        with trio.fail_after(PATIENCE_S):
            assert (await receive.receive()).address == client.socket.getsockname()

    run(script)


@pytest.mark.parametrize("rest, answer", [(b"rics HTTP/1.1\r\n\r\n", b"own"), (b"", b"HTTP/1.1 503")])
def test_a_request_that_comes_in_pieces_is_waited_for(rest: bytes, answer: bytes) -> None:
    """For some seconds: then it is the broker's."""

    async def script(world: World) -> None:
        client = await world.client(world.listeners.console)
        await client.send_all(b"GET /met")
        await later(PEEK_S / 2)
        await client.send_all(rest or b"r")
        with trio.fail_after(PEEK_S + PATIENCE_S):
            assert (await everything(client)).startswith(answer)

    run(script)


def test_clients_are_held_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes then is closed; those that left make room."""
    monkeypatch.setattr(gate_module, "CLIENTS_MAX", 2)

    async def script(world: World) -> None:
        held = [await world.client(world.listeners.amqp) for _ in range(2)]
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert world.gate.clients == 2 and await everything(await world.client(world.listeners.amqp)) == b""
        for one in held:
            await one.aclose()
        while world.gate.clients:
            await later(1)
        await world.client(world.listeners.amqp)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert world.gate.clients == 1

    run(script)


async def later(seconds: float) -> None:
    """Virtual time goes by."""
    with trio.move_on_after(seconds):
        await trio.sleep_forever()
