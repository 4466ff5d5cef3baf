"""Methods as octets: decoding that is safe on hostile input, and encoding that accepts every name.

pamqp is the catalogue (which methods there are, which arguments of which types) and the oracle in tests. It is not
asked to decode: it recurses in tables, slices quadratically in arrays, ignores what follows the arguments; nor to
encode: its methods refuse names that brokers accept. Source: AMQP 0-9-1 4.2.5; behaviour page 0.6, 1.11.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import ClassVar

from pamqp import base, commands

from ..engine import FieldTable, FieldTableError, UnknownFieldTag, decode_table, encode_table
from .peer_errors import BadFieldTable, MalformedShortString, UndecodableArguments
from .wire import FRAME_END_OCTET, METHOD, METHOD_HEAD

Method = base.Frame


class AccessRequest(base.Frame):
    """access.request (30, 10): deprecated and granted; pamqp does not have it. Source: AMQP 0-8 1.3."""

    __slots__: ClassVar[list[str]] = ["realm", "exclusive", "passive", "active", "write", "read"]
    index = 0x001E000A
    name = "Access.Request"
    _realm = "shortstr"
    _exclusive = _passive = _active = _write = _read = "bit"


class AccessRequestOk(base.Frame):
    """access.request-ok (30, 11)."""

    __slots__: ClassVar[list[str]] = ["ticket"]
    index = 0x001E000B
    name = "Access.RequestOk"
    _ticket = "short"


#: Class and method id in one number -> method class.
METHODS: dict[int, type[Method]] = {**commands.INDEX_MAPPING, 0x001E000A: AccessRequest, 0x001E000B: AccessRequestOk}


def spec_name(method: type[Method]) -> str:
    """The name of a method in the specification: queue.declare-ok, for which pamqp has Queue.DeclareOk."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", method.name).lower()


#: Name in the specification -> class and method id in one number; and back.
INDEX_OF = {spec_name(method): index for index, method in METHODS.items()}
NAME_OF = {index: name for name, index in INDEX_OF.items()}

#: Method class -> its arguments as (name, type), in wire order.
_FIELDS: dict[type[Method], list[tuple[str, str]]] = {
    method: [(name, method.amqp_type(name)) for name in method.__slots__] for method in METHODS.values()
}

_INTEGERS = {"octet": Struct(">B"), "short": Struct(">H"), "long": Struct(">I"), "longlong": Struct(">Q")}
_LONG = _INTEGERS["long"]


def ids_of(index: int) -> tuple[int, int]:
    """Class id and method id."""
    return index >> 16, index & 0xFFFF


def decode_method(method: type[Method], arguments: bytes) -> Method:
    """A method object from its argument octets; tables become `FieldTable`s, long strings stay bytes.

    Raises: UndecodableArguments (cut short, or more than the arguments), MalformedShortString, BadFieldTable.
    """
    made = method.__new__(method)
    position = 0
    bit = 0  # of the octet at `position`; 0 = not inside one
    size = len(arguments)
    try:
        for name, kind in _FIELDS[method]:
            if kind == "bit":
                if bit == 8:
                    position, bit = position + 1, 0
                setattr(made, name, bool(arguments[position] >> bit & 1))
                bit += 1
                continue
            if bit:
                position, bit = position + 1, 0
            value, position = _DECODERS[kind](arguments, position)
            setattr(made, name, value)
    except IndexError:
        raise UndecodableArguments(arguments=arguments) from None
    except FieldTableError as error:
        if isinstance(error, UnknownFieldTag) or "deep" in str(error):
            raise BadFieldTable(why=f"field table: {error}") from None
        raise UndecodableArguments(arguments=arguments) from None
    if position + (bit > 0) != size:
        raise UndecodableArguments(arguments=arguments)
    return made


#: What most peers send word for word alike, and what holds no secret.
_SENT_ALIKE = frozenset(
    {
        commands.Basic.Qos,
        commands.Channel.Close,
        commands.Channel.CloseOk,
        commands.Channel.Open,
        commands.Confirm.Select,
        commands.Connection.Close,
        commands.Connection.CloseOk,
        commands.Connection.Open,
        commands.Connection.TuneOk,
    }
)


def received_method(method: type[Method], arguments: bytes) -> Method:
    """As `decode_method`; nobody changes what this returns: peers that send the same octets share it."""
    return _decoded_once(method, arguments) if method in _SENT_ALIKE else decode_method(method, arguments)


_decoded_once: Callable[..., Method] = lru_cache(maxsize=256)(decode_method)


def _decode_shortstr(data: bytes, position: int) -> tuple[str, int]:
    start = position + 1
    end = start + data[position]
    if end > len(data):
        raise IndexError
    try:
        return data[start:end].decode(), end
    except UnicodeDecodeError:
        raise MalformedShortString from None


def _decode_longstr(data: bytes, position: int) -> tuple[bytes, int]:
    start = position + 4
    if start > len(data):
        raise IndexError
    end = start + _LONG.unpack_from(data, position)[0]
    if end > len(data):
        raise IndexError
    return data[start:end], end


def _integer_decoder(layout: Struct) -> Callable[[bytes, int], tuple[int, int]]:
    width, unpack_from = layout.size, layout.unpack_from

    def decode(data: bytes, position: int) -> tuple[int, int]:
        end = position + width
        if end > len(data):
            raise IndexError
        return unpack_from(data, position)[0], end

    return decode


_DECODERS: dict[str, Callable[[bytes, int], tuple[object, int]]] = {
    "shortstr": _decode_shortstr,
    "longstr": _decode_longstr,
    "table": decode_table,
    **{kind: _integer_decoder(layout) for kind, layout in _INTEGERS.items()},
}


def encode_method(channel: int, method: type[Method], *values: object) -> bytes:
    """A whole method frame. `values` in wire order: int, bool (bits), str or bytes (strings), FieldTable."""
    parts: list[bytes] = []
    octet = bit = 0
    for (_, kind), value in zip(_FIELDS[method], values, strict=True):
        if kind == "bit":
            octet |= bool(value) << bit
            bit += 1
            continue
        if bit:
            parts.append(bytes((octet,)))
            octet = bit = 0
        parts.append(_encode(kind, value))
    if bit:
        parts.append(bytes((octet,)))
    arguments = b"".join(parts)
    return METHOD_HEAD.pack(METHOD, channel, len(arguments) + 4, method.index) + arguments + FRAME_END_OCTET


#: Answers whose octets are few: those without arguments, and those that all peers get alike.
_ANSWERED_ALIKE = frozenset(
    {
        *(method for method, fields in _FIELDS.items() if not fields),
        commands.Channel.OpenOk,
        commands.Connection.OpenOk,
        commands.Connection.Tune,
    }
)


def answer_frame(channel: int, method: type[Method], *values: object) -> bytes:
    """As `encode_method`; what is often sent is made once."""
    if method in _ANSWERED_ALIKE:
        return _encoded_once(channel, method, *values)
    return encode_method(channel, method, *values)


_encoded_once: Callable[..., bytes] = lru_cache(maxsize=256)(encode_method)


def _encode(kind: str, value: object) -> bytes:
    if kind == "shortstr":
        raw = value.encode() if isinstance(value, str) else value
        assert isinstance(raw, bytes)
        return bytes((len(raw),)) + raw
    if kind == "longstr":
        raw = value.encode() if isinstance(value, str) else value
        assert isinstance(raw, bytes)
        return _LONG.pack(len(raw)) + raw
    if kind == "table":
        table: FieldTable = value  # type: ignore[assignment]
        return encode_table(table)
    return _INTEGERS[kind].pack(value)
