"""TLS as a transport, without sockets: cuts, full buffers, goodbyes, and peers that talk much and say nothing."""

import errno
import ssl
from collections import deque
from pathlib import Path

import pytest
from certificates import Authority
from hypothesis import example, given
from hypothesis import strategies as st
from key_updates import KeyUpdater

from leveret.amqp_frontend.edge.tls import (
    ANSWERS_MAX,
    BATCH,
    DATALESS_MAX,
    HANDSHAKE_MAX,
    RECORD,
    TlsFault,
    TlsTransport,
)


class Wire:
    """A socket in memory. `room`: how much each send takes, in turns, 0: nothing; None: all."""

    def __init__(self) -> None:
        self.arrived: deque[bytes] = deque()
        self.sent = b""
        self.room: deque[int] | None = None

    def recv(self, size: int) -> bytes:
        """What arrived, one piece a call."""
        if not self.arrived:
            raise BlockingIOError
        data = self.arrived.popleft()
        assert len(data) <= size
        return data

    def send(self, data: bytes | memoryview) -> int:
        """As much as there is room for."""
        size = len(data) if self.room is None else min(self.room.popleft() if self.room else 0, len(data))
        if not size:
            raise BlockingIOError
        self.sent += bytes(data[:size])
        return size


class Tls:
    """A transport and a client that is connected to it in memory. `asks`: it asks for the client's certificate."""

    def __init__(self, authority: Authority, client: ssl.SSLContext | None = None, *, asks: bool = False) -> None:
        certificate = authority.directory / "server.pem"
        if not certificate.exists():
            authority.issue()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))
        context.num_tickets = 0
        if asks:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(authority.file)
        self.wire = Wire()
        self.goodbyes = 0
        self.transport = TlsTransport(self.wire, context, self._on_goodbye)
        self.to_client, self.to_us = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = (client or authority.trusting()).wrap_bio(self.to_client, self.to_us, server_hostname="localhost")

    def _on_goodbye(self) -> None:
        self.goodbyes += 1

    def connect(self, cut: int = 1 << 20) -> "Tls":
        """The whole handshake, cut into pieces of that size."""
        is_over = False
        while not is_over:
            self._step()
            data = self.to_us.read()
            for start in range(0, len(data), cut):
                assert not is_over
                is_over = self.transport.handshake(data[start : start + cut])
                assert self.transport.flush()
            self._hear()
        self._step()
        return self

    def _step(self) -> None:
        try:
            self.client.do_handshake()
        except ssl.SSLWantReadError:
            pass

    def _hear(self) -> None:
        self.to_client.write(self.wire.sent)
        self.wire.sent = b""

    def heard(self) -> bytes:
        """What the client can read."""
        self._hear()
        data = b""
        try:
            while part := self.client.read(1 << 20):
                data += part
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        return data

    def say(self, data: bytes) -> None:
        """The client sends; it arrives in one piece."""
        self.client.write(data)
        self.arrive(self.to_us.read())

    def arrive(self, data: bytes, cut: int = 128 * 1024) -> None:
        """Octets on the wire."""
        self.wire.arrived.extend(data[start : start + cut] for start in range(0, len(data), cut))

    def received(self) -> bytes:
        """Everything that is there now."""
        data = b""
        while self.wire.arrived:
            try:
                data += self.transport.recv(128 * 1024)
            except BlockingIOError:  # half a record
                pass
        return data


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """One for all: making keys takes long."""
    return Authority(tmp_path_factory.mktemp("certificates"))


VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("cut", [1, 7, 1000, 1 << 20])
def test_a_handshake_however_it_is_cut(authority: Authority, version: ssl.TLSVersion, cut: int) -> None:
    """Octet by octet as well; then data both ways."""
    tls = Tls(authority, authority.trusting(newest=version)).connect(cut)
    tls.say(b"AMQP")
    assert tls.transport.recv(100) == b"AMQP"
    assert tls.transport.send(b"\0\0\x09\x01") == 4
    assert tls.heard() == b"\0\0\x09\x01"


@pytest.mark.parametrize("says_goodbye", [False, True])
def test_data_that_come_with_the_end_of_the_handshake(authority: Authority, says_goodbye: bool) -> None:
    """They are decrypted already: nothing more will arrive for them, nor for a goodbye behind them."""
    tls = Tls(authority)
    tls._step()
    assert not tls.transport.handshake(tls.to_us.read())
    assert tls.transport.flush()
    tls._hear()
    tls._step()
    tls.client.write(b"AMQP\0\0\x09\x01")
    if says_goodbye:
        with pytest.raises(ssl.SSLWantReadError):
            tls.client.unwrap()
    assert tls.transport.handshake(tls.to_us.read())
    assert tls.transport.early_data() == b"AMQP\0\0\x09\x01"
    assert tls.goodbyes == says_goodbye


def test_records_that_come_in_two_halves_add_up_to_nothing(authority: Authority) -> None:
    """A connection may live for ever: only octets in a row without data count against it."""
    tls = Tls(authority).connect()
    for _ in range(2 * DATALESS_MAX // 10_000):
        tls.client.write(bytes(10_000))
        tls.arrive(tls.to_us.read(), cut=9_000)
        with pytest.raises(BlockingIOError):
            tls.transport.recv(1 << 20)
        assert tls.transport.recv(1 << 20) == bytes(10_000)


@given(
    sizes=st.lists(st.integers(1, 3 * BATCH), min_size=1, max_size=4),
    room=st.lists(st.integers(0, 2 * RECORD), max_size=40),
)
@example(sizes=[3 * BATCH], room=[2 * RECORD] * 6 + [0])
def test_what_the_kernel_does_not_take_is_kept(authority: Authority, sizes: list[int], room: list[int]) -> None:
    """Every octet arrives, once and in order, whatever the kernel takes at a time; nothing is owned up to too early."""
    tls = Tls(authority).connect()
    tls.wire.room = deque(room)
    expected = b""
    for index, size in enumerate(sizes):
        data = bytes([index]) * size
        expected += data
        while data:
            try:
                sent = tls.transport.send(data)
            except BlockingIOError:
                sent = 0
            assert 0 <= sent <= len(data)
            data = data[sent:]
            if not tls.wire.room:
                tls.wire.room = None
    assert tls.heard() == expected


@given(sizes=st.lists(st.integers(1, 40_000), max_size=6), cut=st.integers(1, 60_000))
def test_what_arrives_however_it_is_cut(authority: Authority, sizes: list[int], cut: int) -> None:
    """Records and reads have nothing to do with each other."""
    tls = Tls(authority).connect()
    expected = b"".join(bytes([index]) * size for index, size in enumerate(sizes))
    for index, size in enumerate(sizes):
        tls.client.write(bytes([index]) * size)
    tls.arrive(tls.to_us.read(), cut)
    assert tls.received() == expected


def test_goodbyes_go_both_ways(authority: Authority) -> None:
    """close_notify ends the data; ours is the answer, and the client takes it for a clean end."""
    tls = Tls(authority).connect()
    with pytest.raises(ssl.SSLWantReadError):
        tls.client.unwrap()
    tls.arrive(tls.to_us.read())
    assert tls.transport.recv(100) == b""
    assert tls.transport.recv(100) == b""  # without looking at the wire
    tls.transport.answer_close()
    tls._hear()
    tls.client.unwrap()
    assert tls.goodbyes == 0


def test_data_and_goodbye_in_one_read(authority: Authority) -> None:
    """The data first; whoever owns the wire is asked to come again, for nothing more may ever arrive."""
    tls = Tls(authority).connect()
    tls.client.write(b"last words")
    with pytest.raises(ssl.SSLWantReadError):
        tls.client.unwrap()
    tls.arrive(tls.to_us.read() + b"what follows is not looked at")
    assert tls.transport.recv(100) == b"last words"
    assert tls.goodbyes == 1
    assert tls.transport.recv(100) == b""


def test_data_before_a_goodbye_are_there_although_the_peer_resets(authority: Authority) -> None:
    """The socket cannot be shut down any more: what had come before is handled."""

    def not_connected() -> None:
        raise OSError(errno.ENOTCONN, "not connected")

    tls = Tls(authority).connect()
    tls.transport._on_goodbye = not_connected
    tls.client.write(b"last words")
    with pytest.raises(ssl.SSLWantReadError):
        tls.client.unwrap()
    tls.arrive(tls.to_us.read())
    assert tls.transport.recv(100_000) == b"last words"
    assert tls.transport.recv(100) == b""


def test_the_end_without_goodbye(authority: Authority) -> None:
    """Is the end: AMQP has goodbyes of its own, so cutting TLS short hides nothing."""
    tls = Tls(authority).connect()
    tls.wire.arrived.append(b"")
    assert tls.transport.recv(100) == b""


@pytest.mark.parametrize(
    "octets, problem",
    [
        (b"AMQP\0\0\x09\x01", "AMQP without TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP without TLS"),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", "HTTP without TLS|does not speak TLS"),
        (bytes(100), "does not speak TLS"),
        (b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03", "handshake: "),
    ],
)
def test_what_is_no_handshake(authority: Authority, octets: bytes, problem: str) -> None:
    """Said in words, whole or octet by octet; a peer that speaks TLS gets an alert."""
    tls = Tls(authority)
    with pytest.raises(TlsFault, match=problem):
        tls.transport.handshake(octets)
    assert tls.wire.sent[:1] == b"\x15" or octets[0] != 22
    transport = Tls(authority).transport
    with pytest.raises(TlsFault, match=problem):
        for octet in octets:
            assert not transport.handshake(bytes([octet]))


@pytest.mark.parametrize("cut", [1, 5, 100])
def test_a_hello_that_says_it_is_huge(authority: Authority, cut: int) -> None:
    """OpenSSL would reserve 128 KiB for these 69 octets."""
    transport = Tls(authority).transport
    hello = b"\x16\x03\x01\x00\x40\x01\x01\xff\xff" + bytes(60)
    with pytest.raises(TlsFault, match="a hello of 131071 octets"):
        for start in range(0, len(hello), cut):
            assert not transport.handshake(hello[start : start + cut])


def test_a_handshake_that_never_ends(authority: Authority) -> None:
    """Records of two octets each: 64 KiB are more than anybody needs for 16 KiB of hello, or all the rest."""
    transport = Tls(authority).transport
    hello = b"\x01\x00\x40\x00\x03\x03" + bytes(0x4000)
    records = b"".join(b"\x16\x03\x01\x00\x02" + hello[start : start + 2] for start in range(0, len(hello), 2))
    assert len(records) < HANDSHAKE_MAX
    assert not transport.handshake(records[:50_000])
    tls = Tls(authority)
    tls._step()
    assert not tls.transport.handshake(tls.to_us.read())
    with pytest.raises(TlsFault, match=f"not over after {HANDSHAKE_MAX}|^handshake: "):
        for _ in range(HANDSHAKE_MAX // 6 + 1):
            assert not tls.transport.handshake(b"\x14\x03\x03\x00\x01\x01")  # change_cipher_spec, again and again


@pytest.mark.parametrize("copies, is_too_much", [(20, False), (150, True)])
def test_a_chain_of_certificates_that_is_long(authority: Authority, copies: int, is_too_much: bool) -> None:
    """OpenSSL takes 100 KiB of a client that is not known yet; 64 KiB are more than any chain needs."""
    certificate = authority.issue("client", "a.example")
    with certificate.open("a") as file:
        file.write(authority.file.read_text() * copies)
    tls = Tls(authority, authority.trusting(certificate), asks=True)
    if not is_too_much:
        assert tls.connect(16 * 1024).transport.certificate
        return
    with pytest.raises(TlsFault, match=f"not over after {HANDSHAKE_MAX}"):
        tls.connect(16 * 1024)


def test_damaged_records_are_a_fault(authority: Authority) -> None:
    """And the peer gets an alert."""
    tls = Tls(authority).connect()
    tls.client.write(b"data")
    data = bytearray(tls.to_us.read())
    data[-1] ^= 1
    tls.arrive(bytes(data))
    with pytest.raises(TlsFault, match="bad record mac"):
        tls.transport.recv(100)
    assert tls.wire.sent


def updater(authority: Authority, tmp_path: Path) -> tuple[Tls, KeyUpdater]:
    """A connection whose client is a flood of key updates."""
    context = authority.trusting()
    context.keylog_filename = str(tmp_path / "keys")
    tls = Tls(authority, context).connect()
    assert tls.client.cipher() == ("TLS_AES_256_GCM_SHA384", "TLSv1.3", 256)
    return tls, KeyUpdater(tmp_path / "keys")


def test_key_updates_are_answered(authority: Authority, tmp_path: Path) -> None:
    """One now and then is what an honest peer does."""
    tls, peer = updater(authority, tmp_path)
    for number in range(100):
        tls.arrive(peer.key_update(asks_for_answer=True) + peer.data(b"%d" % number))
        assert tls.transport.recv(1000) == b"%d" % number
    tls.transport.send(b"still here")
    assert tls.heard() == b"still here"


def test_a_flood_of_key_updates_without_data(authority: Authority, tmp_path: Path) -> None:
    """Ended after 64 KiB: each costs us 8 us (CVE-2026-39304 was this in ActiveMQ)."""
    tls, peer = updater(authority, tmp_path)
    flood = b"".join(peer.key_update(asks_for_answer=False) for _ in range(6000))
    assert len(flood) > 2 * DATALESS_MAX
    tls.arrive(flood, 16 * 1024)
    with pytest.raises(TlsFault, match=f"more than {DATALESS_MAX} octets of TLS without data"):
        tls.received()
    assert sum(map(len, tls.wire.arrived)) > DATALESS_MAX / 2


def test_a_flood_of_key_updates_between_data(authority: Authority, tmp_path: Path) -> None:
    """What has to be answered is counted over the whole life; and answers that are not read do not pile up."""
    tls, peer = updater(authority, tmp_path)
    tls.wire.room = deque()  # the peer does not read either
    with pytest.raises(TlsFault, match=f"more than {ANSWERS_MAX} octets of answers"):
        for _ in range(5000):
            tls.arrive(peer.key_update(asks_for_answer=True) + peer.data(b"x"))
            assert tls.transport.recv(1000) == b"x"
    assert len(tls.transport._unsent) <= ANSWERS_MAX
