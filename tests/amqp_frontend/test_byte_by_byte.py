"""How the octets are cut into reads makes no difference to what a client can see."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair import Pair
from pamqp import base, commands
from peer import (
    LOGIN,
    PROTOCOL_HEADER,
    Cut,
    Peer,
    Received,
    byte_by_byte,
    content,
    cut_at,
    handshake,
    method,
    publish,
    raw_frame,
    raw_method,
    whole,
)

C = commands
Burst = bytes


def declare(queue: str, channel: int = 1) -> bytes:
    """queue.declare."""
    return method(channel, C.Queue.Declare, queue=queue)


def channels(*numbers: int) -> bytes:
    """channel.open for each."""
    return b"".join(method(number, C.Channel.Open) for number in numbers)


def acks(*tags: int, channel: int = 1) -> bytes:
    """A run of single acks."""
    return b"".join(method(channel, C.Basic.Ack, delivery_tag=tag) for tag in tags)


def acks_up_to(*tags: int) -> bytes:
    """A run of acks, each of all up to its tag."""
    return b"".join(method(1, C.Basic.Ack, delivery_tag=tag, multiple=True) for tag in tags)


CONSUME = method(1, C.Basic.Consume, queue="q", consumer_tag="c")
GET = method(1, C.Basic.Get, queue="q")
#: A channel, a queue `q`, and a publish to it without its content.
BEGUN = channels(1) + declare("q") + method(1, C.Basic.Publish, routing_key="q")
SAME = b"".join(publish(1, "q", b"%04d" % number, content_type="a/b") for number in range(12))
MIXED = b"".join(
    (
        publish(1, "q", b"plain"),
        publish(1, "q", b"plain"),
        publish(1, "q", b"with header", headers={"k": 1}, delivery_mode=2),
        publish(1, "q", b"with header", headers={"k": 2}, delivery_mode=2),
        publish(1, "q", b""),
        publish(1, "q", b"", priority=3),
        publish(1, "none", b"lost"),
        publish(1, "none", b"returned", mandatory=True),
        publish(1, "q", b"other properties", message_id="m" * 50, user_id="guest"),
        publish(1, "q", b"plain"),
    )
)
LONG = publish(1, "q", bytes(range(256)) * 40, body_max=4088) + publish(1, "q", b"b" * 4089, body_max=1000)

#: Name -> bursts behind the handshake. A burst is what a client may send without having seen an answer.
CONVERSATIONS: dict[str, list[Burst]] = {
    "nothing": [],
    "publish a run": [channels(1) + declare("q"), SAME, CONSUME, acks(*range(1, 13))],
    "publish to a waiting consumer": [channels(1) + declare("q") + CONSUME, SAME + MIXED, acks(1, 2, 3)],
    "like publishes": [
        channels(1, 2) + declare("q") + declare("r"),
        publish(1, "q", b"x") * 2
        + publish(1, "r", b"x") * 3
        + publish(1, "s", b"x") * 2
        + publish(1, "s", b"x", mandatory=True) * 2,
        method(2, C.Queue.Declare, queue="r", passive=True),
    ],
    "different headers": [channels(1) + declare("q") + method(1, C.Confirm.Select) + MIXED, GET * 9],
    "long bodies": [channels(1) + declare("q") + LONG + SAME, CONSUME],
    "confirms": [channels(1) + declare("q") + method(1, C.Confirm.Select), SAME + LONG + MIXED],
    "acks": [channels(1) + declare("q") + SAME + CONSUME, acks(3, 1, 2, 5) + acks(9), acks(4) + acks(6)],
    "multiple acks": [
        channels(1) + declare("q") + SAME + CONSUME,
        acks(1, 2) + method(1, C.Basic.Ack, delivery_tag=7, multiple=True) + acks(8, 9),
        method(1, C.Basic.Nack, delivery_tag=0, multiple=True, requeue=True),
    ],
    "multiple acks in a row": [
        channels(1) + declare("q") + SAME + CONSUME,
        acks_up_to(2, 3, 6) + acks(7) + acks_up_to(8) + acks(9) + GET,
    ],
    "multiple acks of all": [channels(1) + declare("q") + SAME + CONSUME, acks_up_to(2, 0) + GET, channels(2)],
    "multiple acks with an unknown tag": [
        channels(1) + declare("q") + SAME + CONSUME,
        acks(3) + acks_up_to(2, 3, 5) + GET,
        channels(2) + method(2, C.Queue.Declare, queue="q", passive=True),
    ],
    "multiple acks that fall": [channels(1) + declare("q") + SAME + CONSUME, acks_up_to(4, 2) + GET, channels(2)],
    "an unknown tag": [channels(1) + declare("q") + SAME + CONSUME, acks(1, 2, 99, 3, 4) + GET, channels(2)],
    "two channels": [
        channels(1, 2, 65535) + declare("q"),
        method(1, C.Basic.Publish, routing_key="q")
        + method(2, C.Basic.Qos, prefetch_count=2)
        + content(1, b"split by channel 2"),
        publish(2, "q", b"two") + publish(65535, "q", b"last") + publish(2, "q", b"two"),
        method(2, C.Basic.Consume, queue="q", consumer_tag="c2"),
        acks(1, 2, channel=2),
    ],
    "transactions": [
        channels(1) + declare("q") + method(1, C.Tx.Select) + SAME,
        method(1, C.Tx.Rollback) + SAME + MIXED,
        method(1, C.Tx.Commit) + GET,
        acks(1) + method(1, C.Tx.Rollback) + acks(1) + method(1, C.Tx.Commit),
    ],
    "no such exchange": [
        channels(1) + publish(1, "q", b"x", exchange="nowhere") + SAME + declare("q"),
        method(1, C.Channel.CloseOk) + channels(1) + declare("q") + SAME + GET,
    ],
    "closing": [
        channels(1) + declare("q") + SAME + CONSUME,
        method(1, C.Channel.Close, reply_code=200, reply_text="bye", class_id=0, method_id=0),
        channels(1) + GET,
        method(0, C.Connection.Close, reply_code=200, reply_text="bye", class_id=0, method_id=0),
    ],
    "a close that crosses": [
        channels(1)
        + declare("missing")
        + method(1, C.Queue.Declare, queue="no", passive=True)
        + method(1, C.Channel.Close, reply_code=200, reply_text="", class_id=0, method_id=0)
        + channels(1)
        + declare("q"),
        GET,
    ],
    "flow and recover": [
        channels(1) + declare("q") + method(1, C.Channel.Flow, active=False) + CONSUME + SAME,
        method(1, C.Channel.Flow, active=True),
        method(1, C.Channel.Flow, active=False) + acks(1, 2) + method(1, C.Basic.Recover, requeue=True),
        publish(1, "q", b"later"),
        method(1, C.Channel.Flow, active=True),
    ],
    # ends by error: nothing may follow but what was sent before the client knew
    "an unknown frame type": [channels(1) + declare("q") + SAME + raw_frame(99, 0, b"abc") + declare("never")],
    "an unknown method": [channels(1) + raw_method(1, 60, 99) + declare("never")],
    "garbage behind arguments": [channels(1) + raw_method(1, 60, 80, bytes(9) + b"x") + declare("never")],
    "header without publish": [channels(1) + content(1, b"x") + declare("never")],
    "publish without header": [channels(1) + method(1, C.Basic.Publish, routing_key="q") + declare("never")],
    "body too long": [BEGUN + content(1, b"12345")[:-13] + raw_frame(3, 1, b"123456") + declare("never")],
    "undecodable properties": [
        BEGUN
        + raw_frame(2, 1, b"\x00\x3c\x00\x00" + (1).to_bytes(8, "big") + b"\x00\x01")
        + raw_frame(3, 1, b"x")
        + declare("never")
    ],
    "weight": [
        BEGUN
        + raw_frame(2, 1, b"\x00\x3c\x00\x01" + (1).to_bytes(8, "big") + b"\x00\x00")
        + raw_frame(3, 1, b"x")
        + declare("never")
    ],
    "a wrong frame end": [channels(1) + declare("q") + SAME + raw_frame(1, 1, b"\x00\x3c\x00\x50" + bytes(9), 0)],
    "a wrong frame end and more": [
        channels(1) + raw_frame(1, 1, b"\x00\x3c\x00\x50" + bytes(9), 0) + declare("never") + bytes(300)
    ],
    "a frame too large": [channels(1) + declare("q") + raw_frame(3, 1, bytes(140_000))[:3000] + SAME],
    "a header frame too large": [
        channels(1) + declare("q") + publish(1, "q", b"x", headers={"k": "v" * 140_000}) + declare("never")
    ],
    "a body frame of eight octets too many": [
        channels(1) + declare("q") + publish(1, "q", bytes(131_072), body_max=131_072),
        GET,
    ],
    "immediate": [
        channels(1)
        + declare("q")
        + method(1, C.Basic.Publish, routing_key="q", immediate=True)
        + content(1, b"x")
        + declare("never")
    ],
    "publish with arguments cut short": [
        channels(1) + declare("q") + raw_method(1, 60, 40, b"\x00\x00\x05q") + content(1, b"x") + declare("never")
    ],
    "publish with garbage behind": [
        channels(1)
        + declare("q")
        + raw_method(1, 60, 40, b"\x00\x00\x00\x01q\x00more")
        + content(1, b"x")
        + declare("never")
    ],
}

#: From the first octet on; the end is silence.
UNFINISHED: dict[str, list[Burst]] = {
    "another protocol": [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"],
    "AMQP 1.0": [b"AMQP\x00\x01\x00\x00"],
    "a wrong password": [PROTOCOL_HEADER, method(0, C.Connection.StartOk, response="\x00guest\x00wrong")],
    "tune-ok before login": [PROTOCOL_HEADER, method(0, C.Connection.TuneOk)],
    "a tune-ok too low": [
        PROTOCOL_HEADER,
        method(0, C.Connection.StartOk, response=LOGIN.decode()),
        method(0, C.Connection.TuneOk, frame_max=100),
    ],
    "no such virtual host": [*handshake()[:3], method(0, C.Connection.Open, virtual_host="/none")],
    "a channel before open": [*handshake()[:3], channels(1)],
    "AMQP 0-9": [b"AMQP\x01\x01\x00\x09", *handshake()[1:], channels(1) + declare("q") + SAME],
    "AMQP 0-8": [b"AMQP\x01\x01\x08\x00"],
    "AMQP 0-8 of amqplib": [b"AMQP\x01\x01\x09\x01"],
    "more than asked for": [PROTOCOL_HEADER + b"AMQP\x00\x00\x09\x01" * 2],
}


class Seen:
    """What a client can tell apart, however answers and deliveries interleave."""

    def __init__(self, pair: Pair, peer: Peer) -> None:
        self.answers: dict[int, list[object]] = defaultdict(list)
        self.deliveries: dict[tuple[int, str | None], list[object]] = defaultdict(list)
        self.confirmed: dict[int, set[int]] = defaultdict(set)
        for received in peer.take():
            self._add(received)
        assert peer.incoming.is_between_frames
        self.ending = (peer.is_closed, peer.has_reset, peer.session.connection.state)
        statistics = pair.broker.statistics()
        self.counters = (statistics.ready, statistics.unacked, statistics.counters)

    def _add(self, received: Received) -> None:
        one, channel = received.frame, received.channel
        if isinstance(one, commands.Basic.Ack):
            tags = self.confirmed[channel]
            tags |= set(range(max(tags, default=0) + 1, one.delivery_tag + 1)) if one.multiple else {one.delivery_tag}
        elif isinstance(one, commands.Basic.Deliver):
            self.deliveries[channel, one.consumer_tag].append((_values(one), _content(received)))
        else:
            self.answers[channel].append((one.name, _values(one), _content(received)))


def _values(one: Any) -> object:
    return {name: getattr(one, name) for name in one.__slots__} if isinstance(one, base.Frame) else type(one)


def _content(received: Received) -> object:
    return (dict(received.properties or ()), received.body)


def observe(bursts: list[Burst], cut: Cut, *, frame_max: int = 131072) -> Seen:
    """Say all of it to a new broker."""
    pair = Pair()
    peer = pair.open(None, cut=cut)
    peer.send(*bursts)
    return Seen(pair, peer)


ALL = {
    **{name: [*handshake(), *bursts] for name, bursts in CONVERSATIONS.items()},
    **UNFINISHED,
}


def assert_same(bursts: list[Burst], cut: Cut) -> None:
    """The same for the client as when every burst comes in one read."""
    expected, seen = observe(bursts, whole), observe(bursts, cut)
    assert seen.answers == expected.answers
    assert seen.deliveries == expected.deliveries
    assert seen.confirmed == expected.confirmed
    assert seen.ending == expected.ending
    assert seen.counters == expected.counters


@pytest.mark.parametrize("name", ALL)
def test_byte_by_byte(name: str) -> None:
    """A read for every octet."""
    assert_same(ALL[name], byte_by_byte if sum(map(len, ALL[name])) < 50_000 else _by(1000))


@pytest.mark.parametrize("size", [7, 8, 20, 21, 22, 4096])
@pytest.mark.parametrize("name", ALL)
def test_in_equal_pieces(name: str, size: int) -> None:
    """Reads of one size: frame heads, ack frames and contents are torn everywhere."""
    assert_same(ALL[name], _by(size))


@settings(max_examples=25, deadline=None)
@given(places=st.lists(st.integers(0, 1 << 20), max_size=8))
@pytest.mark.parametrize("name", ALL)
def test_cut_anywhere(name: str, places: list[int]) -> None:
    """Reads that end wherever chance wants."""
    assert_same(ALL[name], cut_at(places))


PUBLISHES = [
    *(publish(1, key, body) for key in ("q", "r", "none") for body in (b"one", b"two", b"longer")),
    *(publish(1, key, b"one", mandatory=True) for key in ("q", "s", "none")),
    *(publish(1, "q", b"one", priority=3), publish(1, "q", b""), publish(2, "q", b"one"), publish(2, "r", b"two")),
]


@settings(max_examples=200, deadline=None)
@given(order=st.lists(st.sampled_from(range(len(PUBLISHES))).flatmap(lambda n: st.lists(st.just(n), max_size=4))))
def test_publishes_of_like_octets_go_their_own_ways(order: list[list[int]]) -> None:
    """Runs are recognized by their octets: keys and flags that differ in one of them end a run, however long it is."""
    sent = b"".join(PUBLISHES[number] for numbers in order for number in numbers)
    names = ("q", "r", "s")
    begin = channels(1, 2) + b"".join(map(declare, names)) + method(1, C.Confirm.Select)
    asked = b"".join(method(2, C.Queue.Declare, queue=name, passive=True) for name in names)
    assert_same([*handshake(), begin, sent, asked], _by(40))


def _by(size: int) -> Cut:
    return lambda data: (data[start : start + size] for start in range(0, len(data), size))


@pytest.mark.parametrize("bursts", [pytest.param(ALL["confirms"], id="confirms")])
def test_confirms_cover_all_publishes(bursts: list[Burst]) -> None:
    """However they are coalesced: every publish is confirmed, none twice by a single ack."""
    for cut in (whole, byte_by_byte):
        assert observe(bursts, cut).confirmed == {1: set(range(1, 25))}


EXPECTATIONS: list[tuple[str, Callable[[Seen], bool]]] = [
    ("publish a run", lambda seen: seen.counters[2]["acknowledged"] == 12),
    ("long bodies", lambda seen: len(seen.deliveries[1, "c"]) == 14),
    ("an unknown tag", lambda seen: seen.counters[:2] == (10, 0)),
    ("AMQP 0-9", lambda seen: seen.counters[2]["published"] > 0 and seen.answers[0][0][1]["version_minor"] == 9),
    ("body too long", lambda seen: "501" in str(seen.answers[0])),
    ("like publishes", lambda seen: "'message_count': 3" in str(seen.answers[2]) and len(seen.answers[1]) == 5),
]


@pytest.mark.parametrize("name, holds", EXPECTATIONS, ids=[name for name, _ in EXPECTATIONS])
def test_the_conversations_do_what_they_are_for(name: str, holds: Callable[[Seen], bool]) -> None:
    """Equal results are worth something only if they are results."""
    assert holds(observe(ALL[name], whole))
