"""Field tables, decoded with the type tags that were on the wire.

Error texts name the type that a client sent, and the equality of values depends on the tags. Limits are checked before
an object is built: the depth of nesting, and sizes against the octets that are left.
Source: behaviour page 0.6.
"""

from collections.abc import Iterator, Mapping
from struct import Struct
from struct import error as StructError
from typing import NamedTuple, TypeAlias

DEPTH_MAX = 64
#: A key is a short string.
KEY_OCTETS_MAX = 255

#: The names of tags in error texts (those of the Erlang client, behaviour page 0.5).
TYPE_NAMES = {
    "S": "longstr",
    "I": "signedint",
    "i": "unsignedint",
    "l": "long",
    "L": "long",
    "s": "short",
    "u": "unsignedshort",
    "b": "byte",
    "B": "unsignedbyte",
    "t": "bool",
    "f": "float",
    "d": "double",
    "D": "decimal",
    "T": "timestamp",
    "F": "table",
    "A": "array",
    "x": "binary",
    "V": "void",
}

INTEGER_TAGS = frozenset("bBsuIilL")
NUMBER_TAGS = INTEGER_TAGS | frozenset("fdD")


class FieldTableError(ValueError):
    """The octets are not a field table: truncated, nested too deep, or with an unknown tag. Or a table cannot be
    encoded: a value does not fit its tag, or a key is too long.
    """


class UnknownFieldTag(FieldTableError):
    """A tag outside the eighteen that AMQP 0-9-1 brokers know."""


class Field(NamedTuple):
    """One value as it was on the wire.

    `value` by tag: int (bBsuIilLT), bool (t), float (fd), bytes (Sx), (scale, int) (D), None (V),
    list[Field] (A; the octets of the items if decoded with `raw`), FieldTable (F).
    """

    tag: str
    value: "FieldData"

    @property
    def type_name(self) -> str:
        """The name of the tag in error texts."""
        return TYPE_NAMES[self.tag]

    @property
    def text(self) -> str:
        """A string value as text (undecodable octets replaced); only for tags S and x."""
        assert isinstance(self.value, bytes)
        return self.value.decode("utf-8", "replace")

    def comparable(self) -> object:
        """A value that equals another one exactly if brokers treat the fields as equal.

        Numbers and timestamps are equal whatever their width, also int and float. A string equals a byte array with the
        same octets. A bool or a decimal never equals a number. Inside tables and arrays types have to be equal, too.
        Tables are equal only with their entries in the same order.
        Source: behaviour page 3.9 (headers); probed on RabbitMQ 3.10.8.
        """
        tag, value = self
        if tag in NUMBER_TAGS or tag == "T":
            return ("number", value)
        if tag in "Sx":
            return ("string", value)
        if isinstance(value, list):
            return ("array", tuple((item.type_name, item.comparable()) for item in value))
        if isinstance(value, dict):
            return ("table", tuple((key, item.type_name, item.comparable()) for key, item in value.items()))
        return (tag, value)


def integer_of(table: "FieldTable", key: str) -> int | None:
    """The integer under a key; None: there is no entry, or it is not an integer."""
    field = table.get(key)
    return field.value if field is not None and field.tag in INTEGER_TAGS and isinstance(field.value, int) else None


def text_of(table: "FieldTable", key: str) -> str | None:
    """The text of the string or byte array under a key; None: there is no entry, or it has another type.

    Not for entries that were decoded with `raw`, whose values are octets, too.
    """
    field = table.get(key)
    return field.text if field is not None and isinstance(field.value, bytes) else None


def number_of(field: Field) -> float:
    """The value of a field of any numeric tag."""
    value = field.value
    if isinstance(value, tuple):
        return float(value[1] / 10 ** value[0])
    assert isinstance(value, int | float)
    return float(value)


FieldTable: TypeAlias = dict[str, Field]
FieldData: TypeAlias = "int | float | bool | bytes | tuple[int, int] | list[Field] | FieldTable | None"

_FIXED = {
    "t": Struct(">?"),
    "b": Struct(">b"),
    "B": Struct(">B"),
    "s": Struct(">h"),
    "u": Struct(">H"),
    "I": Struct(">i"),
    "i": Struct(">I"),
    "l": Struct(">q"),
    "L": Struct(">q"),
    "f": Struct(">f"),
    "d": Struct(">d"),
    "T": Struct(">Q"),
}
_DECIMAL = Struct(">BI")
_LENGTH = Struct(">I")
#: Octets of a value, by the octet of its tag, for tags whose values do not begin with a length.
_SIZES = {ord(tag): fixed.size for tag, fixed in _FIXED.items()} | {ord("V"): 0, ord("D"): _DECIMAL.size}
_STRINGS = frozenset(b"Sx")
_STRING, _TABLE, _ARRAY = b"SFA"
_MEASURED = _STRINGS | {_TABLE, _ARRAY}


def decode_table(data: bytes, start: int = 0, *, raw: str | None = None) -> tuple[FieldTable, int]:
    """Decode the table whose four length octets stand at `start`. Of duplicate keys the first counts.

    `raw`: name of an entry that is not decoded if it is an array of this table, not of one inside it; its value is the
    octets of the items.
    Returns the table and the offset after it. Raises: FieldTableError, UnknownFieldTag.
    """
    begin, end = _span(data, start, len(data))
    return _table(data, begin, end, DEPTH_MAX, raw), end


def decode_array(data: bytes) -> list[Field]:
    """Decode the items of an array. Raises: FieldTableError."""
    return _array(data, 0, len(data), DEPTH_MAX)


def encode_array(items: list[Field]) -> bytes:
    """The inverse of `decode_array`. Raises: as `encode_table`."""
    return b"".join(map(_encode_field, items))


def array_spans(data: bytes) -> list[tuple[int, int]]:
    """(offset, offset after it) of each item of an array, without decoding it. Raises: FieldTableError."""
    position, end = 0, len(data)
    spans = []
    while position < end:
        after = _offset_after(data, position, end)
        spans.append((position, after))
        position = after
    return spans


def _offset_after(data: bytes, position: int, end: int) -> int:
    """The offset after a value, without decoding it."""
    if position >= end:
        raise FieldTableError("a value is missing")
    tag = data[position]
    size = _SIZES.get(tag)
    if size is None:
        if tag not in _MEASURED:
            raise UnknownFieldTag(f"unknown tag {chr(tag)!r}")
        return _span(data, position + 1, end)[1]
    if position + 1 + size > end:
        raise FieldTableError("a value is cut short")
    return position + 1 + size


def decode_bare_table(data: bytes) -> FieldTable:
    """Decode a table without length octets, as AMQPLAIN sends it. Raises: FieldTableError."""
    return _table(data, 0, len(data), DEPTH_MAX)


def _span(data: bytes, start: int, limit: int) -> tuple[int, int]:
    if start + 4 > limit:
        raise FieldTableError("cut short")
    begin = start + 4
    end = begin + _LENGTH.unpack_from(data, start)[0]
    if end > limit:
        raise FieldTableError("longer than what is there")
    return begin, int(end)


def _table(data: bytes, position: int, end: int, depth: int, raw: str | None = None) -> FieldTable:
    if depth <= 0:
        raise FieldTableError("nested too deep")
    table: FieldTable = {}
    while position < end:
        name_end = position + 1 + data[position]
        if name_end > end:
            raise FieldTableError("a key is cut short")
        key = data[position + 1 : name_end].decode("utf-8", "surrogateescape")
        if key == raw and data[name_end : name_end + 1] == b"A":
            begin, position = _span(data, name_end + 1, end)
            field = Field("A", data[begin:position])
        else:
            field, position = _field(data, name_end, end, depth)
        table.setdefault(key, field)
    return table


def _field(data: bytes, position: int, end: int, depth: int) -> tuple[Field, int]:
    if position >= end:
        raise FieldTableError("a value is missing")
    tag = chr(data[position])
    position += 1
    fixed = _FIXED.get(tag)
    if fixed is not None:
        after = position + fixed.size
        if after > end:
            raise FieldTableError("a value is cut short")
        return Field(tag, fixed.unpack_from(data, position)[0]), after
    if tag in "SxFA":
        begin, after = _span(data, position, end)
        if tag == "F":
            return Field(tag, _table(data, begin, after, depth - 1)), after
        if tag == "A":
            return Field(tag, _array(data, begin, after, depth - 1)), after
        return Field(tag, data[begin:after]), after
    if tag == "V":
        return Field(tag, None), position
    if tag == "D":
        if position + 5 > end:
            raise FieldTableError("a value is cut short")
        return Field(tag, _DECIMAL.unpack_from(data, position)), position + 5
    raise UnknownFieldTag(f"unknown tag {tag!r}")


def _array(data: bytes, position: int, end: int, depth: int) -> list[Field]:
    if depth <= 0:
        raise FieldTableError("nested too deep")
    items: list[Field] = []
    while position < end:
        field, position = _field(data, position, end, depth)
        items.append(field)
    return items


class OpenedTable(Mapping[str, Field]):
    """The table whose four length octets stand at `start`. Entries are decoded on access.

    Of duplicate keys the first counts. Raises: FieldTableError, UnknownFieldTag.
    """

    __slots__ = ("_data", "_places")

    def __init__(self, data: bytes, start: int) -> None:
        position, end = _span(data, start, len(data))
        self._data = data
        self._places: dict[str, int] = {}
        while position < end:
            name_end = position + 1 + data[position]
            if name_end > end:
                raise FieldTableError("a key is cut short")
            self._places.setdefault(data[position + 1 : name_end].decode("utf-8", "surrogateescape"), name_end)
            position = _offset_after(data, name_end, end)

    def __getitem__(self, key: str) -> Field:
        return _field(self._data, self._places[key], len(self._data), DEPTH_MAX)[0]

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def scan_table(data: bytes, start: int, marks: frozenset[bytes]) -> tuple[bool, int]:
    """Check the table whose four length octets stand at `start`, without building it.

    `marks`: names of entries, as octets; entries of nested tables do not count.
    Returns whether an entry has one of these names, and the offset after the table.
    Raises: FieldTableError, UnknownFieldTag, as `decode_table` does.
    """
    position, end = _span(data, start, len(data))
    unpack_length = _LENGTH.unpack_from
    is_marked = False
    while position < end:
        name_end = position + 1 + data[position]
        if name_end > end:
            raise FieldTableError("a key is cut short")
        if data[position + 1 : name_end] in marks:
            is_marked = True
        # Most entries are strings: inlined, which saves 0.2 us for each.
        if name_end + 5 <= end and data[name_end] == _STRING:
            position = name_end + 5 + unpack_length(data, name_end + 1)[0]
            if position > end:
                raise FieldTableError("longer than what is there")
        else:
            position = _scan_field(data, name_end, end, DEPTH_MAX)
    return is_marked, end


def _scan_field(data: bytes, position: int, end: int, depth: int) -> int:
    """Check a value and its nested values. Returns the offset after it."""
    after, tag = _offset_after(data, position, end), data[position]
    if tag != _TABLE and tag != _ARRAY:
        return after
    if depth <= 1:
        raise FieldTableError("nested too deep")
    position += 5
    while position < after:
        if tag == _TABLE:
            position += 1 + data[position]
            if position > after:
                raise FieldTableError("a key is cut short")
        position = _scan_field(data, position, after, depth - 1)
    return after


def table_spans(data: bytes, start: int) -> list[tuple[str, int, int]]:
    """(key, offset, offset after it) of each entry of the table whose length octets stand at `start`.

    The values are not decoded. Raises: FieldTableError.
    """
    position, end = _span(data, start, len(data))
    spans = []
    while position < end:
        name_end = position + 1 + data[position]
        if name_end > end:
            raise FieldTableError("a key is cut short")
        after = _offset_after(data, name_end, end)
        spans.append((data[position + 1 : name_end].decode("utf-8", "surrogateescape"), position, after))
        position = after
    return spans


def encode_table(table: FieldTable) -> bytes:
    """The inverse of `decode_table`. Raises: FieldTableError: a value does not fit its tag, or a key is too long."""
    body = b"".join(_encode_key(key) + _encode_field(field) for key, field in table.items())
    return _LENGTH.pack(len(body)) + body


def _encode_key(key: str) -> bytes:
    raw = key.encode("utf-8", "surrogateescape")
    if len(raw) > KEY_OCTETS_MAX:
        raise FieldTableError(f"a key has {len(raw)} octets, more than {KEY_OCTETS_MAX}")
    return bytes((len(raw),)) + raw


def _encode_field(field: Field) -> bytes:
    tag, value = field
    raw_tag = tag.encode("latin-1")
    if isinstance(value, bytes):
        return raw_tag + _LENGTH.pack(len(value)) + value
    if isinstance(value, list):
        items = b"".join(map(_encode_field, value))
        return raw_tag + _LENGTH.pack(len(items)) + items
    if isinstance(value, dict):
        return raw_tag + encode_table(value)
    if value is None:
        return raw_tag
    try:
        return raw_tag + (_DECIMAL.pack(*value) if isinstance(value, tuple) else _FIXED[tag].pack(value))
    except (StructError, OverflowError) as error:
        raise FieldTableError(str(error)) from error
