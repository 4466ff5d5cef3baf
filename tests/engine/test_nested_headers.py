"""Headers may be large and nested: who asks for one of them does not have the others decoded."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pair import Pair
from pamqp import commands as C
from peer import method, publish
from steps import steps

from leveret.engine import Envelope, Message
from leveret.engine.delivery.filters import MessageSubject
from leveret.engine.exchanges.routed import Routed
from leveret.engine.messages.content import (
    NATIVE,
    decode_properties,
    encode_header,
    opened_headers,
    scan_properties,
)
from leveret.engine.messages.field_table import Field, FieldTable

NESTED = Field("A", [Field("F", {"k": Field("I", number)}) for number in range(2_000)])
LARGE: FieldTable = {"a": Field("I", 1), "list": NESTED, "deep": Field("F", {"more": NESTED}), "z": Field("S", b"z")}
HEADER = encode_header(0, {"headers": LARGE, "message_id": b"m"})
MESSAGE = Message(1, NATIVE.join(HEADER, b""), Envelope("x", "k", scan_properties(HEADER[12:]), NATIVE))


@pytest.mark.parametrize("key", ["a", "z", "missing"])
def test_who_asks_for_one(key: str) -> None:
    """Exchanges and filters: in lines of Python, some tens instead of some ten thousand."""

    def routed() -> None:
        message = Routed(("k",), MESSAGE.envelope, MESSAGE.content)
        assert (key in message.comparables) is (key in LARGE)

    def filtered() -> None:
        subject = MessageSubject(MESSAGE)
        assert (subject.header(key) is not None) is (key in LARGE)
        assert subject.property("message_id") == "m"

    assert steps(routed) < 150
    assert steps(filtered) < 200
    assert steps(lambda: decode_properties(HEADER)) > 20_000


def test_a_header_that_cannot_be_read_is_null() -> None:
    """A type that the broker does not know, within a table: a filter sees nothing there, and all other headers."""
    headers: FieldTable = {"bad": Field("F", {"k": Field("S", b"")}), "good": Field("I", 1)}
    header = encode_header(0, {"headers": headers}).replace(b"\x01kS", b"\x01kZ")
    subject = MessageSubject(Message(1, NATIVE.join(header, b""), Envelope("x", "k")))
    assert (subject.header("bad"), subject.header("good")) == (None, 1)


def test_a_publish_to_a_headers_exchange() -> None:
    """Costs as many lines as one to a queue, whatever is nested in what no binding asks for."""
    work = []
    headers: dict[str, Any] = {"a": 1, "list": [{"k": number} for number in range(200)]}
    for exchange in ("", "amq.headers"):
        peer = Pair().open()
        peer.call(1, C.Queue.Declare, queue="q")
        peer.send(method(1, C.Queue.Bind, queue="q", exchange="amq.headers", arguments={"x-match": "all", "a": 1}))
        peer.take()
        message = publish(1, "q", b"x", exchange=exchange, headers=headers)
        work.append(steps(lambda peer=peer, message=message: peer.send(message)))
        assert peer.call(1, C.Queue.Declare, queue="q", passive=True).message_count == 1
    assert work[1] <= work[0] + 300


FIELDS = st.recursive(
    st.builds(Field, st.just("I"), st.integers(-9, 9)) | st.builds(Field, st.just("S"), st.binary(max_size=4)),
    lambda inner: (
        st.builds(Field, st.just("A"), st.lists(inner, max_size=3))
        | st.builds(Field, st.just("F"), st.dictionaries(st.text(max_size=2), inner, max_size=3))
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=3), FIELDS, max_size=5), st.binary(max_size=3) | st.none())
def test_it_is_the_same_table(table: FieldTable, type_: bytes | None) -> None:
    """Whatever stands before and behind it."""
    properties: dict[str, Any] = {"headers": table, "content_type": type_, "message_id": b"m"}
    header = encode_header(0, {name: value for name, value in properties.items() if value is not None})
    opened = opened_headers(header)
    assert dict(opened) == decode_properties(header)["headers"] == table
    assert len(opened) == len(table) and list(opened) == list(table)
    assert "headers" not in decode_properties(header, has_headers=False)


@given(st.binary(max_size=40))
def test_what_is_no_header(data: bytes) -> None:
    """An empty table, or one whose entries are decoded when they are asked for: never another error."""
    assert len(opened_headers(data)) >= 0
