"""The hash of a binding's arguments in its properties key: `erlang:phash2` of the table as an Erlang term.

Scripts and Terraform store RabbitMQ's properties keys, so a table must have the same hash here. As a term, a table is a
list of `{Key, Type, Value}`, and an array is a list of `{Type, Value}`. `phash2` is Bob Jenkins' hash of 1996 over
words of 32 bits. In all functions, `hashed` is the hash of what comes before.
"""

import struct

from ...engine import Field, FieldTable

_BITS = 0xFFFFFFFF
_GOLDEN = 0x9E3779B9
#: The constant that is mixed in for each kind of term: a multiple of the golden ratio.
_SMALL, _NIL, _ATOM, _TUPLE, _NEGATIVE, _POSITIVE, _FLOAT, _BINARY = (
    _GOLDEN * factor & _BITS for factor in (1, 2, 3, 9, 10, 11, 12, 13)
)
_NIL_TAG = 2
#: phash2([]).
_EMPTY_LIST = 3468870702
_SMALL_BITS = 27


def hash_of_arguments(arguments: FieldTable) -> int:
    """The hash of 32 bits. RabbitMQ sorts the keys of a binding's arguments, but not those of nested tables."""
    return _table(dict(sorted(arguments.items(), key=lambda item: _key(item[0]))), 0)


def _key(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _table(table: FieldTable, hashed: int) -> int:
    for name, field in table.items():
        hashed = _field(field, _binary(_key(name), _word(3, hashed, _TUPLE)))
    return _end_of_list(hashed)


def _field(field: Field, hashed: int) -> int:
    """Mix in a type and a value."""
    hashed, value = _atom(field.type_name, hashed), field.value
    if value is None or isinstance(value, bool):
        return _atom("undefined" if value is None else str(value).lower(), hashed)
    if isinstance(value, int):
        return _integer(value, hashed)
    if isinstance(value, float):
        low, high = struct.unpack("<II", struct.pack("<d", value or 0.0))  # -0.0 is 0.0
        return _words(high, low, hashed, _FLOAT)
    if isinstance(value, bytes):
        return _binary(value, hashed)
    if isinstance(value, tuple):  # a decimal
        return _integer(value[1], _integer(value[0], _word(2, hashed, _TUPLE)))
    if isinstance(value, dict):
        return _table(value, hashed)
    for item in value:
        hashed = _field(item, _word(2, hashed, _TUPLE))
    return _end_of_list(hashed)


def _end_of_list(hashed: int) -> int:
    return _word(_NIL_TAG, hashed, _NIL) if hashed else _EMPTY_LIST


def _atom(name: str, hashed: int) -> int:
    """Mix in an atom, by its hash in Erlang's table of atoms, which is P. J. Weinberger's hash."""
    own = 0
    for octet in name.encode():
        own = (own << 4) + octet
        over = own & 0xF0000000
        own ^= over >> 24 | over
    return _word(own, hashed, _ATOM)


def _integer(value: int, hashed: int) -> int:
    if -(1 << _SMALL_BITS) <= value < 1 << _SMALL_BITS:
        hashed = _word(-value, hashed, _SMALL) if value < 0 else hashed
        return _word(value & _BITS, hashed, _SMALL)
    return _words(abs(value) & _BITS, abs(value) >> 32, hashed, _NEGATIVE if value < 0 else _POSITIVE)


def _binary(octets: bytes, hashed: int) -> int:
    a = b = _GOLDEN
    c = _BINARY + hashed & _BITS
    if not octets:
        return c
    whole = len(octets) - len(octets) % 12
    for x, y, z in struct.iter_unpack("<III", octets[:whole]):
        a, b, c = _mixed(a + x, b + y, c + z & _BITS)
    # The rest. The lowest octet of the third word is 0: the length of all octets is added to that word.
    x, y, z = struct.unpack("<III", octets[whole:].ljust(11, b"\0")[:8] + b"\0" + octets[whole:].ljust(11, b"\0")[8:])
    return _mixed(a + x, b + y, c + z + len(octets) & _BITS)[2]


def _word(word: int, hashed: int, kind: int) -> int:
    return _words(word, 0, hashed, kind)


def _words(first: int, second: int, hashed: int, kind: int) -> int:
    return _mixed(kind + first, kind + second, hashed)[2]


def _mixed(a: int, b: int, c: int) -> tuple[int, int, int]:
    """Jenkins' mix of three words. The third one is the new hash."""
    for right, left, last in ((13, 8, 13), (12, 16, 5), (3, 10, 15)):
        a = (a - b - c & _BITS) ^ c >> right
        b = (b - c - a & _BITS) ^ a << left & _BITS
        c = (c - a - b & _BITS) ^ b >> last
    return a, b, c
