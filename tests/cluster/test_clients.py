"""Clients of a follower that are passed on: their octets, their address, how they end, and who does not serve them."""

import errno
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
import trustme
from in_trio import in_trio

from leveret.amqp_frontend.edge.certificates import user_name
from leveret.amqp_frontend.edge.proxy_protocol import ProxyHeader, read_header
from leveret.cluster.link.challenge import Credentials
from leveret.cluster.link.client_header import ClientTls, client_header, client_tls
from leveret.cluster.link.clients import ClientPasser, Passed, relay
from leveret.cluster.link.follower_links import FollowerLinks, LeaderJournal
from leveret.cluster.link.frames import Accept, Client, Decoder, encode
from leveret.cluster.link.introduction import accept, connect
from leveret.cluster.link.listener import LinkListener
from leveret.cluster.link.open_link import FollowingNode, OpenLink
from leveret.cluster.link.options import Address, LinkOptions, LinkTls
from leveret.cluster.link.relay import GRACE_S, as_socket
from leveret.cluster.link.stream import LinkFault, LinkStream
from leveret.cluster.resolver import Resolver
from leveret.journal import TermTable

CIRCLE = Credentials("orders", 0, b"a secret of the cluster")
OPTIONS = LinkOptions(introduction_s=5)
HEADER = client_header(("192.0.2.1", 56324), ("198.51.100.2", 5672))
LED = LeaderJournal("/nowhere", b"J" * 16, TermTable(b"L" * 16, ((1, 1),)))

# -- headers -----------------------------------------------------------------------------------------------------------

#: As `ssl` decodes a certificate.
WORKER = {
    "subject": ((("countryName", "DE"),), (("commonName", "jürgen"), ("userId", "7"))),
    "issuer": ((("commonName", "us"),),),
    "subjectAltName": (("DNS", "worker.example"), ("email", "w@example")),
    "notBefore": "Nov 28 00:00:00 2026 GMT",
    "notAfter": "Nov 28 00:00:00 2027 GMT",
}
ALL_PARTS, OF_USERS = set(WORKER), {"subject", "subjectAltName"}
WHOLE = client_header(None, None, ClientTls("v", "c", WORKER))

HEADERS = [
    (("192.0.2.1", 1), ("198.51.100.2", 5672), ("192.0.2.1", 1), ("198.51.100.2", 5672)),
    (("127.0.0.1", 65535), ("127.0.0.1", 5672), ("127.0.0.1", 65535), ("127.0.0.1", 5672)),
    (("2001:db8::1", 7), ("::1", 5672), ("2001:db8::1", 7), ("::1", 5672)),
    (("fe80::1%eth0", 7), ("fe80::2%eth0", 5672), ("fe80::1", 7), ("fe80::2", 5672)),
    (("192.0.2.1", 7), ("::1", 5672), ("::ffff:c000:201", 7), ("::1", 5672)),
    (("::ffff:127.0.0.1", 7), ("::ffff:127.0.0.1", 5672), ("127.0.0.1", 7), ("127.0.0.1", 5672)),
    (("192.0.2.1", 7), None, ("192.0.2.1", 7), ("0.0.0.0", 0)),
    (("2001:db8::1", 7), None, ("2001:db8::1", 7), ("::", 0)),
    (None, ("192.0.2.1", 7), None, None),
    (None, None, None, None),
]


@pytest.mark.parametrize("source, destination, read_source, read_destination", HEADERS)
@pytest.mark.parametrize(
    "tls", [None, ClientTls("TLSv1.3", "TLS_AES_256_GCM_SHA384"), ClientTls("TLSv1.2", "x", WORKER)]
)
def test_the_frontend_reads_what_the_follower_writes(
    source: Any, destination: Any, read_source: Any, read_destination: Any, tls: ClientTls | None
) -> None:
    """Addresses and TLS survive; what the frontend does not know, it skips."""
    header = client_header(source, destination, tls)
    found = read_header(header + b"AMQP")
    assert isinstance(found, ProxyHeader)
    assert (found.size, found.source, found.destination) == (len(header), read_source, read_destination)
    assert not found.is_local
    assert client_tls(header) == tls


def test_a_long_name_of_a_cipher_is_cut() -> None:
    """A header with it would be refused, and the client with it."""
    tls = client_tls(client_header(None, None, ClientTls("v" * 5_000, "c" * 5_000)))
    assert tls is not None and (len(tls.version), len(tls.cipher)) == (255, 255)


def test_half_a_header_names_no_user() -> None:
    """Cut at every octet: nothing is read behind its end, and nothing of a name that is cut."""
    for size in range(len(WHOLE)):
        found = client_tls(WHOLE[:size])
        assert found is None or found.certificate == {}, size


@pytest.mark.parametrize("count, keeps", [(10, ALL_PARTS), (53, OF_USERS), (80, set()), (3_000, set())])
def test_no_header_is_longer_than_it_may_be(count: int, keeps: set[str]) -> None:
    """A certificate has as many names as its owner got signed: what names no user goes first, then all names."""
    names = tuple(("DNS", f"worker-{number:04}.example.org") for number in range(count))
    header = client_header(("::1", 7), ("::1", 5671), ClientTls("v", "c", {**WORKER, "subjectAltName": names}))
    assert isinstance(read_header(header), ProxyHeader)
    decoder = Decoder(Client)
    decoder.receive(encode(said := Client(1, "orders", 0, "n2", "amqp", header)))
    assert list(decoder.messages()) == [said]
    found = client_tls(header)
    assert found is not None and found.certificate is not None
    assert {part for part, value in found.certificate.items() if value} == keeps
    assert not keeps or found.certificate["subjectAltName"] == names


def test_names_that_are_no_text_are_left_out() -> None:
    """Names of a directory and the like: `ssl` decodes them to tables."""
    names = (("DNS", "a"), ("DirName", ((("commonName", "x"),),)), ("DNS", "b"))
    found = client_tls(client_header(None, None, ClientTls("v", "c", {**WORKER, "subjectAltName": names})))
    assert found is not None and found.certificate is not None
    assert found.certificate["subjectAltName"] == (("DNS", "a"), ("DNS", "b"))


@pytest.mark.parametrize(
    "said",
    [
        b"", b"{", b"[]", b"7", b'"x"', b"[" * 4000, b'{"subject":7}', b'{"subject":[7]}', b'{"subject":[[7]]}',
        b'{"subject":[[["commonName"]]]}', b'{"subject":[[["commonName",7]]]}', b'{"subjectAltName":{"DNS":"x"}}',
        b'{"subject":[[["commonName","x"]]],"subjectAltName":[["DNS",null]]}', b"\xff\xfe",
    ],
)  # fmt: skip
def test_a_certificate_that_makes_no_sense_names_no_user(said: bytes) -> None:
    """Of another release, or of whoever has the secret of the cluster."""
    tls = b"\x20\0\x05\x07\0\0\0\0" + b"\xe0" + len(said).to_bytes(2) + said
    found = client_tls(b"\r\n\r\n\0\r\nQUIT\n\x21\0" + len(tls).to_bytes(2) + tls)
    assert found == ClientTls("", "", {})
    assert user_name({}, "common-name") is user_name({}, "distinguished-name") is None


def test_the_version_of_local_headers_has_no_tls() -> None:
    """By which a proxy speaks for itself."""
    assert client_tls(WHOLE[:12] + b"\x20" + WHOLE[13:]) is None and client_tls(b"PROXY UNKNOWN\r\n") is None


# -- passing on --------------------------------------------------------------------------------------------------------


class Leader:
    """A leading node whose frontend echoes, in capitals, and closes after the client's end."""

    def __init__(self, tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None) -> None:
        self.said: list[tuple[bytes, bytes, str, str]] = []
        self.client_context = tls[1] if tls is not None else None
        self.sockets: list[trio.SocketStream] = []
        self.is_echoing = True
        self.is_serving = True
        self.listener = LinkListener(
            *(CIRCLE, "n1", self._serve, OPTIONS),
            tls=LinkTls(tls[0]) if tls is not None else None,
            takes_clients=lambda: self.is_serving,
        )
        self.listener.links = FollowerLinks(LED, lambda event: None, position=(1, 0), end=1)
        self.address = Address("127.0.0.1", 0)
        self._nursery: trio.Nursery

    def _serve(self, sock: socket.socket, rest: bytes, header: bytes, service: str, node: str) -> None:
        assert sock.gettimeout() == 0
        self.said.append((rest, header, service, node))
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
        self.sockets.append(stream)
        if self.is_echoing:
            self._nursery.start_soon(self._echo, stream)

    async def _echo(self, stream: trio.SocketStream) -> None:
        try:
            async with stream:
                while data := await stream.receive_some(100_000):
                    await stream.send_all(bytes(data).upper())
        except trio.BrokenResourceError:
            pass

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Leader"]:
        listening = socket.create_server(("127.0.0.1", 0))
        self.address = Address(*listening.getsockname()[:2])
        async with trio.open_nursery() as self._nursery:
            await self._nursery.start(self.listener.serve, [listening])
            yield self
            for stream in self.sockets:
                await trio.aclose_forcefully(stream)
            self._nursery.cancel_scope.cancel()


class Passing:
    """A client, and the follower's end of its connection."""

    def __init__(self, leader: Leader) -> None:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        self.client = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        self.follower_end = theirs
        self.passer = ClientPasser(CIRCLE, "n2", OPTIONS, tls=LinkTls(client=leader.client_context))
        self.leader = leader
        self.result: Passed | None = None
        self.done = trio.Event()

    async def run(self, first: bytes = b"", service: str = "amqp") -> None:
        self.result = await self.passer.pass_on(self.follower_end, first, self.leader.address, HEADER, service)
        self.done.set()


@asynccontextmanager
async def passing(leader: Leader, first: bytes = b"", service: str = "amqp") -> AsyncIterator[Passing]:
    one = Passing(leader)
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.run, first, service)
            yield one
            nursery.cancel_scope.cancel()
    await trio.aclose_forcefully(one.client)


async def received(stream: trio.abc.ReceiveStream, size: int) -> bytes:
    found = b""
    while len(found) < size and (data := await stream.receive_some(size - len(found))):
        found += data
    return found


def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a node that accepts, and of one that connects; each shows a certificate of the cluster's own authority."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    client = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    server.verify_mode = ssl.CERT_REQUIRED
    for context in (server, client):
        certificate.configure_cert(context)
        authority.configure_trust(context)
    return server, client


@pytest.fixture(scope="module", params=[False, True], ids=["secret", "tls"])
def leader_contexts(request: pytest.FixtureRequest) -> tuple[ssl.SSLContext, ssl.SSLContext] | None:
    return contexts() if request.param else None


@in_trio
async def test_octets_pass_in_both_directions(leader_contexts: Any) -> None:
    """Those that were read before come first; the leader learns address, service and node."""
    async with Leader(leader_contexts).listening() as leader, passing(leader, b"already read, ", "http") as one:
        await one.client.send_all(b"and the rest")
        assert await received(one.client, 26) == b"ALREADY READ, AND THE REST"
        assert leader.said == [(b"", HEADER, "http", "n2")]
        large = bytes(range(256)) * 20_000
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.client.send_all, large)
            assert await received(one.client, len(large)) == large.upper()
        await one.client.aclose()
        await one.done.wait()
        assert one.result is Passed.SERVED
        assert one.follower_end.fileno() == -1


@in_trio
async def test_clients_of_links_that_are_trusted_no_more_are_closed(leader_contexts: Any) -> None:
    """A reload took the leader's authority away. A link that was just being opened is tried again."""
    async with Leader(leader_contexts).listening() as leader, passing(leader) as one:
        await one.client.send_all(b"a")
        assert await received(one.client, 1) == b"A"
        one.passer.end_all()
        assert await received(one.client, 1) == b""
        await one.done.wait()
        assert one.result is Passed.SERVED and not one.passer._passed


@in_trio
async def test_a_client_is_not_passed_on_over_a_link_with_older_certificates() -> None:
    """They were read again while the leader was asked."""
    async with Leader(contexts()).listening() as leader:
        one, leader.is_echoing = Passing(leader), False

        def renewed() -> bool:
            one.passer._tls.client = ssl.create_default_context()
            return True

        leader.listener._takes_clients = renewed
        with trio.fail_after(60):
            await one.run()
        assert one.result is Passed.REFUSED
        one.follower_end.close()
        await trio.aclose_forcefully(one.client)


@in_trio
async def test_half_a_close_is_passed_on() -> None:
    """A client that sends its end still gets all answers, then the leader's end."""
    async with Leader().listening() as leader, passing(leader) as one:
        async with trio.open_nursery() as nursery:

            async def send() -> None:
                await one.client.send_all(b"x" * 3_000_000)
                await one.client.send_eof()

            nursery.start_soon(send)
            assert await received(one.client, 10_000_000) == b"X" * 3_000_000
        await one.done.wait()
        assert one.result is Passed.SERVED


@in_trio
async def test_the_end_of_the_leader_s_side_ends_the_client(leader_contexts: Any) -> None:
    """Closed, or lost."""
    async with Leader(leader_contexts).listening() as leader:
        for abort in (False, True):
            leader.is_echoing = False
            async with passing(leader) as one:
                await one.client.send_all(b"x")
                while len(leader.sockets) < 1:
                    await trio.lowlevel.checkpoint()
                served = leader.sockets.pop()
                assert await received(served, 1) == b"x"
                if abort:
                    served.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                await served.aclose()
                try:
                    assert await one.client.receive_some(1) == b""
                except trio.BrokenResourceError as error:
                    assert isinstance(error.__cause__, OSError)
                    assert error.__cause__.errno == errno.ECONNRESET
                await one.client.aclose()
                await one.done.wait()


@in_trio
async def test_who_takes_nothing_is_read_no_further(leader_contexts: Any) -> None:
    """Backpressure reaches the client: no more is stored than sockets hold."""
    async with Leader(leader_contexts).listening() as leader:
        leader.is_echoing = False
        async with passing(leader) as one:
            sent = 0
            with trio.move_on_after(0.5):
                while sent < 200_000_000:
                    await one.client.send_all(bytes(100_000))
                    sent += 100_000
            assert sent < 50_000_000


@in_trio
async def test_a_client_that_is_not_taken_is_left_as_it_is() -> None:
    """The node leads no more, refuses, hangs, answers nonsense: nothing was read of the client, and nothing sent."""

    async def nonsense(stream: trio.SocketStream) -> None:
        link = await accept(stream, "127.0.0.1", CIRCLE, None)
        await link.receive(Client, timeout_s=60)
        await stream.send_all(b"HTTP/1.1 200 OK\r\n\r\n")

    async with Leader().listening() as leader:
        leader.listener.links = None
        async with passing(leader) as one:
            await one.client.send_all(b"AMQP")
            await one.done.wait()
            assert one.result is Passed.REFUSED
            assert one.follower_end.recv(100) == b"AMQP"
            leader.listener.links = FollowerLinks(LED, lambda event: None, position=(1, 0), end=1)
            leader.is_serving = False
            assert await one.passer.pass_on(one.follower_end, b"", leader.address, HEADER) is Passed.REFUSED
            leader.is_serving = True
            again = await one.passer.pass_on(one.follower_end, b"", Address("127.0.0.1", 1), HEADER)
            assert again is Passed.REFUSED
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.serve_listeners, nonsense, listeners)
                liar = Address(*listeners[0].socket.getsockname()[:2])
                assert await one.passer.pass_on(one.follower_end, b"", liar, HEADER) is Passed.REFUSED
                nursery.cancel_scope.cancel()
            with socket.create_server(("127.0.0.1", 0)) as silent:
                address = Address(*silent.getsockname()[:2])
                hasty = ClientPasser(CIRCLE, "n2", LinkOptions(introduction_s=0.1))
                assert await hasty.pass_on(one.follower_end, b"", address, HEADER) is Passed.REFUSED
            await one.client.send_all(b"later")
            assert one.follower_end.recv(100) == b"later"
            one.follower_end.close()


@in_trio
async def test_what_the_leader_says_at_once_gets_to_the_client() -> None:
    """Its octets may come together with its answer, as those of a broker that closes the connection at once."""

    async def lead(stream: trio.SocketStream) -> None:
        link = await accept(stream, "127.0.0.1", CIRCLE, None)
        await link.receive(Client, timeout_s=60)
        await stream.send_all(encode(Accept()) + b"at once")
        await stream.send_eof()

    one = Passing(Leader())
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, lead, listeners)
            one.leader.address = Address(*listeners[0].socket.getsockname()[:2])
            nursery.start_soon(one.run)
            assert await received(one.client, 100) == b"at once"
            nursery.cancel_scope.cancel()
    await trio.aclose_forcefully(one.client)


@in_trio
async def test_a_leader_that_does_not_answer_for_a_client_is_left() -> None:
    """It is stopped, or busy with taking over: the client is tried again, and told when patience is over."""

    async def hang(stream: trio.SocketStream) -> None:
        link = await accept(stream, "127.0.0.1", CIRCLE, None)
        await link.receive(Client, timeout_s=60)
        await trio.sleep_forever()

    one = Passing(Leader())
    one.passer = ClientPasser(CIRCLE, "n2", LinkOptions(introduction_s=0.3))
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, hang, listeners)
            one.leader.address = Address(*listeners[0].socket.getsockname()[:2])
            await one.run()
            nursery.cancel_scope.cancel()
    assert one.result is Passed.REFUSED
    one.follower_end.close()
    await trio.aclose_forcefully(one.client)


@in_trio
async def test_each_address_of_a_name_is_tried() -> None:
    """The first one may be refused, as where a node listens on IPv4 alone: that says nothing of its process."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in ("127.0.0.2", "127.0.0.1")]
        options = LinkOptions(introduction_s=0.1, resolver=Resolver(lambda *asked, **how: found))
        with pytest.raises(LinkFault, match="did not introduce itself"):
            await connect(Address("n1.example", port), CIRCLE, None, options)


@in_trio
async def test_a_stranger_cannot_pass_for_a_client() -> None:
    """Without the secret nobody gets to the frontend, or chooses an address to come from."""
    async with Leader().listening() as leader:
        stream = await trio.open_tcp_stream(leader.address.host, leader.address.port)
        await stream.send_all(encode(Client(1, "orders", 0, "n2", "amqp", HEADER)))
        found = await received(stream, 100_000)
        assert encode(Accept()) not in found
        await stream.aclose()
        assert leader.said == []


@in_trio
async def test_octets_before_the_answer_belong_to_the_client() -> None:
    """A follower that does not wait for Accept: nothing is lost."""
    async with Leader().listening() as leader:
        link = await connect(leader.address, CIRCLE, None, OPTIONS)
        await link.send_octets(encode(Client(1, "orders", 0, "n2", "amqp", HEADER)) + b"early")
        await link.receive(Accept, timeout_s=60)
        while not leader.said:
            await trio.lowlevel.checkpoint()
        assert leader.said[0][0] in (b"early", b"")
        await link.close()


@in_trio
async def test_a_node_of_another_authority_is_refused() -> None:
    """TLS: both sides check the other's certificate, before the secret."""
    server, client = contexts()
    other_server, other_client = contexts()
    for accepting, connecting in ((server, other_client), (server, None), (None, client)):
        leader = Leader()
        leader.listener = LinkListener(
            CIRCLE, "n1", leader._serve, LinkOptions(introduction_s=1), tls=LinkTls(accepting)
        )
        leader.client_context = connecting
        async with leader.listening(), passing(leader) as one:
            one.passer = ClientPasser(CIRCLE, "n2", LinkOptions(introduction_s=1), tls=LinkTls(client=connecting))
            await one.done.wait()
            assert one.result is Passed.REFUSED
            one.follower_end.close()


@in_trio
async def test_relaying_ends_with_a_broken_stream() -> None:
    """Memory streams, which can be broken at will."""
    one, far_one = trio.testing.memory_stream_pair()
    other, far_other = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(relay, one, other)
        await far_one.send_all(b"octets")
        assert await far_other.receive_some(100) == b"octets"
        far_other.send_stream.close()  # half
        assert await far_one.receive_some(100) == b""
        await far_one.send_all(b"more")
        assert await far_other.receive_some(100) == b"more"
        far_other.receive_stream.close()  # and it takes no more
        await far_one.send_all(b"lost")


class WithoutHalves(trio.abc.Stream):
    """A stream that can only end as a whole, as one with TLS."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream

    async def send_all(self, data: Any) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return bytes(await self._stream.receive_some(max_bytes))

    async def aclose(self) -> None:
        await self._stream.aclose()


def test_answers_come_for_a_while_where_half_an_end_cannot_be_passed_on() -> None:
    """A client has said all that it wants to say; the leader does not learn that, and is not waited for without end."""

    async def main() -> None:
        one, far_one = trio.testing.memory_stream_pair()
        other, far_other = trio.testing.memory_stream_pair()
        began_s = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(relay, one, WithoutHalves(other))
            await far_one.send_all(b"question")
            await far_one.send_eof()
            await later(GRACE_S / 2)
            assert await far_other.receive_some(100) == b"question"
            await far_other.send_all(b"answer")
            assert await far_one.receive_some(100) == b"answer"
        assert trio.current_time() - began_s == pytest.approx(GRACE_S, abs=0.1)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@in_trio
async def test_a_socket_in_the_place_of_a_stream_ends_when_the_stream_breaks() -> None:
    """A link with TLS that is reset is noticed at once, not after the time of silence."""
    stream, far = trio.testing.memory_stream_pair()
    ours, relaying = as_socket(stream)
    assert relaying is not None
    with ours:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(relaying)
            await far.send_all(b"octets")
            await trio.lowlevel.wait_readable(ours)
            assert ours.recv(100) == b"octets"
            stream.receive_stream.close()
        assert ours.recv(100) == b""


@in_trio
async def test_a_socket_in_the_place_of_a_stream_is_closed_though_nothing_was_relayed() -> None:
    """A link may fail before it is relayed: each attempt would leave a socket."""
    stream, _ = trio.testing.memory_stream_pair()
    ours, relaying = as_socket(stream)
    assert relaying is not None
    with ours:
        relaying.close()
        relaying.close()
        await trio.lowlevel.wait_readable(ours)
        assert ours.recv(100) == b""


@in_trio
async def test_a_link_with_tls_that_cannot_begin_closes_its_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal of the follower does not fit, or its disk fails: the link is tried again, for days."""
    theirs: list[socket.socket] = []
    pair = socket.socketpair

    def noted() -> tuple[socket.socket, socket.socket]:
        theirs.extend(made := pair())
        return made[0], made[1]

    monkeypatch.setattr(socket, "socketpair", noted)
    stream, _ = trio.testing.memory_stream_pair()
    follower = FollowingNode("data", None, lambda event: None, LinkOptions())
    OpenLink(follower, LinkStream(stream), 1, None).close()
    assert [one.fileno() for one in theirs] == [-1, -1]


async def later(seconds: float) -> None:
    """Virtual time goes by."""
    with trio.move_on_after(seconds):
        await trio.sleep_forever()
