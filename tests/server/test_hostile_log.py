"""What peers can make the broker log: no secret, no line of theirs, and not more than a disk can take."""

import re
import struct
from contextlib import suppress
from pathlib import Path

import pika
import pytest
from broker_process import BrokerProcess, leveret_serve
from pika.exceptions import AMQPError
from rawclient import Client, Eof
from siege import siege

from leveret.interop.wire.raw_codec import BODY, arguments_of, frame, header_payload, longstr, method_frame

SECRET = "s3cr3t-Xq7-Vd2-Zp5"
BODY_TEXT = b"b0dy-Kw9-Jt4-Qh8"
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR|CRITICAL) [\w.]+: [ -~]*")
AT_ONCE = "[broker]\nrefused-login-delay = 0\n"


def finish(client: Client) -> None:
    """Hear the broker out."""
    with suppress(OSError, AssertionError):
        client.read_octets_to_eof()
    client.abort()


def start_ok(mechanism: str, response: bytes, end: int = 0xCE) -> bytes:
    """A login as a frame, with any last octet."""
    arguments = arguments_of("connection.start-ok", mechanism=mechanism, response=response, locale="en_US")
    return frame(1, 0, struct.pack(">HH", 10, 11) + arguments, end)


def logins_of_all_kinds(broker: BrokerProcess) -> None:
    """Right, wrong, in the wrong place, cut, too long, on a frame that is broken."""
    pika.BlockingConnection(pika.URLParameters(broker.url.replace("guest:guest", f"alice:{SECRET}"))).close()
    secret = SECRET.encode()
    plain = b"\0guest\0" + secret
    amqplain = b"\x05LOGINS" + longstr(b"guest") + b"\x08PASSWORDS" + longstr(secret)
    for octets in (
        start_ok("PLAIN", plain),
        start_ok("AMQPLAIN", amqplain),
        start_ok("AMQPLAIN", amqplain[:-3]),
        start_ok("PLAIN", secret),
        start_ok("PLAIN", plain + b"\0more"),
        start_ok("PLAIN", b"\0\xff\0" + secret),
        start_ok("NONE", plain),
        start_ok("PLAIN", plain, end=0),
        frame(1, 0, struct.pack(">HH", 10, 11) + longstr(b"") + b"\x05PLAIN" + longstr(plain)),  # cut short
        frame(1, 0, struct.pack(">HH", 10, 11) + longstr(b"") + b"\x05PLAIN" + longstr(plain) + b"\x02en" + secret),
        frame(1, 0, struct.pack(">HH", 10, 21) + longstr(plain)),  # secure-ok that nobody asked for
        frame(1, 1, secret),
        frame(9, 0, secret),
        secret,
    ):
        client = Client("127.0.0.1", broker.port)
        client.start()
        client.send_octets(octets + frame(8, 0, b""))
        finish(client)
    client = Client("127.0.0.1", broker.port)
    client.send_octets(secret)
    finish(client)


def publishes_of_all_kinds(broker: BrokerProcess) -> None:
    """Routed, returned, rejected, and frames around a body that are wrong in every way."""
    with suppress(AMQPError):
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        channel.queue_declare("q", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
        channel.basic_publish("", "q", BODY_TEXT)
        channel.basic_publish("", "nowhere", BODY_TEXT, mandatory=True)
        channel.basic_publish("no such exchange", "", BODY_TEXT)
        channel.queue_declare("after")
    begun = method_frame(1, "basic.publish", routing_key="q")
    size = len(BODY_TEXT)
    for octets in (
        begun + frame(2, 1, header_payload(size)) + frame(BODY, 1, BODY_TEXT, 0),
        begun + frame(2, 1, header_payload(size)) + frame(BODY, 0, BODY_TEXT),
        begun + frame(2, 1, header_payload(size - 3)) + frame(BODY, 1, BODY_TEXT),
        begun + frame(BODY, 1, BODY_TEXT),
        begun + frame(2, 1, BODY_TEXT),
        begun + frame(2, 1, b"\0\x3c" + BODY_TEXT),
        begun + frame(2, 1, header_payload(size)) + BODY_TEXT,
        frame(BODY, 1, BODY_TEXT),
        frame(BODY, 0, BODY_TEXT[:9]),
        frame(9, 1, BODY_TEXT[:9]),
        frame(8, 1, BODY_TEXT[:9]),
        frame(1, 1, struct.pack(">HH", 60, 40) + BODY_TEXT),
        frame(1, 1, struct.pack(">HH", 60, 41) + BODY_TEXT),
        frame(1, 1, struct.pack(">HH", 60, 80) + BODY_TEXT),
    ):
        client = Client.open("127.0.0.1", broker.port)
        client.send_octets(octets)
        client.send_octets(method_frame(0, "connection.close", reply_code=200))
        with suppress(Eof, AssertionError, OSError):
            client.drain_until_close()
        client.abort()


def test_passwords_and_bodies_never_reach_the_log(tmp_path: Path) -> None:
    """At level debug, through logins, failures and publishes of all kinds: not even a part of them."""
    users = f'[[user]]\nname = "alice"\npassword = "{SECRET}"\n[[user.permission]]\nvhost = "/"\nread = ".*"\n'
    users += '[[user]]\nname = "guest"\npassword = "guest"\n[[user.permission]]\n'
    users += 'configure = ".*"\nwrite = ".*"\nread = ".*"\n'
    (tmp_path / "leveret.toml").touch(mode=0o600)
    with leveret_serve(tmp_path, "--log-level", "debug", config=AT_ONCE + users) as broker:
        logins_of_all_kinds(broker)
        publishes_of_all_kinds(broker)
        pika.BlockingConnection(pika.URLParameters(broker.url)).close()
        broker.stop()
        log = broker.log()
    assert log.count("refused before login") >= 12  # they were there
    assert log.count("connection closed: 50") >= 10
    for secret in (SECRET, BODY_TEXT.decode()):
        for start in range(0, len(secret) - 5, 3):
            piece = secret[start : start + 6]
            assert piece not in log
            assert ",".join(str(ord(letter)) for letter in piece) not in log


@pytest.mark.parametrize(
    "name", ["a\n2026-01-01 00:00:00,000 INFO leveret.amqp: all is well", "\x1b[2J\x07", "%s%n", "\r\x85\u2028"]
)
def test_no_peer_writes_a_line(name: str, tmp_path: Path) -> None:
    """New lines, escapes and formats in whatever has a name: each line of the log is the broker's own."""
    with leveret_serve(tmp_path, "--log-level", "debug", config=AT_ONCE) as broker:
        for parameters in ({"credentials": pika.PlainCredentials(name, name)}, {"virtual_host": name}):
            with suppress(AMQPError):
                pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port, **parameters))
        for method, values in (
            ("queue.declare", {"queue": name, "passive": True}),
            ("exchange.declare", {"exchange": name, "type": name}),
            ("queue.declare", {"queue": "q", "arguments": {"x-overflow": name}}),
            ("queue.declare", {"queue": "q", "arguments": {name: name, "x-queue-type": name}}),
            ("basic.consume", {"queue": name, "consumer_tag": name}),
            ("queue.bind", {"queue": name, "exchange": name, "routing_key": name}),
            ("exchange.declare", {"exchange": "amq." + name, "type": "direct"}),
        ):
            client = Client.open("127.0.0.1", broker.port)
            client.send(method, **values)
            client.expect("channel.close")
            client.abort()
        client = Client.open("127.0.0.1", broker.port)
        client.publish("", "q", b"x", user_id=name, expiration=name)
        client.expect("channel.close")
        client.abort()
        client = Client("127.0.0.1", broker.port)
        client.start()
        client.send_octets(start_ok(name, b""))
        finish(client)
        client = Client("127.0.0.1", broker.port)
        client.send_octets(name.encode() + bytes(8))
        finish(client)
        broker.stop()
        log = broker.log()
    lines = log.removesuffix("\n").split("\n")
    assert len(lines) > 10
    assert [line for line in lines if not LINE.fullmatch(line)] == []


def test_a_peer_that_errs_in_a_loop_does_not_fill_the_disk(tmp_path: Path) -> None:
    """20,000 refusals: ten seconds' lines, then what there is a second; one line says how many were left out."""
    with siege(tmp_path, "log-lines-per-second = 2", "--log-level", "info") as under:
        client = under.attacker()
        error = method_frame(1, "basic.get", queue="missing") + method_frame(1, "channel.close-ok")
        again = method_frame(1, "channel.open")
        for _ in range(20):
            client.send_octets((error + again) * 1_000)
            for _ in range(1_000):
                client.expect("channel.close")
                client.expect("channel.open-ok")
            under.others_are_served()
        client.close()
        while "lines about peers were left out" not in under.broker.log():
            under.attacker().abort()
            wrong = under.stranger()
            wrong.send_octets(b"HTTP/1.1")
            finish(wrong)
        assert len(under.broker.log()) < 200_000  # of 2 MB and more
        assert under.growth_kib() < 8_000


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    """A full disk beneath the log is no reason to stop."""
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full on this machine")
    (tmp_path / "log").symlink_to(full)
    with siege(tmp_path) as under:
        for _ in range(20):
            client = under.attacker()
            client.send("basic.get", queue="missing")
            client.expect("channel.close")
            client.abort()
            wrong = under.stranger()
            wrong.send_octets(b"HTTP/1.1")
            finish(wrong)
        assert under.growth_kib() < 4_000
