"""Methods as octets: decoding that is safe on hostile input, and encoding that accepts every name.

pamqp is the catalogue (methods, their arguments and types; the same in 3.3 and 4) and the oracle in tests. Its decoder
is not used: it recurses in tables, slices quadratically in arrays, ignores octets after the arguments, and that of 3.x
hangs on some octets. Nor is its encoder: it refuses names that brokers accept. Source: AMQP 0-9-1 4.2.5; behaviour page
0.6, 1.11.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import groupby
from struct import Struct
from typing import Any, ClassVar

from pamqp import base, commands

from ...engine import FieldTableError, UnknownFieldTag, decode_table, encode_table
from .layout import FRAME_END_OCTET, METHOD, METHOD_HEAD
from .peer_errors import BadFieldTable, MalformedShortString, PeerError, UndecodableArguments

Method = base.Frame


class AccessRequest(base.Frame):
    """access.request (30, 10): obsolete, and always granted; pamqp does not have it. Source: AMQP 0-8 1.3."""

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


def _fields(method: type[Method]) -> list[tuple[tuple[str, ...], str]]:
    """A method's arguments as (names, type), in wire order. Bits are one entry: no method has more than eight."""
    kinds = [(name, method.amqp_type(name)) for name in method.__slots__]
    runs = [(kind, tuple(name for name, _ in run)) for kind, run in groupby(kinds, lambda field: field[1])]
    return [(part, kind) for kind, names in runs for part in ((names,) if kind == "bit" else ((one,) for one in names))]


_FIELDS = {method: _fields(method) for method in METHODS.values()}

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
    try:
        for names, kind in _FIELDS[method]:
            if kind == "bit":
                octet = arguments[position]
                position += 1
                for bit, name in enumerate(names):
                    setattr(made, name, octet >> bit & 1 == 1)
            else:
                value, position = _DECODERS[kind](arguments, position)
                setattr(made, names[0], value)
    except IndexError:
        raise UndecodableArguments(arguments=arguments) from None
    except FieldTableError as error:
        # These are 502, other faults 501. Nesting that is too deep has no class of its own: its text is tested.
        if isinstance(error, UnknownFieldTag) or "deep" in str(error):
            raise BadFieldTable(why=f"field table: {error}") from None
        raise UndecodableArguments(arguments=arguments) from None
    if position != len(arguments):
        raise UndecodableArguments(arguments=arguments)
    return made


#: Methods that most peers send with the same octets, without secrets.
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


def received_method(index: int, arguments: bytes) -> Method:
    """Like `decode_method`, with errors that name the method.

    The result must not be changed: peers that send the same octets share it.
    """
    method = METHODS[index]
    try:
        if method in _SENT_ALIKE:
            return _decoded_once(method, arguments)
        return (
            _received_start_ok(arguments) if method is commands.Connection.StartOk else decode_method(method, arguments)
        )
    except PeerError as error:
        error.ids = ids_of(index)
        raise


_decoded_once: Callable[..., Method] = lru_cache(maxsize=256)(decode_method)


def _received_start_ok(arguments: bytes) -> Method:
    """Decode start-ok. Only the client's properties, most of it, are cached: the rest has the password."""
    size = 4 + int.from_bytes(arguments[:4], "big")
    if size <= _PROPERTIES_MAX:
        try:
            known = _properties_once(commands.Connection.StartOk, arguments[:size] + _NO_LOGIN)
            made: Any = decode_method(commands.Connection.StartOk, _NO_PROPERTIES + arguments[size:])
            made.client_properties = known.client_properties
            return made  # type: ignore[no-any-return]
        except PeerError:
            pass  # decoding all of it below raises the error
    return decode_method(commands.Connection.StartOk, arguments)


#: Maximum octets of client properties that are cached; each of 32 entries may take 50 KB when decoded.
_PROPERTIES_MAX = 1024
_NO_PROPERTIES = bytes(4)
#: No mechanism, no response, no locale.
_NO_LOGIN = bytes(1 + 4 + 1)
_properties_once: Callable[..., Any] = lru_cache(maxsize=32)(decode_method)


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
    position = 0
    for names, kind in _FIELDS[method]:
        if kind == "bit":
            octet = 0
            for bit in range(len(names)):
                octet |= bool(values[position + bit]) << bit
            parts.append(bytes((octet,)))
        else:
            parts.append(_ENCODERS[kind](values[position]))
        position += len(names)
    assert position == len(values), method
    arguments = b"".join(parts)
    return METHOD_HEAD.pack(METHOD, channel, len(arguments) + 4, method.index) + arguments + FRAME_END_OCTET


#: Answers that most peers get with the same octets: without arguments, or with arguments that are the same for all.
_ANSWERED_ALIKE = frozenset(
    {
        *(method for method, fields in _FIELDS.items() if not fields),
        commands.Channel.OpenOk,
        commands.Connection.OpenOk,
        commands.Connection.Tune,
    }
)


def answer_frame(channel: int, method: type[Method], *values: object) -> bytes:
    """Like `encode_method`, with a cache for answers that are sent often."""
    if method in _ANSWERED_ALIKE:
        return _encoded_once(channel, method, *values)
    return encode_method(channel, method, *values)


_encoded_once: Callable[..., bytes] = lru_cache(maxsize=256)(encode_method)


def _encode_shortstr(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return bytes((len(raw),)) + raw


def _encode_longstr(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return _LONG.pack(len(raw)) + raw


_ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "shortstr": _encode_shortstr,
    "longstr": _encode_longstr,
    "table": encode_table,
    **{kind: layout.pack for kind, layout in _INTEGERS.items()},
}
