"""The content of a message: header payload and body, byte for byte as published.

Publishing needs only the `PropertySummary`: the properties that routing and queues use. The others are decoded on
access. Unchanged properties are never encoded again. Source: AMQP 0-9-1 4.2.6.1; behaviour page 0.6 and 1.13.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import add
from struct import Struct
from struct import error as StructError
from typing import NamedTuple, Protocol

from .field_table import (
    Field,
    FieldTable,
    FieldTableError,
    OpenedTable,
    decode_table,
    encode_table,
    scan_table,
    table_spans,
)

BASIC_CLASS = 60

#: Name, flag bit and wire type of each property, in their order in the payload.
PROPERTIES = (
    ("content_type", 0x8000, "shortstr"),
    ("content_encoding", 0x4000, "shortstr"),
    ("headers", 0x2000, "table"),
    ("delivery_mode", 0x1000, "octet"),
    ("priority", 0x0800, "octet"),
    ("correlation_id", 0x0400, "shortstr"),
    ("reply_to", 0x0200, "shortstr"),
    ("expiration", 0x0100, "shortstr"),
    ("message_id", 0x0080, "shortstr"),
    ("timestamp", 0x0040, "longlong"),
    ("type", 0x0020, "shortstr"),
    ("user_id", 0x0010, "shortstr"),
    ("app_id", 0x0008, "shortstr"),
    ("cluster_id", 0x0004, "shortstr"),
)

#: The flag bit of a second word of flags, which no client sends. Bit 1 has no meaning and is passed on, as in RabbitMQ.
_CONTINUATION = 0x0001
#: The flag bit of the headers, and the bits of the properties before them.
_HEADERS, _BEFORE_HEADERS = 0x2000, (0x8000, 0x4000)

_PREFIX = Struct(">HHQH")  # class, weight, body size, property flags
_FLAGS = Struct(">H")
_LENGTH = Struct(">I")
_LONGLONG = Struct(">Q")

PropertyValue = int | bytes | FieldTable


#: Headers that the broker acts on: delays, groups, duplicates (address-settings page 3.4, 3.6).
SCHEDULED_DELIVERY = "_AMQ_SCHED_DELIVERY"
DELAY = "x-delay"
DEDUPLICATION_ID = "x-deduplication-id"  # of RabbitMQ's plugin
DUPLICATE_IDS = ("_AMQ_DUPL_ID", DEDUPLICATION_ID)
GROUP_IDS = ("_AMQ_GROUP_ID", "JMSXGroupID")

#: The offset of a message in a stream; also the consumer argument that sets where reading starts.
OFFSET = "x-stream-offset"
COPIES = ("CC", "BCC")  # further routing keys
#: The reply_to of a request whose reply goes directly to the consumer on the publisher's channel.
REPLY_TO_ME = b"amq.rabbitmq.reply-to"
MARKS = frozenset({SCHEDULED_DELIVERY, DELAY, *DUPLICATE_IDS, *GROUP_IDS, *COPIES})
_MARK_OCTETS = frozenset(map(str.encode, MARKS))


class ContentError(ValueError):
    """The property list of a content header is invalid: too short or too long, with an invalid table, or with a second
    word of flags.
    """


class PropertySummary(NamedTuple):
    """The properties that routing and queues use. Frontends intern them: equal ones usually are one object."""

    persistent: bool = False
    priority: int | None = None
    expiration: bytes | None = None
    user_id: bytes | None = None
    has_headers: bool = False
    is_marked: bool = False  # publishing has to read the properties: a header of `MARKS`, or a direct reply


NO_PROPERTIES = PropertySummary()


@lru_cache(512)
def _present(flags: int) -> tuple[tuple[str, int, str], ...]:
    """The properties whose flags are set. Cached, because most messages have the same two or three."""
    return tuple(one for one in PROPERTIES if flags & one[1])


def scan_properties(data: bytes, *, is_checked: bool = False) -> PropertySummary:
    """Check a property list (flags and values) and summarize it. `is_checked`: its headers are valid.

    Raises: ContentError (541, as in RabbitMQ).
    """
    size = len(data)
    if size < 2:
        raise ContentError("no property flags")
    flags = _FLAGS.unpack_from(data)[0]
    if flags & _CONTINUATION:
        raise ContentError("a second word of property flags")
    position = 2
    delivery_mode = 0
    priority: int | None = None
    expiration: bytes | None = None
    user_id: bytes | None = None
    is_marked = False
    try:
        for name, bit, kind in _present(flags):
            if kind == "shortstr":
                start = position + 1
                position = start + data[position]
                if position > size:
                    raise ContentError(f"{name} is cut short")
                if bit == 0x0200:
                    is_marked = is_marked or data[start:position] == REPLY_TO_ME
                elif bit == 0x0100:
                    expiration = data[start:position]
                elif bit == 0x0010:
                    user_id = data[start:position]
            elif kind == "table":
                if is_checked:
                    is_marked = any(key in MARKS for key, _, _ in table_spans(data, position))
                    position += 4 + _LENGTH.unpack_from(data, position)[0]
                else:
                    is_marked, position = scan_table(data, position, _MARK_OCTETS)
            elif kind == "octet":
                if bit == 0x1000:
                    delivery_mode = data[position]
                else:
                    priority = data[position]
                position += 1
            else:
                position += 8
    except (IndexError, FieldTableError) as error:
        raise ContentError("a property is cut short") from error
    if position != size:
        raise ContentError("the properties do not fill the header")
    return PropertySummary(delivery_mode == 2, priority, expiration, user_id, bool(flags & 0x2000), is_marked)


def decode_properties(header: bytes, *, raw: str | None = None, has_headers: bool = True) -> dict[str, PropertyValue]:
    """All properties of a header payload by name: int, bytes (strings), FieldTable (headers).

    `has_headers`: whether to decode the headers.
    `raw`: name of a header that is not decoded if it is an array; its value is the octets of the items.
    Raises: ContentError.
    """
    if len(header) < _PREFIX.size:
        raise ContentError("no property flags")
    flags = _PREFIX.unpack_from(header)[3]
    position = _PREFIX.size
    found: dict[str, PropertyValue] = {}
    try:
        for name, bit, kind in PROPERTIES:
            if not flags & bit:
                continue
            if kind == "shortstr":
                start = position + 1
                position = start + header[position]
                if position > len(header):
                    raise ContentError(f"{name} is cut short")
                found[name] = header[start:position]
            elif kind == "table":
                if has_headers:
                    found[name], position = decode_table(header, position, raw=raw)
                else:
                    position += 4 + _LENGTH.unpack_from(header, position)[0]
            elif kind == "octet":
                found[name] = header[position]
                position += 1
            else:
                if position + 8 > len(header):
                    raise ContentError(f"{name} is cut short")
                found[name] = _LONGLONG.unpack_from(header, position)[0]
                position += 8
    except (IndexError, StructError, FieldTableError) as error:
        raise ContentError("a property is cut short") from error
    return found


def headers_of(header: bytes) -> FieldTable:
    """The headers table of a header payload; empty if there is none or it is invalid."""
    try:
        headers = decode_properties(header).get("headers")
    except ContentError:
        return {}
    return headers if isinstance(headers, dict) else {}


def opened_headers(header: bytes) -> Mapping[str, Field]:
    """The headers table of a header payload; empty if there is none or it is invalid.

    Each entry is decoded on access, because callers read few entries, which may be large and nested.
    """
    try:
        flags = _PREFIX.unpack_from(header)[3]
        if not flags & _HEADERS:
            return {}
        position = _PREFIX.size
        for bit in _BEFORE_HEADERS:
            if flags & bit:
                position += 1 + header[position]
        return OpenedTable(header, position)
    except (IndexError, StructError, FieldTableError):
        return {}


def encode_header(body_size: int, properties: Mapping[str, PropertyValue] | None = None) -> bytes:
    """Encode a header payload for a body of `body_size` octets, of a message that the broker makes."""
    flags = 0
    values: list[bytes] = []
    for name, bit, kind in PROPERTIES:
        value = (properties or {}).get(name)
        if value is None:
            continue
        flags |= bit
        if isinstance(value, bytes):
            values.append(bytes((len(value),)) + value)
        elif isinstance(value, dict):
            values.append(encode_table(value))
        else:
            values.append(_LONGLONG.pack(value) if kind == "longlong" else bytes((value,)))
    return _PREFIX.pack(BASIC_CLASS, 0, body_size, flags) + b"".join(values)


def splice_header(
    header: bytes,
    added: FieldTable,
    dropped: set[str],
    *,
    without_expiration: bool = False,
    reply_to: bytes | None = None,
) -> bytes:
    """Change the headers table of a header payload: remove `dropped`, and append `added`, which replaces equal names.

    `without_expiration`: remove the expiration. `reply_to`: the new value of that property; None: keep it. Everything
    else stays byte for byte. Raises: ContentError.
    """
    flags = _PREFIX.unpack_from(header)[3]
    position = _PREFIX.size
    parts: list[bytes] = []
    gone = dropped | set(added)
    new_entries = encode_table(added)[4:]
    try:
        for name, bit, kind in PROPERTIES:
            start = position
            if flags & bit:
                if kind == "shortstr":
                    position += 1 + header[position]
                elif kind == "table":
                    position += 4 + _LENGTH.unpack_from(header, position)[0]
                else:
                    position += 1 if kind == "octet" else 8
            if name == "headers" and (flags & bit or added):
                kept = (
                    b"".join(header[first:last] for key, first, last in table_spans(header, start) if key not in gone)
                    if flags & bit
                    else b""
                )
                table = kept + new_entries
                flags |= bit
                parts.append(_LENGTH.pack(len(table)) + table)
            elif name == "reply_to" and reply_to is not None:
                flags |= bit
                parts.append(bytes((len(reply_to),)) + reply_to)
            elif name == "expiration" and without_expiration:
                flags &= ~bit
            else:
                parts.append(header[start:position])
    except (IndexError, StructError, FieldTableError) as error:
        raise ContentError("a property is cut short") from error
    return header[:12] + _FLAGS.pack(flags) + b"".join(parts)


class ContentColumns(NamedTuple):
    """The contents of a run of messages, in the form that the journal stores.

    `columns`: each column has one part of each message; joined, they are its content in the engine's framing. `sizes`:
    octets of each content; `body_sizes`: octets of each body.
    """

    columns: Sequence[Sequence[bytes]]
    sizes: Sequence[int]
    body_sizes: Sequence[int]

    @classmethod
    def of(cls, headers: Sequence[bytes], bodies: Sequence[bytes]) -> "ContentColumns":
        """The columns of length-prefixed headers and bodies."""
        body_sizes = list(map(len, bodies))
        return cls((headers, bodies), list(map(add, map(len, headers), body_sizes)), body_sizes)


class Framing(Protocol):
    """The format of a content, which joins header payload and body. Each frontend has its own.

    A frontend may send contents of its own framing unchanged.
    """

    def split(self, content: bytes) -> tuple[bytes, bytes]:
        """Header payload and body of a content."""

    def body_size(self, content: bytes) -> int:
        """Octets of a content's body."""

    def body_sizes(self, contents: Sequence[bytes]) -> list[int]:
        """Octets of each content's body."""

    def columns(self, contents: Sequence[bytes]) -> ContentColumns:
        """The contents of a run, in columns for the journal."""


class NativeFraming:
    """The engine's framing: four octets of header length, header payload, body."""

    @staticmethod
    def join(header: bytes, body: bytes) -> bytes:
        """Make a content of this framing."""
        return _LENGTH.pack(len(header)) + header + body

    def split(self, content: bytes) -> tuple[bytes, bytes]:
        end = 4 + _LENGTH.unpack_from(content)[0]
        return content[4:end], content[end:]

    def body_size(self, content: bytes) -> int:
        return len(content) - 4 - int(_LENGTH.unpack_from(content)[0])

    def body_sizes(self, contents: Sequence[bytes]) -> list[int]:
        return list(map(self.body_size, contents))

    def columns(self, contents: Sequence[bytes]) -> ContentColumns:
        return ContentColumns((contents,), list(map(len, contents)), self.body_sizes(contents))


NATIVE = NativeFraming()


class CommonHeader:
    """The engine's framing of messages with equal headers. A content is the body; the header is stored here."""

    __slots__ = ("header",)

    def __init__(self, header: bytes) -> None:
        self.header = header

    def split(self, content: bytes) -> tuple[bytes, bytes]:
        return self.header, content

    def body_size(self, content: bytes) -> int:
        return len(content)

    def body_sizes(self, contents: Sequence[bytes]) -> list[int]:
        return list(map(len, contents))

    def columns(self, contents: Sequence[bytes]) -> ContentColumns:
        return ContentColumns.of([_LENGTH.pack(len(self.header)) + self.header] * len(contents), contents)
