"""Frames of a link: what goes in comes out, however it is cut; what may not come is refused in words."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.cluster.link.frames import (
    HEAD,
    LSN_MAX,
    PIECE_MAX,
    UNLINK_MAX,
    Accept,
    Ack,
    Beacon,
    Client,
    Copy,
    Cut,
    Decoder,
    FrameFault,
    Greet,
    Hello,
    Message,
    Needs,
    No,
    Octets,
    Order,
    Proof,
    Prove,
    Status,
    Unlink,
    Welcome,
    check_status,
    encode,
    octets_head,
)
from leveret.journal import TermTable

TERMS = TermTable(bytes(range(16)), ((1, 1), (2, 500), (7, 500)))
ALL = (
    Greet,
    Prove,
    Proof,
    Hello,
    Welcome,
    Cut,
    Copy,
    No,
    Octets,
    Unlink,
    Ack,
    Beacon,
    Status,
    Client,
    Accept,
    Needs,
    Order,
)
ONE_OF_EACH: list[Message] = [
    Greet(1, b"\x00\xff"),
    Prove(1, b"n" * 32, b"p" * 32),
    Proof(b""),
    Hello(1, "orders", 0, "n1", 3, 7, b"j" * 16, TERMS, 512),
    Hello(1, "orders", 0, "ö", 3, 7, None, TERMS, 1, wants_copy=True),
    Welcome(1, 3, b"j" * 16, TERMS, 500, 0, 512, 1, frozenset({"leased queues"})),
    Needs(frozenset({"b", "a"})),
    Cut(400),
    Copy(2**40, 2**50, is_beside=False),
    No("not mine", is_final=True),
    Octets(1, 2**62, b"octets"),
    Octets(500, 0, b""),
    Octets(500, 0, b"x" * PIECE_MAX),
    Unlink(()),
    Unlink((1, 500, 2**63 - 1)),
    Unlink(tuple(range(UNLINK_MAX))),
    Ack(7, 512),
    Beacon(7, 510, 1_700_000_000_000, {"memory": 1, "disk": {"free": 2}}),
    Status(0, {}),
    Client(1, "orders", 0, "n2", "amqp", b"\r\n\r\n\x00\r\nQUIT\n"),
    Accept(),
    Order("drain"),
]


def decoded(*pieces: bytes, expected: tuple[type, ...] = ALL) -> list[Message]:
    """The messages of octets that arrive in pieces."""
    decoder = Decoder(*expected)
    found = []
    for piece in pieces:
        decoder.receive(piece)
        found += list(decoder.messages())
    decoder.end()
    return found


@pytest.mark.parametrize("message", ONE_OF_EACH, ids=lambda message: type(message).__name__)
def test_each_message_survives(message: Message) -> None:
    """Whole; and behind half of another one."""
    assert decoded(encode(message)) == [message]
    if len(encode(message)) < 5000:
        assert decoded(*(bytes([octet]) for octet in encode(message))) == [message]


@given(st.lists(st.sampled_from(ONE_OF_EACH), max_size=8), st.lists(st.integers(0, 300_000), max_size=20))
def test_cuts_do_not_matter(messages: list[Message], cuts: list[int]) -> None:
    """The same messages come out wherever the stream is cut."""
    octets = b"".join(map(encode, messages))
    ends = sorted({min(cut, len(octets)) for cut in cuts} | {len(octets)})
    pieces = [octets[start:end] for start, end in zip([0, *ends], ends)]
    assert decoded(*pieces) == messages


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1), st.binary(max_size=100))
def test_octets_need_not_be_copied_into_a_frame(base_lsn: int, offset: int, octets: bytes) -> None:
    """The head alone, then the octets."""
    assert octets_head(base_lsn, offset, len(octets)) + octets == encode(Octets(base_lsn, offset, octets))


@given(st.binary(max_size=200))
def test_garbage_is_a_fault_or_unfinished(octets: bytes) -> None:
    """Whatever comes, nothing but a FrameFault is raised."""
    decoder = Decoder(*ALL)
    decoder.receive(octets)
    try:
        for message in decoder.messages():
            encode(message)
        decoder.end()
    except FrameFault as fault:
        assert str(fault)


@given(st.sampled_from(ONE_OF_EACH), st.data())
def test_a_changed_octet_is_another_message_or_a_fault(message: Message, data: st.DataObject) -> None:
    """One octet of a frame is changed: the decoder does not break."""
    octets = bytearray(encode(message)[:1000])
    at = data.draw(st.integers(0, len(octets) - 1))
    octets[at] ^= data.draw(st.integers(1, 255))
    decoder = Decoder(*ALL)
    decoder.receive(bytes(octets))
    try:
        list(decoder.messages())
    except FrameFault as fault:
        assert str(fault)


def json_frame(kind: int, said: object) -> bytes:
    """A frame with a JSON body."""
    body = json.dumps(said).encode()
    return HEAD.pack(len(body), kind) + body


FAULTS = [
    (HEAD.pack(0, 0), "a frame of unknown kind 0"),
    (HEAD.pack(0, 99), "a frame of unknown kind 99"),
    (b"GET / HTTP/1.1\r\n\r\n", "a frame of unknown kind 47"),
    (b"AMQP\x00\x00\x09\x01", "a frame of unknown kind 0"),
    (b"\x16\x03\x01\x02\x00\x01\x00", "a frame of unknown kind 0"),
    (HEAD.pack(4097, 1), "Greet of 4097 octets, more than 4096"),
    (HEAD.pack(2**32 - 1, 9), "Octets of 4294967295 octets, more than 262399"),
    (HEAD.pack(2**32 - 1, 4), "Hello of 4294967295 octets, more than 1048576"),
    (HEAD.pack(16, 9) + bytes(16), "Octets: unpack_from requires"),
    (HEAD.pack(17, 9) + bytes(17), "Octets: its head has 0 octets"),
    (HEAD.pack(17, 9) + b"\x12" + bytes(16), "Octets: its head has 18 octets"),
    (HEAD.pack(17, 9) + b"\x11" + b"\xff" * 16, "Octets: no number from 0 to"),
    (HEAD.pack(17 + PIECE_MAX + 1, 9) + b"\x11" + bytes(17 + PIECE_MAX), "Octets: its head has 17 octets"),
    (HEAD.pack(15, 11) + bytes(15), "Ack: unpack_from requires"),
    (HEAD.pack(7, 10) + bytes(7), "Unlink: unpack requires"),
    (HEAD.pack(0, 1), "Greet: Expecting value"),
    (HEAD.pack(4, 1) + b"null", "Greet: no object"),
    (HEAD.pack(2, 1) + b"{}", "the field version is missing"),
    (HEAD.pack(2, 1) + b"\xff\xff", "Greet: 'utf-8' codec"),
    (json_frame(1, {"version": True, "nonce": ""}), "Greet: version: no number"),
    (json_frame(1, {"version": -1, "nonce": ""}), "Greet: version: no number"),
    (json_frame(1, {"version": 2**63, "nonce": ""}), "Greet: version: no number"),
    (json_frame(1, {"version": 1, "nonce": "zz"}), "Greet: nonce: non-hexadecimal"),
    (json_frame(1, {"version": 1, "nonce": [1]}), "Greet: nonce: no text"),
    (json_frame(8, {"why": "x" * 4097}), "No: why: no text"),
    (json_frame(12, {"term": 1, "agreed": 1, "wall_ms": 1, "status": []}), "Beacon: status: no object"),
    (json_frame(13, {"wall_ms": 1, "status": {"memory": float("nan")}}), "Status: NaN is no JSON"),
    (HEAD.pack(60_000, 13) + b"[" * 60_000, "Status: "),
]


@pytest.mark.parametrize("octets, words", FAULTS)
def test_what_may_not_come_is_refused_in_words(octets: bytes, words: str) -> None:
    """At the head of the frame if that is enough, and again at each later call."""
    decoder = Decoder(*ALL)
    decoder.receive(octets)
    with pytest.raises(FrameFault, match=words.replace("(", r"\(")) as fault:
        list(decoder.messages())
    decoder.receive(encode(Accept()))
    with pytest.raises(FrameFault) as again:
        list(decoder.messages())
    assert again.value is fault.value


def test_what_came_before_a_fault_is_given() -> None:
    """Even in the same read."""
    decoder = Decoder(Ack)
    decoder.receive(encode(Ack(1, 2)) + encode(Cut(1)))
    messages = decoder.messages()
    assert next(messages) == Ack(1, 2)
    with pytest.raises(FrameFault, match="Cut, but Ack is expected"):
        next(messages)


def test_what_is_expected_changes_between_two_frames() -> None:
    """Also when both are in one read."""
    decoder = Decoder(Greet)
    decoder.receive(encode(Greet(1, b"")) + encode(Ack(1, 2)))
    for message in decoder.messages():
        if isinstance(message, Greet):
            decoder.expect(Ack)
    assert message == Ack(1, 2)


@pytest.mark.parametrize("size", range(1, len(encode(Ack(1, 2)))))
def test_a_stream_that_ends_within_a_frame_is_a_fault(size: int) -> None:
    """At every octet but the last."""
    decoder = Decoder(Ack)
    decoder.receive(encode(Ack(1, 2))[:size])
    assert list(decoder.messages()) == []
    with pytest.raises(FrameFault, match="cut short"):
        decoder.end()


def test_the_rest_behind_the_last_message() -> None:
    """Octets of a client that came with its frame belong to the client."""
    decoder = Decoder(Accept)
    decoder.receive(encode(Accept()) + b"AMQP")
    assert next(decoder.messages()) == Accept()
    assert decoder.take_rest() == b"AMQP"
    assert decoder.take_rest() == b""


def test_a_later_release_may_add_fields() -> None:
    """To JSON, behind the two numbers of an Ack, and to the head of Octets (CL18)."""
    assert decoded(json_frame(6, {"lsn": 5, "reason": {"new": [1]}})) == [Cut(5)]
    assert decoded(json_frame(8, {"why": "busy"})) == [No("busy", is_final=False)]
    assert decoded(HEAD.pack(20, 11) + encode(Ack(3, 4))[5:] + b"more") == [Ack(3, 4)]
    body = bytes([19]) + encode(Octets(1, 2, b""))[6:] + b"++" + b"octets"
    assert decoded(HEAD.pack(len(body), 9) + body) == [Octets(1, 2, b"octets")]


def test_a_status_that_was_checked_fits_in_each_beacon() -> None:
    """Else links would end as soon as the numbers beside it have more digits."""
    largest = Beacon(LSN_MAX, LSN_MAX, LSN_MAX, {})
    room = 64 * 1024 - (len(encode(largest)) - HEAD.size) - len('"":""')
    check_status({"": "x" * room})
    with pytest.raises(FrameFault, match="Beacon of 65537 octets"):
        check_status({"": "x" * (room + 1)})


def test_what_a_receiver_would_refuse_is_not_sent() -> None:
    """A fault of ours is seen where it is made."""
    with pytest.raises(FrameFault, match="No of 3.* octets, more than 32768"):
        encode(No("\x00" * 6000))
    with pytest.raises(FrameFault, match="Unlink of 32776 octets"):
        encode(Unlink(tuple(range(UNLINK_MAX + 1))))
