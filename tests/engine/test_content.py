"""Property lists of content headers, with pamqp as the second opinion (0-9-1 4.2.6.1)."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, header

from leveret.engine.messages.content import (
    NATIVE,
    NO_PROPERTIES,
    PROPERTIES,
    ContentError,
    PropertySummary,
    decode_properties,
    encode_header,
    headers_of,
    scan_properties,
    splice_header,
)
from leveret.engine.messages.field_table import Field

short = st.text(min_size=1, max_size=20).filter(lambda text: len(text.encode()) <= 255)
properties = st.fixed_dictionaries(
    {},
    optional={
        "content_type": short,
        "content_encoding": short,
        "headers": st.dictionaries(
            st.text(min_size=1, max_size=6), st.integers(0, 99) | st.text(max_size=6), max_size=4
        ),
        "delivery_mode": st.integers(1, 2),
        "priority": st.integers(0, 255),
        "correlation_id": short,
        "reply_to": short,
        "expiration": short,
        "message_id": short,
        "timestamp": st.integers(0, 2**32 - 1),
        "message_type": short,
        "user_id": short,
        "app_id": short,
    },
)


def by_pamqp(values: dict[str, Any], body_size: int = 5) -> bytes:
    """A header payload."""
    values = dict(values)
    if "timestamp" in values:
        values["timestamp"] = datetime.datetime.fromtimestamp(values["timestamp"], datetime.UTC)
    return header.ContentHeader(body_size=body_size, properties=commands.Basic.Properties(**values)).marshal()


@given(properties)
def test_facts_are_those_of_pamqps_encoding(values: dict[str, Any]) -> None:
    """Whatever properties a client sets: the facts that routing needs are read off the octets."""
    summary = scan_properties(by_pamqp(values)[12:])
    assert summary == PropertySummary(
        values.get("delivery_mode") == 2,
        values.get("priority"),
        values["expiration"].encode() if values.get("expiration") is not None else None,
        values["user_id"].encode() if values.get("user_id") is not None else None,
        values.get("headers") is not None,
    )


@given(properties, st.integers(0, 2**63))
def test_properties_come_back(values: dict[str, Any], body_size: int) -> None:
    """Decoded by us, encoded by us: the octets that pamqp made."""
    raw = by_pamqp(values, body_size)
    decoded = decode_properties(raw)
    names = {"message_type" if name == "type" else name for name in decoded}
    assert names == set(values)
    assert encode_header(body_size, decoded) == raw
    assert set(headers_of(raw)) == set(values.get("headers") or {})


@given(properties)
def test_property_lists_cut_short_anywhere_are_refused(values: dict[str, Any]) -> None:
    """A cut at every octet, and an octet too many: ContentError."""
    raw = by_pamqp(values)[12:]
    for size in range(len(raw)):
        with pytest.raises(ContentError):
            scan_properties(raw[:size])
    with pytest.raises(ContentError):
        scan_properties(raw + b"\x00")


@given(st.binary(max_size=120))
def test_any_octets_are_properties_or_are_refused(data: bytes) -> None:
    """Nothing but ContentError; what scans also decodes, and headers_of never raises."""
    content = NATIVE.join(bytes(12) + data, b"body")
    assert NATIVE.split(content) == (bytes(12) + data, b"body")
    headers_of(bytes(12) + data)
    try:
        scan_properties(data)
    except ContentError:
        pass
    else:
        decode_properties(bytes(12) + data)
    try:
        decode_properties(data)
    except ContentError:
        pass


def test_flag_bits_without_a_property() -> None:
    """Bit 0 announces more flags, which 0-9-1 never has, and is refused; bit 1 is nothing, and passes."""
    with pytest.raises(ContentError):
        scan_properties(b"\x00\x01")
    assert scan_properties(b"\x00\x02") == NO_PROPERTIES
    assert decode_properties(bytes(12) + b"\x10\x02\x02") == {"delivery_mode": 2}
    marked = splice_header(bytes(12) + b"\x10\x02\x02", {"a": Field("I", 1)}, set())
    assert decode_properties(marked) == {"headers": {"a": Field("I", 1)}, "delivery_mode": 2}


@pytest.mark.parametrize("name, bit, kind", PROPERTIES)
def test_every_property_alone(name: str, bit: int, kind: str) -> None:
    """One flag, one value, and nothing of any other."""
    value: Any = {"shortstr": b"x", "table": {}, "octet": 1, "longlong": 7}[kind]
    raw = encode_header(0, {name: value})
    assert raw[12:14] == bit.to_bytes(2, "big")
    assert decode_properties(raw) == {name: value}
    scan_properties(raw[12:])


def test_no_properties_are_no_facts() -> None:
    """The common case."""
    assert scan_properties(b"\x00\x00") == NO_PROPERTIES
