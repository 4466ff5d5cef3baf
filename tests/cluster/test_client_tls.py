"""TLS of a client ends at the node that it is connected to, which tells the leader what EXTERNAL needs."""

import functools
import math
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from ipaddress import ip_network
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from certificates import Authority
from pamqp import commands, frame

from leveret.amqp_frontend.edge.arrival import Arrival
from leveret.amqp_frontend.edge.server import serve
from leveret.amqp_frontend.options import FrontendOptions
from leveret.cluster.link.challenge import Credentials
from leveret.cluster.link.client_header import ClientTls, client_header
from leveret.cluster.link.clients import ClientPasser, Passed
from leveret.cluster.link.follower_links import FollowerLinks, LeaderJournal
from leveret.cluster.link.listener import LinkListener
from leveret.cluster.link.options import Address as LinkAddress
from leveret.cluster.link.options import LinkOptions, LinkTls
from leveret.console.views.connections import connection_view
from leveret.engine import User, Users
from leveret.journal import TermTable
from leveret.serving import gate, gate_client
from leveret.serving.addresses import Address, bind
from leveret.serving.gate import Frontends, Gate, own_paths
from leveret.serving.gate_client import GateClient
from leveret.serving.listeners import Listeners
from leveret.serving.runtime import Runtime
from leveret.serving.served_node import ServedNode
from leveret.testing.harness import Harness

TLS = Address("127.0.0.1", 0, is_tls=True)
HEADER = b"AMQP\0\0\x09\x01"
CIRCLE = Credentials("orders", 0, b"a secret of the cluster")
OPEN_CIRCLE = Credentials("orders")
LINK = LinkOptions(introduction_s=30, connect_s=30)
LED = LeaderJournal("/nowhere", b"J" * 16, TermTable(b"L" * 16, ((1, 1),)))
PROPERTIES: Any = {"capabilities": {"authentication_failure_close": True}}
START_OK = frame.marshal(commands.Connection.StartOk(PROPERTIES, "EXTERNAL", "", "en_US"), 0)


class World:
    """A follower's gate with a certificate, whose leader is a broker in the same process, reached by a real link.

    `credentials`: of the link. `prefix`: of the API. `proxies`: whose connections begin with a PROXY header.
    """

    def __init__(
        self, directory: Path, *, credentials: Credentials = CIRCLE, prefix: str = "", proxies: tuple[str, ...] = ()
    ) -> None:
        self.authority = Authority(directory)
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate = self.authority.issue()
        server.load_cert_chain(certificate, certificate.with_suffix(".key"))
        server.load_verify_locations(cafile=self.authority.file)
        server.verify_mode = ssl.CERT_OPTIONAL
        self.options = FrontendOptions(
            mechanisms=("PLAIN", "EXTERNAL"),
            tls=server,
            proxy_protocol_from=tuple(map(ip_network, proxies)),
            refused_login_delay_ms=0,
        )
        self.listeners = Listeners(*({bind(TLS, 8): TLS} for _ in range(3)))
        self.patience_s = 0.0
        self.answered: list[GateClient] = []
        self.gate = Gate(
            self.listeners, lambda: self.patience_s, self.answer, options=lambda: self.options,
            own_paths=lambda: own_paths(prefix),
        )  # fmt: skip
        self.broker = Harness(users=Users([User("worker"), User("guest", loopback_only=True)])).broker
        self.credentials = credentials
        self.leads = True
        self.passer = ClientPasser(credentials, "b", LINK)
        self.leader = LinkAddress("127.0.0.1", 0)

    async def answer(self, client: GateClient) -> None:
        """This node's own answer: the first octets of the request."""
        self.answered.append(client)
        await client.stream().send_all((client.first or await client.stream().receive_some())[:12])

    async def client(
        self,
        of: dict[socket.socket, Address] | None = None,
        *,
        name: str | None = None,
        others: int = 0,
        first: bytes = b"",
    ) -> trio.SSLStream[trio.SocketStream]:
        """A client with TLS. `name`: that its certificate gives it, with so many others. `first`: octets before TLS."""
        names = [f"worker-{number}.example" for number in range(others + 1)]
        certificate = None if name is None else self.authority.issue("client", *names, common_name=name)
        stream = await trio.open_tcp_stream(*next(iter(of or self.listeners.amqp)).getsockname()[:2])
        await stream.send_all(first)
        context = self.authority.trusting(certificate)
        return trio.SSLStream(stream, context, server_hostname="localhost", https_compatible=True)

    async def lead(self, nursery: trio.Nursery) -> None:
        """The broker leads: its link takes the clients that nodes pass on."""
        amqp_out, amqp_in = trio.open_memory_channel[Arrival](math.inf)
        runtime, served = Runtime(self.broker), functools.partial(serve, stopping=trio.Event(), arrivals=amqp_in)
        await nursery.start(served, runtime, [], lambda: self.options)
        node: Any = SimpleNamespace(
            gate=SimpleNamespace(frontends=Frontends(amqp_out, amqp_out)),
            _node_options=SimpleNamespace(
                credentials=self.credentials, tls=LinkTls(), name="a", nodes=dict.fromkeys("abc")
            ),
        )
        node._tls_of = functools.partial(ServedNode._tls_of, node)
        listener = LinkListener(self.credentials, "a", functools.partial(ServedNode._serve_client, node), LINK)
        listener.links = FollowerLinks(LED, lambda event: None, position=(1, 0), end=1)
        listening = socket.create_server(("127.0.0.1", 0))
        self.leader = LinkAddress(*listening.getsockname()[:2])
        await nursery.start(listener.serve, [listening])

    async def pass_on(self, client: GateClient) -> Passed:
        """As a node that follows does."""
        node: Any = SimpleNamespace(
            _passed_to=None, gate=SimpleNamespace(pass_on=lambda found: setattr(self, "_pass_on", found)),
            _passer=self.passer,
        )  # fmt: skip
        ServedNode.pass_clients_on(node, SimpleNamespace(term=1, address=str(self.leader)))  # type: ignore[arg-type]
        return await self._pass_on(client)  # type: ignore[attr-defined, no-any-return]


def run(world: World, script: Callable[[World, trio.Nursery], Awaitable[None]]) -> None:
    """Run a script beside the gate."""

    async def main() -> None:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                await nursery.start(world.gate.run)
                await script(world, nursery)
                nursery.cancel_scope.cancel()
        world.listeners.close()

    trio.run(main)


async def received(stream: trio.abc.ReceiveStream, size: int = 1 << 20) -> bytes:
    """So many octets, or all up to the end."""
    found = b""
    with suppress(trio.BrokenResourceError):
        while len(found) < size and (data := await stream.receive_some(size - len(found))):
            found += data
    return found


async def method(stream: trio.abc.ReceiveStream) -> Any:
    """The next method."""
    head = await received(stream, 7)
    return frame.unmarshal(head + await received(stream, int.from_bytes(head[3:7]) + 1))[2]


async def logged_in(stream: trio.abc.Stream) -> Any:
    """What is answered to EXTERNAL."""
    await stream.send_all(HEADER)
    start = await method(stream)
    assert isinstance(start, commands.Connection.Start), start
    await stream.send_all(START_OK)
    return await method(stream)


# -- what the node answers itself --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "of, prefix, request_line",
    [
        ("amqp", "", b"GET /cluster HTTP/1.1\r\n\r\n"),
        ("metrics", "", b"GET / HTTP/1.1\r\n\r\n"),
        ("console", "", b"GET /health/ready HTTP/1.1\r\n\r\n"),
        ("console", "", b"GET /metrics HTTP/1.1\r\n\r\n"),
        ("console", "", b"GET /api/health/checks/alarms HTTP/1.1\r\n\r\n"),
        ("console", "/behind/a/proxy/whose/path/is/long", b"HEAD /behind/a/proxy/whose/path/is/long/api/health/checks"),
        ("console", "/x", b"GET /health/live HTTP/1.1\r\n\r\n"),
    ],
)
def test_what_asks_for_this_node_is_answered_over_tls(
    tmp_path: Path, of: str, prefix: str, request_line: bytes
) -> None:
    """As without TLS, also while no node leads, and where the API has a prefix."""

    async def script(world: World, nursery: trio.Nursery) -> None:
        client = await world.client(getattr(world.listeners, of))
        await client.send_all(request_line)
        assert await received(client, 12) == request_line[:12]
        assert len(world.answered) == 1 and world.answered[0].tls is not None

    run(World(tmp_path, prefix=prefix), script)


@pytest.mark.parametrize("path", ["/api/health/checks/alarms", "/xapi/health/checks/alarms", "/x/api/overview"])
def test_paths_without_the_prefix_are_the_brokers(tmp_path: Path, path: str) -> None:
    """Which answers 404, as without a cluster; here no node leads."""

    async def script(world: World, nursery: trio.Nursery) -> None:
        client = await world.client(world.listeners.console)
        await client.send_all(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        assert (await received(client)).startswith(b"HTTP/1.1 503 ") and not world.answered

    run(World(tmp_path, prefix="/x"), script)


def test_a_client_that_was_held_in_vain_is_told_so_over_tls(tmp_path: Path) -> None:
    """With AMQP's 320."""

    async def script(world: World, nursery: trio.Nursery) -> None:
        client = await world.client()
        await client.send_all(HEADER)
        assert b"CONNECTION_FORCED - no node of this cluster leads" in await received(client)

    run(World(tmp_path), script)


@pytest.mark.parametrize(
    "octets", [HEADER, b"\x16\x03\x01\x40\0\x01\0\x3f\xfc\x03\x03", b"GET / HTTP/1.1\r\n\r\n", b""]
)
def test_what_is_no_tls_is_closed(tmp_path: Path, octets: bytes) -> None:
    """Also a hello that announces more than it may, and a client that closes at once; the next one is served."""

    async def script(world: World, nursery: trio.Nursery) -> None:
        for of in (world.listeners.amqp, world.listeners.console, world.listeners.metrics):
            async with await trio.open_tcp_stream(*next(iter(of)).getsockname()[:2]) as stream:
                await stream.send_all(octets)
                await stream.send_eof()
                assert HEADER not in await received(stream)
        client = await world.client()
        await client.send_all(b"GET /cluster HTTP/1.1\r\n\r\n")
        assert await received(client, 12) == b"GET /cluster"

    run(World(tmp_path), script)


def test_a_flood_of_clients_that_never_shake_hands_pushes_itself_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who came last is served."""
    monkeypatch.setattr(gate, "HANDSHAKES_MAX", 8)
    monkeypatch.setattr(gate_client, "HANDSHAKE_S", 1000)

    async def script(world: World, nursery: trio.Nursery) -> None:
        place = next(iter(world.listeners.amqp)).getsockname()[:2]
        flood = [await trio.open_tcp_stream(*place) for _ in range(30)]
        assert await received(flood[0]) == b""
        client = await world.client()
        await client.send_all(b"GET /cluster HTTP/1.1\r\n\r\n")
        assert await received(client, 12) == b"GET /cluster"
        for one in flood:
            await one.aclose()

    run(World(tmp_path), script)


# -- what the leader is told -------------------------------------------------------------------------------------------


def test_external_through_a_follower(tmp_path: Path) -> None:
    """The leader logs in the user whom the certificate names, and shows the TLS and the certificate of the client."""

    async def script(world: World, nursery: trio.Nursery) -> None:
        await world.lead(nursery)
        world.gate.pass_on(world.pass_on)
        client = await world.client(name="worker")
        assert isinstance(await logged_in(client), commands.Connection.Tune)
        await client.send_all(frame.marshal(commands.Connection.TuneOk(10, 131072, 0), 0))
        await client.send_all(frame.marshal(commands.Connection.Open("/"), 0))
        assert isinstance(await method(client), commands.Connection.OpenOk)
        (one,) = (client for client in world.broker.connections if client.connection_info.tls_protocol)
        view = connection_view(one, world.broker, "rabbit@a")
        assert (view["user"], view["node"], view["auth_mechanism"]) == ("worker", "rabbit@b", "EXTERNAL")
        assert view["ssl"] and view["ssl_protocol"] == "TLSv1.3" and view["ssl_cipher"].startswith("TLS_")
        assert "CN=worker" in view["peer_cert_subject"] and "trustme" in view["peer_cert_issuer"]
        assert view["peer_cert_validity"].count("Z") == 2
        assert view["peer_port"] == client.transport_stream.socket.getsockname()[1]

    run(World(tmp_path), script)


@pytest.mark.parametrize(
    "name, others", [(None, 0), ("nobody", 0), ("worker", 400)], ids=["no certificate", "no user", "huge"]
)
def test_certificates_that_name_no_user(tmp_path: Path, name: str | None, others: int) -> None:
    """403, as at the leader; where the names do not fit into a header none is passed on, instead of some."""

    async def script(world: World, nursery: trio.Nursery) -> None:
        await world.lead(nursery)
        world.gate.pass_on(world.pass_on)
        answer = await logged_in(await world.client(name=name, others=others))
        assert isinstance(answer, commands.Connection.Close) and answer.reply_code == 403

    run(World(tmp_path), script)


def test_where_links_prove_nothing_certificates_are_not_believed(tmp_path: Path) -> None:
    """Any process of the machine can connect there, and claim any name."""

    async def script(world: World, nursery: trio.Nursery) -> None:
        await world.lead(nursery)
        world.gate.pass_on(world.pass_on)
        answer = await logged_in(await world.client(name="worker"))
        assert isinstance(answer, commands.Connection.Close) and answer.reply_code == 403

    run(World(tmp_path, credentials=OPEN_CIRCLE), script)


@pytest.mark.parametrize("is_listed", [False, True])
def test_a_client_that_sends_the_fields_itself_is_not_believed(tmp_path: Path, is_listed: bool) -> None:
    """Before TLS: no TLS, or, of a proxy, skipped. Behind TLS: no AMQP."""
    claimed = client_header(("10.1.2.3", 7), ("10.0.0.1", 5671), ClientTls("TLSv1.3", "x", {"subject": WORKER}))

    async def script(world: World, nursery: trio.Nursery) -> None:
        await world.lead(nursery)
        world.gate.pass_on(world.pass_on)
        client = await world.client(first=claimed)
        if is_listed:
            answer = await logged_in(client)
            assert isinstance(answer, commands.Connection.Close) and answer.reply_code == 403
        else:
            with pytest.raises(trio.BrokenResourceError):
                await client.send_all(HEADER)
        client = await world.client(first=claimed if is_listed else b"")
        await client.send_all(claimed + HEADER)
        assert await received(client) in (HEADER, b"")

    run(World(tmp_path, proxies=("127.0.0.0/8",) if is_listed else ()), script)


WORKER = ((("commonName", "worker"),),)


def test_a_proxy_names_the_client_before_its_tls(tmp_path: Path) -> None:
    """The leader has the address that the proxy named, and expects no second header."""

    async def script(world: World, nursery: trio.Nursery) -> None:
        await world.lead(nursery)
        world.gate.pass_on(world.pass_on)
        client = await world.client(name="guest", first=client_header(("10.1.2.3", 7), ("10.0.0.1", 5671)))
        answer = await logged_in(client)
        assert isinstance(answer, commands.Connection.Close) and answer.reply_code == 403  # guest is of loopback
        local = await world.client(name="guest", first=client_header(("127.0.0.1", 7), ("127.0.0.1", 5671)))
        assert isinstance(await logged_in(local), commands.Connection.Tune)
        unnamed = await world.client(name="guest", first=client_header(None, None))
        assert isinstance(await logged_in(unnamed), commands.Connection.Close)

    run(World(tmp_path, proxies=("0.0.0.0/0",)), script)


def test_a_held_client_is_served_by_this_node_when_it_leads(tmp_path: Path) -> None:
    """Its handshake is over, and its first octets are read: both go to the frontend."""

    async def script(world: World, nursery: trio.Nursery) -> None:
        world.patience_s = 100
        client = await world.client(name="worker")
        await client.send_all(HEADER)
        await trio.testing.wait_all_tasks_blocked(0.01)
        amqp_out, amqp_in = trio.open_memory_channel[Arrival](math.inf)
        served = functools.partial(serve, stopping=trio.Event(), arrivals=amqp_in)
        await nursery.start(served, Runtime(world.broker), [], lambda: world.options)
        world.gate.hand_over(Frontends(amqp_out, amqp_out))
        assert isinstance(await method(client), commands.Connection.Start)
        await client.send_all(START_OK)
        assert isinstance(await method(client), commands.Connection.Tune)

    run(World(tmp_path), script)


def test_a_held_client_of_the_console_gets_a_socket_without_tls(tmp_path: Path) -> None:
    """With all that it sends, in both directions, up to its end."""

    async def script(world: World, nursery: trio.Nursery) -> None:
        world.patience_s = 100
        console_out, console_in = trio.open_memory_channel[Arrival](math.inf)
        client = await world.client(world.listeners.console)
        await client.send_all(b"GET /api/overview HTTP/1.1\r\n\r\n")
        await trio.testing.wait_all_tasks_blocked(0.01)
        world.gate.hand_over(Frontends(console_out, console_out))
        arrival = await console_in.receive()
        assert arrival.tls is not None and not arrival.is_tls
        assert arrival.address == client.transport_stream.socket.getsockname()
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(arrival.socket))
        assert await received(stream, 30) == b"GET /api/overview HTTP/1.1\r\n\r\n"
        async with trio.open_nursery() as sending:
            sending.start_soon(stream.send_all, b"x" * 3_000_000)
            assert await received(client, 3_000_000) == b"x" * 3_000_000
        await stream.aclose()
        assert await received(client) == b""

    run(World(tmp_path), script)


def test_a_client_whose_leader_refuses_it_is_passed_on_later(tmp_path: Path) -> None:
    """What was read of it is not lost."""

    async def script(world: World, nursery: trio.Nursery) -> None:
        world.patience_s = 100
        attempts: list[Passed] = []

        async def pass_on(client: GateClient) -> Passed:
            if not attempts:
                attempts.append(Passed.REFUSED)
                return Passed.REFUSED
            return await world.pass_on(client)

        await world.lead(nursery)
        world.gate.pass_on(pass_on)
        assert isinstance(await logged_in(await world.client(name="worker")), commands.Connection.Tune)

    run(World(tmp_path), script)
