"""Shapes: the common octets of property lists that differ only in ids, timestamps and values of headers.

Clients put a unique id into each message, so no property list occurs twice. The octets of a shape determine validity
and summary: every list of this length with these octets is valid and has the same summary. To find the shape of a list
of 200 octets takes 0.3 us (two numbers are compared); to scan the list takes 2 us.
"""

from .content import PROPERTIES, REPLY_TO_ME, PropertySummary
from .field_table import table_spans

#: The properties whose values determine each field of a `PropertySummary`. New fields and marks must be added here.
SOURCES = {
    "persistent": ("delivery_mode",),
    "priority": ("priority",),
    "expiration": ("expiration",),
    "user_id": ("user_id",),
    "has_headers": (),
    "is_marked": ("headers", "reply_to"),
}
#: Properties whose octets all belong to the shape. Of `headers` all but the values belong to it; `reply_to` does only
#: if it may be `REPLY_TO_ME`.
_FIXED = {name for names in SOURCES.values() for name in names} - {"headers", "reply_to"}

#: Maximum length of a list with a shape, in octets, because long numbers are slow to compare and take memory.
SIZE_MAX = 1024
#: Maximum number of shapes: of lists of one length, and in total.
ALIKE_MAX = 8
SHAPES_MAX = 256
#: Scanned or recognized lists per new shape, because making a shape takes as long as scanning several lists. The first
#: shape is made after `-CREDIT_FIRST` lists; `CREDIT_MAX` limits the saved credit.
COST = 32
CREDIT_FIRST = -8
CREDIT_MAX = 1024

#: (mask, value, summary): a list, read as one number, has this summary if `number & mask == value`.
Shape = tuple[int, int, PropertySummary]


class Shapes:
    """The shapes of the property lists of one connection. Their number is limited whatever the peer sends.

    `by_length`: length of a property list in octets -> its shapes. Readers may keep the list of shapes of a length: it
    is updated in place.
    """

    __slots__ = ("_count", "_credit", "by_length")

    def __init__(self) -> None:
        self.by_length: dict[int, list[Shape]] = {}
        self._count = 0
        self._credit = CREDIT_FIRST

    def summary_of(self, properties: bytes) -> PropertySummary | None:
        """The summary of a property list; None: its shape is not known."""
        shape = self.find(properties)
        if shape is None:
            return None
        self._credit += self._credit < CREDIT_MAX
        return shape[2]

    def find(self, properties: bytes) -> Shape | None:
        """The shape of a property list; None: it is not known."""
        shapes = self.by_length.get(len(properties))
        if shapes:
            number = int.from_bytes(properties, "big")
            for shape in shapes:
                if number & shape[0] == shape[1]:
                    return shape
        return None

    def of_length(self, size: int) -> list[Shape] | None:
        """The shapes of property lists of `size` octets: a list that later shapes join. None: above `SIZE_MAX`."""
        return self.by_length.setdefault(size, []) if size <= SIZE_MAX else None

    def learn(self, properties: bytes, summary: PropertySummary) -> bool:
        """Make a shape of a property list without one, unless it costs more than it saves (`COST`).

        `summary`: that of the list. A marked or long (`SIZE_MAX`) list gets none. Returns whether a shape was made.
        """
        if self._credit < CREDIT_MAX:
            self._credit += 1
        if self._credit < 0 or summary.is_marked:
            return False
        shapes = self.of_length(len(properties))
        if shapes is None:
            return False
        self._credit -= COST
        if self._count >= SHAPES_MAX:
            self._count = 0
            for others in self.by_length.values():
                others.clear()
        if len(shapes) >= ALIKE_MAX:
            self._count -= len(shapes)
            shapes.clear()
        mask = int.from_bytes(fixed_octets(properties), "big")
        shapes.append((mask, int.from_bytes(properties, "big") & mask, summary))
        self._count += 1
        return True


def fixed_octets(properties: bytes) -> bytes:
    """For each octet of a valid, unmarked property list: 255 if its summary or validity depends on the octet, else 0.

    Summary and validity depend on flags, lengths, tags and names of headers, whole nested tables, and `SOURCES`.
    """
    fixed = bytearray(b"\xff" * len(properties))
    flags = int.from_bytes(properties[:2], "big")
    position = 2
    for name, bit, kind in PROPERTIES:
        if not flags & bit:
            continue
        if kind == "table":
            for _, first, end in table_spans(properties, position):
                _release_value(fixed, properties, first, end)
            position += 4 + int.from_bytes(properties[position : position + 4], "big")
            continue
        length = properties[position] if kind == "shortstr" else 8 if kind == "longlong" else 1
        start = position + (kind == "shortstr")
        position = start + length
        if name not in _FIXED and not (name == "reply_to" and length == len(REPLY_TO_ME)):
            fixed[start:position] = bytes(length)
    return bytes(fixed)


def _release_value(fixed: bytearray, properties: bytes, first: int, end: int) -> None:
    """Clear the octets of a header's value, which may be any value of that length; tables and arrays stay fixed.

    `first`, `end`: of the entry.
    """
    tag = first + 1 + properties[first]
    if properties[tag] in b"FA":
        return
    start = tag + (5 if properties[tag] in b"Sx" else 1)
    fixed[start:end] = bytes(end - start)
