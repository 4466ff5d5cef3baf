"""Peers that have not logged in: what they may take is small, and those who have are served meanwhile."""

import struct
from contextlib import suppress
from pathlib import Path

import pytest
from broker_process import leveret_serve
from certificates import Authority, configuration
from rawclient import PROTOCOL_HEADER, Client
from siege import Siege, siege

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")


def test_logins_that_stop_in_the_middle(tmp_path: Path) -> None:
    """200 peers, each with 8 KiB of a start-ok and no more: under 40 KiB each, and it all comes back."""
    with siege(tmp_path, "half-open-connections = 420") as under:  # those of the first round may be on their way out
        for _ in range(2):
            strangers = [under.stranger() for _ in range(200)]
            for stranger in strangers:
                stranger.start()
                stranger.send_octets(struct.pack(">BHI", 1, 0, 8184) + bytes(8100))
            assert under.growth_kib() < 200 * 40
            for stranger in strangers:
                stranger.abort()


def test_frames_before_the_login_are_small(tmp_path: Path) -> None:
    """A frame of more than 8 KiB is refused at its head; 8 MB that follow are not kept."""
    with siege(tmp_path) as under:
        for _ in range(20):
            stranger = under.stranger()
            stranger.start()
            with suppress(OSError):
                stranger.send_octets(struct.pack(">BHI", 1, 0, 0x7FFFFFFF) + bytes(400_000))
            under.others_are_served()
        assert under.growth_kib() < 4_000
        assert under.broker.log().count("refused before login") == 20


def test_a_table_that_explodes_before_the_login(tmp_path: Path) -> None:
    """Client properties nested a thousand deep, on a hundred connections: silence, and nothing kept."""
    octets = b""
    for _ in range(1_100):
        octets = b"\x01aF" + struct.pack(">I", len(octets)) + octets
    with siege(tmp_path) as under:
        for _ in range(100):
            stranger = under.stranger()
            stranger.start()
            stranger.method(0, 10, 11, struct.pack(">I", len(octets)) + octets + b"\x05PLAIN\0\0\0\0\x05en_US")
            under.others_are_served()
            stranger.abort()
        assert under.growth_kib() < 6_000


def test_wrong_passwords_as_fast_as_they_go(tmp_path: Path) -> None:
    """Each is held for `refused-login-delay` and counts as half-open: not more than that many guesses at a time."""
    with siege(tmp_path, "half-open-connections = 20") as under:
        strangers = []
        for _ in range(20):
            stranger = under.stranger()
            stranger.start()
            stranger.send_octets(
                b"\x01\0\0\0\x2a\0\x0a\0\x0b\0\0\0\0\x05PLAIN\0\0\0\x12\0guest\0wrong wrong\x05en_US\xce"
            )
            strangers.append(stranger)
        under.broker.wait_for_log("refused before login")
        late = under.stranger()
        with suppress(OSError):
            late.send_octets(PROTOCOL_HEADER)
        assert late.read_octets_to_eof() == b""  # no room, not even for a connection.start
        for stranger in strangers:
            stranger.abort()
        under.wait_until_half_open_is_free()


def test_octets_that_are_no_tls_on_the_tls_port(tmp_path: Path) -> None:
    """AMQP, HTTP, zeros and 4 MB of them: each is ended, the plain port serves meanwhile, nothing is kept."""
    authority = Authority(tmp_path)
    authority.issue()
    listen = ("127.0.0.1:0", "amqps://127.0.0.1:0")
    with leveret_serve(tmp_path, config=configuration(), listen=listen) as broker:
        under = Siege(broker)
        under.mark()
        port = int(broker.lines[1].rstrip("/").rpartition(":")[2])
        for octets in (PROTOCOL_HEADER, b"GET / HTTP/1.1\r\n\r\n", bytes(4_000_000), b"\x16\x03\x01\xff\xff" * 200_000):
            for _ in range(10):
                stranger = Client("127.0.0.1", port)
                with suppress(OSError):
                    stranger.send_octets(octets)
                with suppress(OSError):
                    stranger.read_octets_to_eof()
                under.others_are_served()
        assert under.growth_kib() < 8_000
        assert broker.log().count("TLS: handshake: ") == 40
        under.close()
