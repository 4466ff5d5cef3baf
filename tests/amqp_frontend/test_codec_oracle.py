"""Our octets against pamqp's, both ways, for every method that either knows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pair import Pair
from pamqp import base, commands, frame
from peer import Peer, content, method, publish, unvalidated

from leveret.amqp_frontend.wire.codec import (
    _FIELDS,
    METHODS,
    AccessRequest,
    answer_frame,
    decode_method,
    encode_method,
    ids_of,
    received_method,
)
from leveret.amqp_frontend.wire.peer_errors import BadFieldTable, MalformedShortString, PeerError, UndecodableArguments
from leveret.amqp_frontend.wire.publish_cache import PublishCache
from leveret.engine.messages.field_table import Field, FieldTable

KINDS: list[Any] = [kind for _, kind in sorted(commands.INDEX_MAPPING.items())]

texts = st.text("abcäø☃-_.:", max_size=12)
tables = st.dictionaries(
    st.text("abc", min_size=1, max_size=4), st.text(max_size=6) | st.integers(0, 2**31 - 1) | st.booleans(), max_size=4
)
values: dict[str, st.SearchStrategy[Any]] = {
    "bit": st.booleans(),
    "octet": st.integers(0, 2**8 - 1),
    "short": st.integers(0, 2**16 - 1),
    "long": st.integers(0, 2**32 - 1),
    "longlong": st.integers(0, 2**63 - 1),
    "shortstr": texts,
    "longstr": texts,
    "table": tables,
}


def drawn(kind: type[base.Frame], data: st.DataObject) -> dict[str, Any]:
    """Values for all arguments."""
    return {name: data.draw(values[kind.amqp_type(name)], label=name) for name in kind.__slots__}


def by_pamqp(kind: type[base.Frame], fields: dict[str, Any], channel: int) -> bytes:
    """A frame of pamqp's encoder, without its opinions on names and reserved arguments."""
    made = unvalidated(kind)
    for name, value in fields.items():
        setattr(made, name, value)
    return frame.marshal(made, channel)


def as_fields(table: dict[str, Any]) -> FieldTable:
    """The table as our codec spells it, with pamqp's choice of tags."""
    return {key: _field(value) for key, value in table.items()}


def _field(value: Any) -> Field:
    if isinstance(value, bool):
        return Field("t", value)
    if isinstance(value, int):
        tag = next(
            tag for tag, limit in (("b", 2**7), ("B", 2**8), ("s", 2**15), ("u", 2**16), ("I", 2**31)) if value < limit
        )
        return Field(tag, value)
    return Field("S", value.encode())


def plain(value: Any) -> Any:
    """A decoded value of either as pamqp has it."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, Field):
        return plain(value.value)
    return value.decode() if isinstance(value, bytes) else value


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@given(data=st.data())
def test_we_read_what_pamqp_writes(kind: type[base.Frame], data: st.DataObject) -> None:
    """Every method, any values: equal, argument for argument."""
    fields = drawn(kind, data)
    channel = data.draw(st.integers(0, 65535))
    octets = by_pamqp(kind, fields, channel)
    assert octets[:1] == b"\x01" and octets[-1:] == b"\xce"
    assert ids_of(int.from_bytes(octets[7:11], "big")) == ids_of(kind.index)
    decoded = decode_method(kind, octets[11:-1])
    assert {name: plain(getattr(decoded, name)) for name in kind.__slots__} == fields


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@given(data=st.data())
def test_pamqp_reads_what_we_write(kind: type[base.Frame], data: st.DataObject) -> None:
    """Every method, any values, names included that pamqp's constructors refuse."""
    fields = drawn(kind, data)
    channel = data.draw(st.integers(0, 65535))
    ours: list[Any] = [as_fields(value) if isinstance(value, dict) else value for value in fields.values()]
    octets = encode_method(channel, kind, *ours)
    consumed, number, decoded = frame.unmarshal(octets)
    assert (consumed, number, type(decoded)) == (len(octets), channel, kind)
    assert {name: plain(getattr(decoded, name)) for name in kind.__slots__} == fields
    ours_again = decode_method(kind, octets[11:-1])
    assert [getattr(ours_again, name) for name in kind.__slots__] == [
        value.encode() if kind.amqp_type(name) == "longstr" else value for name, value in zip(kind.__slots__, ours)
    ]


@pytest.mark.parametrize("kind", METHODS.values(), ids=lambda kind: kind.name)
@given(data=st.data())
def test_arguments_cut_short_or_too_long_are_refused(kind: type[base.Frame], data: st.DataObject) -> None:
    """A cut at every octet and an octet too many: 501, never values made up, never another exception."""
    fields = drawn(kind, data)
    ours = [as_fields(value) if isinstance(value, dict) else value for value in fields.values()]
    arguments = encode_method(1, kind, *ours)[11:-1]
    for wrong in (*(arguments[:size] for size in range(len(arguments))), arguments + b"\x00"):
        with pytest.raises(UndecodableArguments):
            decode_method(kind, wrong)


@pytest.mark.parametrize("kind", METHODS.values(), ids=lambda kind: kind.name)
@given(arguments=st.binary(max_size=64))
def test_any_arguments_decode_or_are_refused(kind: type[base.Frame], arguments: bytes) -> None:
    """Only the three documented refusals."""
    try:
        decode_method(kind, arguments)
    except (UndecodableArguments, MalformedShortString, BadFieldTable):
        pass


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@given(st.data())
def test_frames_that_are_made_once_are_the_same(kind: type[base.Frame], data: st.DataObject) -> None:
    """What is remembered of frequent answers and methods is what would have been made anew, twice as well as once."""
    fields = drawn(kind, data)
    arguments = [as_fields(value) if isinstance(value, dict) else value for value in fields.values()]
    made = encode_method(1, kind, *arguments)
    assert answer_frame(1, kind, *arguments) == answer_frame(1, kind, *arguments) == made
    payload = made[11:-1]
    anew = decode_method(kind, payload)
    for received in (received_method(kind.index, payload), received_method(kind.index, payload)):
        assert {name: getattr(received, name) for name in kind.__slots__} == {
            name: getattr(anew, name) for name in kind.__slots__
        }


@pytest.mark.parametrize(
    "kind", [commands.Connection.StartOk, commands.Connection.SecureOk], ids=lambda kind: kind.name
)
def test_secrets_are_not_remembered(kind: type[base.Frame]) -> None:
    """Passwords are forgotten with the connection that sent them."""
    values = ({}, "PLAIN", b"\0guest\0guest", "en_US") if kind is commands.Connection.StartOk else (b"\0guest\0guest",)
    payload = encode_method(0, kind, *values)[11:-1]
    assert received_method(kind.index, payload) is not received_method(kind.index, payload)


def test_the_properties_of_clients_are_remembered_without_their_logins() -> None:
    """Clients of one kind share them; each has a login of its own, also where the properties are too many to keep."""
    for size in (1, 2000):
        properties = {"product": Field("S", b"x" * size)}
        first, second = (
            received_method(
                commands.Connection.StartOk.index,
                encode_method(0, commands.Connection.StartOk, properties, "PLAIN", login, "en_US")[11:-1],
            )
            for login in (b"\0one\0secret", b"\0two\0other")
        )
        assert isinstance(first, commands.Connection.StartOk) and isinstance(second, commands.Connection.StartOk)
        assert first.client_properties == second.client_properties == properties
        assert (first.client_properties is second.client_properties) == (size == 1)
        assert (first.mechanism, first.response, second.response) == ("PLAIN", b"\0one\0secret", b"\0two\0other")


@given(st.data(), st.binary(max_size=3), st.integers(0, 40))
def test_a_damaged_start_ok_is_refused_as_any_other(data: st.DataObject, added: bytes, cut: int) -> None:
    """What is remembered of the properties changes no refusal."""
    kind = commands.Connection.StartOk
    arguments = [as_fields(value) if isinstance(value, dict) else value for value in drawn(kind, data).values()]
    whole = encode_method(0, kind, *arguments)[11:-1]
    octets = bytearray(whole[: max(0, len(whole) - cut)] + added)
    if octets and data.draw(st.booleans()):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    outcomes = [_outcome(lambda: decode_method(kind, bytes(octets)), kind)]
    outcomes += [_outcome(lambda: received_method(kind.index, bytes(octets)), kind) for _ in range(2)]
    assert outcomes[0] == outcomes[1] == outcomes[2]


def _outcome(decode: Callable[[], base.Frame], kind: type[base.Frame]) -> object:
    """The arguments, or what is said of them, without the name of the method."""
    try:
        made = decode()
    except PeerError as error:
        return type(error), {key: value for key, value in vars(error).items() if key != "ids"}
    return {name: getattr(made, name) for name in kind.__slots__}


@given(st.data(), st.binary(max_size=3), st.integers(0, 12))
def test_arguments_of_publishes_are_read_as_any_others(data: st.DataObject, added: bytes, cut: int) -> None:
    """Whole, cut short, longer, with bits that mean nothing, names that are no text: the same, or the same refusal."""
    whole = encode_method(1, commands.Basic.Publish, *drawn(commands.Basic.Publish, data).values())[11:-1]
    octets = bytearray(whole[: max(0, len(whole) - cut)] + added)
    if octets and data.draw(st.booleans()):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    raw = bytes(octets)
    method_frame = bytes(11) + raw + b"\xce"
    try:
        careful: Any = decode_method(commands.Basic.Publish, raw)
    except (UndecodableArguments, MalformedShortString) as error:
        with pytest.raises(type(error)):
            PublishCache().arguments_of(method_frame)
        return
    fields = (careful.exchange, careful.routing_key, careful.mandatory, careful.immediate)
    assert PublishCache().arguments_of(method_frame) == (*fields, raw[2:-1])


def test_access_request_is_ours_alone() -> None:
    """pamqp has no class 30; its five bits share an octet."""
    octets = encode_method(1, AccessRequest, "/data", True, False, True, False, True)
    assert octets[7:-1] == b"\x00\x1e\x00\x0a\x05/data\x15"


# -- the hot path's output ------------------------------------------------------------------------------------------

names = st.text("abcö☃", max_size=8)
bodies = st.lists(st.binary(max_size=40), min_size=1, max_size=6)


def consumer_on(pair: Pair, channel: int, frame_max: int, tag: str) -> Peer:
    """A peer with one channel of that number, consuming from q."""
    peer = pair.open(channels=0, frame_max=frame_max)
    peer.call(channel, commands.Channel.Open)
    peer.call(channel, commands.Basic.Consume, queue="q", consumer_tag=tag)
    return peer


@given(
    bodies=bodies,
    key=names,
    tag=names.filter(bool),
    channel=st.sampled_from((1, 2, 65535)),
    frame_max=st.sampled_from((4096, 131072)),
    message_id=names.filter(bool),
)
def test_deliveries_say_what_was_meant(
    bodies: list[bytes], key: str, tag: str, channel: int, frame_max: int, message_id: str
) -> None:
    """Runs of deliveries, on the publisher's channel number and on others: tags, address, flag, properties, body."""
    pair = Pair()
    publisher = pair.open()
    publisher.call(1, commands.Queue.Declare, queue="q")
    publisher.call(1, commands.Queue.Bind, queue="q", exchange="amq.topic", routing_key="#")
    consumer = consumer_on(pair, channel, frame_max, tag)
    publisher.send(
        b"".join(publish(1, key, body, exchange="amq.topic", message_id=message_id, priority=3) for body in bodies)
    )
    for number, body in enumerate(bodies, 1):
        got = consumer.expect_content(commands.Basic.Deliver, channel=channel)
        deliver = got.frame
        assert (deliver.consumer_tag, deliver.delivery_tag, deliver.redelivered) == (tag, number, False)
        assert (deliver.exchange, deliver.routing_key) == ("amq.topic", key)
        assert got.properties is not None
        assert (got.properties.message_id, got.properties.priority, got.body) == (message_id, 3, body)
    consumer.expect_nothing()
    consumer.send(method(channel, commands.Basic.Nack, delivery_tag=0, multiple=True, requeue=True))
    for number, body in enumerate(bodies, len(bodies) + 1):
        got = consumer.expect_content(commands.Basic.Deliver, channel=channel)
        assert (got.frame.delivery_tag, got.frame.redelivered, got.body) == (number, True, body)
    consumer.expect_nothing()


@given(size=st.sampled_from((0, 1, 4087, 4088, 4089, 8176, 20_000, 131_064, 131_065, 300_000)), small=st.booleans())
def test_bodies_are_cut_to_what_the_consumer_agreed(size: int, small: bool) -> None:
    """Frames are never larger than the receiver's frame_max (the pair asserts it), and the octets are the same."""
    pair = Pair()
    publisher = pair.open(frame_max=4096 if small else 131072)
    publisher.call(1, commands.Queue.Declare, queue="q")
    body = bytes(index % 251 for index in range(size))
    for frame_max in (4096, 10_000, 131072):
        consumer = consumer_on(pair, 7, frame_max, "c")
        publisher.send(publish(1, "q", body, body_max=4088 if small else 131_064))
        assert consumer.expect_content(commands.Basic.Deliver).body == body
        consumer.expect_nothing()
        consumer.hang_up()
        consumer = pair.open(frame_max=frame_max)
        consumer.send(method(1, commands.Basic.Get, queue="q", no_ack=True))
        assert consumer.expect_content(commands.Basic.GetOk).body == body


@given(bodies=bodies, key=names, exchange=st.sampled_from(("amq.direct", "amq.topic", "amq.match", "")))
def test_returns_and_confirms_say_what_was_meant(bodies: list[bytes], key: str, exchange: str) -> None:
    """basic.return has address and content, and stands before the confirm that covers it."""
    pair = Pair()
    peer = pair.open()
    peer.call(1, commands.Confirm.Select)
    peer.send(b"".join(publish(1, f"no-{key}", body, exchange=exchange, mandatory=True) for body in bodies))
    for body in bodies:
        got = peer.expect_content(commands.Basic.Return, channel=1)
        assert (got.frame.reply_code, got.frame.reply_text) == (312, "NO_ROUTE")
        assert (got.frame.exchange, got.frame.routing_key, got.body) == (exchange, f"no-{key}", body)
    ack = peer.expect(commands.Basic.Ack, channel=1)
    assert (ack.delivery_tag, ack.multiple) == (len(bodies), len(bodies) > 1)
    peer.expect_nothing()


@given(bodies=bodies, key=names.filter(bool))
def test_gets_say_what_was_meant(bodies: list[bytes], key: str) -> None:
    """basic.get-ok counts what remains; the last answer is get-empty."""
    pair = Pair()
    peer = pair.open()
    peer.call(1, commands.Queue.Declare, queue=key)
    peer.send(b"".join(publish(1, key, body) for body in bodies))
    for number, body in enumerate(bodies, 1):
        peer.send(method(1, commands.Basic.Get, queue=key))
        got = peer.expect_content(commands.Basic.GetOk, channel=1)
        assert (got.frame.delivery_tag, got.frame.redelivered, got.frame.message_count) == (
            number,
            False,
            len(bodies) - number,
        )
        assert (got.frame.exchange, got.frame.routing_key, got.body) == ("", key, body)
    assert isinstance(peer.call(1, commands.Basic.Get, queue=key), commands.Basic.GetEmpty)


def test_content_passes_through_octet_for_octet() -> None:
    """Properties that no codec would write the same way again come out as they went in."""
    pair = Pair()
    peer = pair.open()
    peer.call(1, commands.Queue.Declare, queue="q")
    odd = content(1, b"x", headers={"b": 1, "a": "z"}, content_type="x/y")
    peer.send(method(1, commands.Basic.Publish, routing_key="q") + odd)
    before = len(peer.incoming.octets)
    peer.send(method(1, commands.Basic.Get, queue="q"))
    assert bytes(peer.incoming.octets[before:]).endswith(odd)


def test_the_catalogue_is_the_one_that_was_checked() -> None:
    """pamqp 3.3.0 and 4.0.1 have the same: another one that differs is looked at before it is allowed."""
    table = {f"{index:08x}": [method.name, _FIELDS[method]] for index, method in sorted(METHODS.items())}
    assert len(table) == 66
    assert hashlib.sha256(json.dumps(table).encode()).hexdigest()[:16] == "da83be11807fa5cc"
