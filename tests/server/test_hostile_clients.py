"""Clients that may log in and mean no good: what each may take is bounded, and the others are served meanwhile."""

import gzip
import struct
from pathlib import Path

import pytest
from rawclient import BODY, HEADER, HEARTBEAT, Client, frame, header_payload, method_frame
from siege import Siege, siege
from spec_broker import close_of, expect_channel_close, expect_connection_close

MIB = 1024 * 1024
LINUX = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
pytestmark = LINUX


def begin(channel: int, body_size: int, queue: str = "nowhere") -> bytes:
    """A publish and its header; the body is still to come."""
    octets = method_frame(channel, "basic.publish", routing_key=queue)
    return octets + frame(HEADER, channel, header_payload(body_size))


def open_channels(client: Client, count: int) -> None:
    """Channels 2 to `count`."""
    client.send_octets(b"".join(method_frame(number, "channel.open") for number in range(2, count + 1)))
    for number in range(2, count + 1):
        client.expect("channel.open-ok", channel=number)


def nested(depth: int) -> bytes:
    """The inside of a table in a table in a table ..."""
    octets = b""
    for _ in range(depth):
        octets = b"\x01aF" + struct.pack(">I", len(octets)) + octets
    return octets


# ------------------------------------------------------------------------------------------------------------ frames


def test_nested_tables(tmp_path: Path) -> None:
    """15,000 levels in one frame, again and again: 502, whatever the table is for; nothing is kept."""
    deep = nested(15_000)
    with siege(tmp_path) as under:
        for _ in range(20):
            client = under.attacker()
            client.send("queue.declare", queue="q", arguments=deep)
            client.running = False
            assert close_of(client.expect("connection.close", channel=0))[0] == 502
            client.abort()
        assert under.growth_kib() < 8_000


def test_nested_headers(tmp_path: Path) -> None:
    """63 levels in the headers of a message are routed, taken and dead-lettered; one more is 541, as what can't be
    read at all, and nothing of it is in a queue."""
    with siege(tmp_path) as under:
        for depth, is_fine in ((63, True), (64, False), (15_000, False)):
            client = under.attacker(tune={"frame_max": 131072})
            client.call("queue.declare", queue="dead", exclusive=True)
            arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
            client.call("queue.declare", queue="q", exclusive=True, arguments=arguments)
            client.call("queue.bind", queue="q", exchange="amq.headers")
            headers = nested(depth)
            octets = struct.pack(">HI", 0x2000, len(headers)) + headers
            client.publish("amq.headers", "", b"x", properties_octets=octets)
            if is_fine:
                client.send("basic.reject", delivery_tag=client.take("q")["delivery_tag"], requeue=False)
                client.wait_for_ready("dead", 1)
                client.take("dead")
                client.close()
            else:
                expect_connection_close(client, 541, "INTERNAL_ERROR", (0, 0))
        assert under.growth_kib() < 8_000


def test_floods_of_frames(tmp_path: Path) -> None:
    """A million heartbeats, empty body frames for a message that never gets on: read, and gone."""
    with siege(tmp_path) as under:
        client = under.attacker()
        for _ in range(10):
            client.send_octets(frame(HEARTBEAT, 0, b"") * 100_000)
            under.others_are_served()
        client.send_octets(begin(1, 1000))
        for _ in range(10):
            client.send_octets(frame(BODY, 1, b"") * 20_000)
            under.others_are_served()
        client.send_octets(frame(BODY, 1, bytes(1000)))
        client.call("queue.declare", queue="still here", exclusive=True)
        assert under.growth_kib() < 8_000
        client.close()


def test_frames_on_channels_that_are_not_open(tmp_path: Path) -> None:
    """The first one ends the connection with 504; content there with 505; an unknown type with 501."""
    with siege(tmp_path) as under:
        for octets, code in (
            (b"".join(method_frame(number, "basic.qos") for number in range(2, 2000)), 504),
            (b"".join(frame(BODY, number, b"x") for number in range(2, 2000)), 505),
            (b"".join(frame(9, number, b"x") for number in range(2, 2000)), 501),
        ):
            client = under.attacker()
            client.send_octets(octets)
            client.running = False
            assert close_of(client.expect("connection.close", channel=0))[0] == code
            client.abort()
        assert under.growth_kib() < 4_000


def test_a_flood_of_channels(tmp_path: Path) -> None:
    """As many as were agreed on, a few KiB each; one more is 530. Opened and closed 20,000 times: nothing stays."""
    with siege(tmp_path) as under:
        client = under.attacker()
        open_channels(client, 2047)
        assert under.growth_kib() < 2047 * 8
        client.send("channel.open", channel=65_535)
        client.running = False
        assert close_of(client.expect("connection.close", channel=0))[0] == 530
        client.abort()
        client = under.attacker()
        churn = method_frame(2, "channel.open") + method_frame(2, "channel.close")
        for _ in range(20):
            client.send_octets(churn * 1_000)
            for _ in range(1_000):
                client.expect("channel.open-ok", channel=2)
                client.expect("channel.close-ok", channel=2)
            under.others_are_served()
        assert under.growth_kib() < 2047 * 8
        client.close()


def test_a_flood_of_connections(tmp_path: Path) -> None:
    """600 logins that end without a goodbye: their memory serves the next ones."""
    with siege(tmp_path) as under:
        for _ in range(100):
            under.attacker().abort()
        under.mark()
        for _ in range(10):
            for _ in range(50):
                under.attacker().abort()
            under.others_are_served()
        assert under.growth_kib() < 4_000


# ----------------------------------------------------------------------------------------------------------- content


def test_messages_that_are_announced_and_never_come(tmp_path: Path) -> None:
    """128 MiB said on each of 1,000 channels reserve nothing; more than any message may have is refused at once."""
    with siege(tmp_path) as under:
        client = under.attacker()
        open_channels(client, 1_000)
        under.mark()
        client.send_octets(b"".join(begin(number, 128 * MIB) for number in range(1, 1_001)))
        assert under.growth_kib() < 4_000
        client.send_octets(frame(BODY, 1, b"x"))
        client.abort()
        client = under.attacker()
        client.send_octets(begin(1, 1 << 63))
        client.running = False
        assert close_of(client.expect("connection.close", channel=0))[0] == 501


def test_messages_that_begin_on_many_channels(tmp_path: Path) -> None:
    """1 MiB of each of 200 messages that never end: beyond the limit, 506."""
    with siege(tmp_path, "incomplete-per-connection = '8MiB'\nmessage-size = '2MiB'") as under:
        client = under.attacker(tune={"frame_max": 131072})
        open_channels(client, 200)
        part = bytes(131072 - 8)
        try:
            for number in range(1, 201):
                client.send_octets(begin(number, 2 * MIB))
                for _ in range(8):
                    client.send_octets(frame(BODY, number, part))
                if not number % 20:
                    under.others_are_served()
        except OSError:
            pass  # it hung up meanwhile
        under.broker.wait_for_log("506 'RESOURCE_ERROR - incomplete messages of more than 8388608 octets")
        assert under.growth_kib() < 30_000  # of 200 MiB


def test_what_is_incomplete_is_forgotten_when_it_is_whole(tmp_path: Path) -> None:
    """The limit is for what is incomplete at one time; many messages in pieces, one after the other, are fine."""
    with siege(tmp_path, "incomplete-per-connection = '1MiB'\nmessage-size = '1MiB'") as under:
        client = under.attacker()
        client.call("queue.declare", queue="q", exclusive=True)
        for _ in range(10):
            client.publish("", "q", bytes(MIB))
        client.wait_for_ready("q", 10)
        client.close()


def test_a_body_octet_by_octet(tmp_path: Path) -> None:
    """500,000 body frames of one octet: the message costs its octets, not its frames, while it comes and afterwards."""
    size = 500_000
    with siege(tmp_path) as under:
        client = under.attacker()
        client.call("queue.declare", queue="q", exclusive=True)
        client.send_octets(begin(1, size, "q"))
        for _ in range(49):
            client.send_octets(frame(BODY, 1, b"x") * 10_000)
        assert under.growth_kib() < 8_000  # as objects of their own: more than 20 MB
        client.send_octets(frame(BODY, 1, b"x") * 10_000)
        client.wait_for_ready("q", 1)
        assert client.take("q", no_ack=True).body == b"x" * size
        client.close()


def test_nothing_is_decompressed(tmp_path: Path) -> None:
    """A body that says gzip is octets: 200 MiB of zeros packed into a few hundred KiB go through as they are."""
    bomb = gzip.compress(bytes(50 * MIB)) * 4
    with siege(tmp_path) as under:
        client = under.attacker()
        client.call("queue.declare", queue="q", exclusive=True)
        client.publish("", "q", bomb, content_encoding="gzip", content_type="application/x-gzip")
        got = client.take("q", no_ack=True)
        assert got.body == bomb
        assert under.growth_kib() < 8_000
        client.close()


# ---------------------------------------------------------------------------------------------- what is gathered up


def test_a_transaction_that_is_never_committed(tmp_path: Path) -> None:
    """100 MB of publishes: 406 beyond the limit, and nothing of it was published."""
    with siege(tmp_path, "transaction-size = '2MiB'") as under:
        client = under.attacker()
        client.call("queue.declare", queue="q")
        client.call("tx.select")
        for _ in range(1_000):
            client.publish("", "q", bytes(100_000))
        expect_channel_close(
            client, 406, "PRECONDITION_FAILED - transaction is larger than configured max size 2097152", (60, 40)
        )
        assert under.growth_kib() < 16_000
        assert under.ready("q") == 0
        client.close()


def test_transactions_of_empty_messages_and_small_ones(tmp_path: Path) -> None:
    """What has no body counts as well; a transaction within the limit commits, and the next begins at nothing."""
    with siege(tmp_path, "transaction-size = '1MiB'") as under:
        client = under.attacker()
        client.call("queue.declare", queue="q", exclusive=True)
        client.call("tx.select")
        for _ in range(3):
            for _ in range(6):
                client.publish("", "q", bytes(100_000))
            client.call("tx.commit")
        client.wait_for_ready("q", 18)
        for _ in range(20_000):
            client.publish("", "q", b"")
        assert close_of(client.expect("channel.close"))[0] == 406
        client.abort()


def test_deliveries_that_are_never_acknowledged(tmp_path: Path) -> None:
    """A consumer without a prefetch gets as many as may be out, basic.get 406; acks make room, on all queues."""
    with siege(tmp_path, "unacked-per-channel = 1000") as under:
        client = under.attacker()
        client.call("channel.open", channel=2)
        for queue in ("q", "r"):
            client.call("queue.declare", channel=2, queue=queue, exclusive=True)
            for _ in range(3_000):
                client.publish("", queue, bytes(1_000), channel=2)
            client.wait_for_ready(queue, 3_000, channel=2)
        under.mark()
        client.call("basic.consume", queue="q", consumer_tag="q")
        last = client.deliveries(1_000)[-1]["delivery_tag"]
        client.call("basic.consume", queue="r", consumer_tag="r")
        assert client.collect() == []
        assert client.count("q", channel=2)[0] == 2_000
        assert under.growth_kib() < 8_000
        client.send("basic.ack", delivery_tag=last, multiple=True)
        got = {"q": 1_000, "r": 0}
        for _ in range(5):
            more = client.deliveries(1_000)
            assert client.collect() == []
            for delivery in more:
                got[delivery["consumer_tag"]] += 1
            if got == {"q": 3_000, "r": 3_000}:
                break
            client.send("basic.ack", delivery_tag=more[-1]["delivery_tag"], multiple=True)
        assert got == {"q": 3_000, "r": 3_000}
        client.send("basic.get", queue="q")
        expect_channel_close(
            client,
            406,
            "PRECONDITION_FAILED - cannot get from queue 'q': limit of unacknowledged deliveries (1000) is reached",
            (60, 70),
        )
        client.close()


def test_acknowledgements_that_are_never_committed(tmp_path: Path) -> None:
    """In a transaction a delivery is out until the commit."""
    with siege(tmp_path, "unacked-per-channel = 10") as under:
        client = under.attacker()
        client.call("channel.open", channel=2)
        client.call("queue.declare", channel=2, queue="q", exclusive=True)
        for _ in range(30):
            client.publish("", "q", b"x", channel=2)
        client.call("tx.select")
        client.call("basic.consume", queue="q")
        for delivery in client.deliveries(10):
            client.send("basic.ack", delivery_tag=delivery["delivery_tag"])
        assert client.collect() == []
        client.call("tx.commit")
        client.deliveries(10)
        assert client.collect() == []
        client.close()


# ---------------------------------------------------------------------------------------------------------- topology


def test_a_flood_of_consumers(tmp_path: Path) -> None:
    """Tags of 255 octets on one channel: 530 beyond the limit."""
    with siege(tmp_path, "consumers-per-channel = 500") as under:
        client = under.attacker()
        client.call("queue.declare", queue="q", exclusive=True)
        client.send_octets(
            b"".join(
                method_frame(1, "basic.consume", queue="q", consumer_tag=f"{number:0255}", nowait=True)
                for number in range(20_000)
            )
        )
        expect_connection_close_of_limit(client, under)


def expect_connection_close_of_limit(client: Client, under: Siege) -> None:
    """530, with few KiB taken for each consumer that came in."""
    client.running = False
    assert close_of(client.expect("connection.close", channel=0))[0] == 530
    assert under.growth_kib() < 500 * 16
    client.abort()


def test_a_flood_of_bindings(tmp_path: Path) -> None:
    """Topic patterns of 127 words, no two alike: 406 beyond the limit, and they are all gone with their queue."""
    with siege(tmp_path, "bindings = 300") as under:
        client = under.attacker()
        client.call("queue.declare", queue="q", exclusive=True)
        octets = b"".join(
            method_frame(1, "queue.bind", queue="q", exchange="amq.topic", routing_key=pattern, nowait=True)
            for pattern in map(_long_pattern, range(6_000))
        )
        client.send_octets(octets)
        expect_channel_close(
            client, 406, "PRECONDITION_FAILED - cannot bind queue 'q': binding limit (300) is reached", (50, 20)
        )
        assert under.growth_kib() < 300 * 100  # of 6,000 times that
        client.close()


def test_a_flood_of_topic_patterns_that_cost_every_key(tmp_path: Path) -> None:
    """406 beyond the limit of their states; messages with the worst of keys go through what is there, others too."""
    with siege(tmp_path, "topic-states = 20000") as under:
        client = under.attacker()
        client.call("queue.declare", queue="q", exclusive=True)
        octets = b"".join(
            method_frame(1, "queue.bind", queue="q", exchange="amq.topic", routing_key=pattern, nowait=True)
            for pattern in map(_dear_pattern, range(6_000))
        )
        client.send_octets(octets)
        expect_channel_close(
            client,
            406,
            "PRECONDITION_FAILED - cannot bind to exchange 'amq.topic' in vhost '/': "
            "limit of topic states (20000) is reached",
            (50, 20),
        )
        client.call("channel.open")
        for number in range(100):
            client.publish("amq.topic", f"{number}." + "a." * 125 + "a", b"x")
        client.wait_for_ready("q", 100)
        under.others_are_served()
        client.close()


def _dear_pattern(number: int) -> str:
    return "#." + ".".join("a*"[number >> place & 1] for place in range(13)) + ".a" * 100


def _long_pattern(number: int) -> str:
    return ".".join("#*"[number >> place & 1] for place in range(13)) + ".a" * 110


def test_a_flood_of_queues(tmp_path: Path) -> None:
    """406 beyond the limit."""
    with siege(tmp_path, "queues = 500") as under:
        client = under.attacker()
        client.send_octets(
            b"".join(
                method_frame(1, "queue.declare", queue=f"{number:0150}", exclusive=True, nowait=True)
                for number in range(10_000)
            )
        )
        text = f"PRECONDITION_FAILED - cannot declare queue '{499:0150}': queue limit in cluster (500) is reached"
        expect_channel_close(client, 406, text, (50, 10))
        assert under.growth_kib() < 500 * 16
        client.close()


def test_a_headers_exchange_with_huge_tables(tmp_path: Path) -> None:
    """Each message would be compared with all of them: 406 beyond the limit; what is there is used, and freed."""
    with siege(tmp_path, "headers-conditions = 20000") as under:
        client = under.attacker(tune={"frame_max": 131072})
        client.call("queue.declare", queue="q", exclusive=True)
        headers = {f"h{number}": number for number in range(5_000)}
        for number in range(3):
            client.call("queue.bind", queue="q", exchange="amq.headers", arguments=headers | {"n": number})
        client.send("queue.bind", queue="q", exchange="amq.headers", arguments=headers | {"n": 3})
        expect_channel_close(
            client,
            406,
            "PRECONDITION_FAILED - cannot bind to exchange 'amq.headers' in vhost '/': "
            "condition limit (20000) is reached",
            (50, 20),
        )
        client.call("channel.open")
        for _ in range(20):
            client.publish("amq.headers", "", b"x", headers=headers | {"n": 2})
        under.others_are_served()
        client.wait_for_ready("q", 20)
        client.call("queue.unbind", queue="q", exchange="amq.headers", arguments=headers | {"n": 0})
        client.call("queue.bind", queue="q", exchange="amq.headers", arguments=headers | {"n": 3})
        assert under.growth_kib() < 40_000
        client.close()


# ------------------------------------------------------------------------------------------------- rounds and cycles


def test_dead_letters_in_a_circle(tmp_path: Path) -> None:
    """A circle of expiry ends after one round; 5,000 messages in it are gone, and others are served meanwhile."""
    with siege(tmp_path) as under:
        client = under.attacker()
        for here, there in (("a", "b"), ("b", "c"), ("c", "a")):
            client.call(
                "queue.declare",
                queue=here,
                arguments={"x-message-ttl": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": there},
            )
        for _ in range(5_000):
            client.publish("", "a", bytes(100))
        under.wait_until_empty("a", "b", "c")
        assert under.growth_kib() < 16_000
        client.close()


def test_dead_letters_that_multiply(tmp_path: Path) -> None:
    """Seven queues that dead-letter into a fanout to all seven: 7! ways, in slices; then all is empty."""
    queues = [f"fan.{number}" for number in range(7)]
    with siege(tmp_path) as under:
        client = under.attacker()
        client.call("exchange.declare", exchange="fan", type="fanout")
        for queue in queues:
            arguments = {"x-message-ttl": 1, "x-dead-letter-exchange": "fan"}
            client.call("queue.declare", queue=queue, arguments=arguments)
            client.call("queue.bind", queue=queue, exchange="fan")
        client.publish("fan", "", b"x")
        under.wait_until_empty(*queues)
        assert under.growth_kib() < 40_000
        client.close()


def test_exchanges_bound_in_a_circle(tmp_path: Path) -> None:
    """Each exchange is visited once."""
    with siege(tmp_path) as under:
        client = under.attacker()
        names = [f"e{number}" for number in range(50)]
        for name in names:
            client.call("exchange.declare", exchange=name, type="fanout")
        for source in names[:20]:
            for destination in names[:20]:
                client.call("exchange.bind", source=source, destination=destination)
        client.call("queue.declare", queue="q", exclusive=True)
        client.call("queue.bind", queue="q", exchange="e19")
        for _ in range(200):
            client.publish("e0", "", b"x")
        client.wait_for_ready("q", 200)
        client.close()


def test_a_storm_of_expiries(tmp_path: Path) -> None:
    """20,000 messages that are over at the same moment."""
    with siege(tmp_path) as under:
        client = under.attacker()
        client.call("queue.declare", queue="q", arguments={"x-message-ttl": 500})
        for _ in range(20_000):
            client.publish("", "q", b"x")
        under.wait_until_empty("q")
        client.close()


def test_a_frame_larger_than_agreed(tmp_path: Path) -> None:
    """A frame that says it is larger than agreed is refused at its head: its octets are never kept."""
    with siege(tmp_path) as under:
        client = under.attacker(tune={"frame_max": 4096})
        client.send_octets(struct.pack(">BHI", BODY, 1, 0xFFFFFFFF))
        expect_connection_close(
            client, 501, "FRAME_ERROR - type 3, all octets = <<>>: {frame_too_large,4294967295,4088}", (0, 0)
        )
        assert under.growth_kib() < 4_000
