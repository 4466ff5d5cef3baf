"""The table of functions and their arguments. The parser checks calls against it.

Source: queues page B.4. STRFTIME and STRPTIME take their arguments in the order of C's functions.
"""

from typing import NamedTuple

ANY = 1000


class Signature(NamedTuple):
    """`low` to `high` arguments; `literal`: the argument, from 0, that must be a quoted text."""

    low: int
    high: int
    literal: int | None = None

    def takes(self, count: int) -> bool:
        """Whether this number of arguments is allowed."""
        return self.low <= count <= self.high

    @property
    def wanted(self) -> str:
        """The number of arguments as text."""
        if self.high == ANY:
            return f"{self.low} or more arguments"
        if self.low == self.high:
            return f"{self.low} argument{'' if self.low == 1 else 's'}"
        return f"{self.low} to {self.high} arguments"


_NONE, _ONE, _TWO, _THREE, _MANY = Signature(0, 0), Signature(1, 1), Signature(2, 2), Signature(3, 3), Signature(1, ANY)

_OF_CLIENT_AND_BROKER = ("CLIENT_NAME", "USER", "REMOTE_ADDRESS", "AMPS_INSTANCE_NAME", "AMPS_GROUP_NAME")

#: Signature -> its functions.
_FUNCTIONS: dict[Signature, tuple[str, ...]] = {
    _NONE: (
        "TRUE_VALUE", "FALSE_VALUE", "NAN_VALUE",
        # Of the message:
        "TOPIC_NAME", "ROUTING_KEY", "EXCHANGE", "CORRELATION_ID", "MESSAGE_SIZE", "BOOKMARK", "LEASE_COUNT",
        "LAST_LEASED",
        *_OF_CLIENT_AND_BROKER,
    ),
    _ONE: (
        # Of texts:
        "UPPER", "LOWER", "LENGTH", "REVERSE", "CHAR_VALUE", "CRC32", "MD5",
        # Of numbers:
        "ABS", "SIGN", "FLOOR", "CEILING", "SQRT", "EXP", "LN", "LOG2", "LOG10",
        # Of arrays:
        "ARRAY_COUNT", "ARRAY_MAX", "ARRAY_MIN", "ARRAY_SUM",
    ),
    _TWO: ("INSTR", "INSTR_I", "STREQUAL_I", "LEFT", "RIGHT", "POWER", "STRFTIME", "STRPTIME"),
    _THREE: ("IF", "REPLACE"),
    _MANY: ("COALESCE", "CONCAT", "GREATEST", "LEAST"),
    Signature(1, 2): ("TRIM", "LTRIM", "RTRIM", "ROUND"),
    Signature(2, 3): ("SUBSTR", "ARRAY_TO_STRING"),
    Signature(1, 1, literal=0): ("PROPERTY", "HEADER"),
    Signature(3, 3, literal=1): ("REGEXP_REPLACE",),
}  # fmt: skip
SIGNATURES = {name: signature for signature, names in _FUNCTIONS.items() for name in names}

#: Functions whose value is known when the expression is compiled: about its client, and the broker.
OF_CLIENT_AND_BROKER = frozenset(_OF_CLIENT_AND_BROKER)
#: Functions whose value changes: refused, because a message is tested once, and the answer is kept.
VOLATILE = frozenset({"UNIX_TIMESTAMP"})
#: Further functions of AMPS.
UNSUPPORTED = frozenset(
    {"ACOS", "ASIN", "ATAN", "ATAN2", "COS", "COT", "CRC64", "DEGREES", "GEO_DISTANCE", "LAST_READ", "LAST_UPDATED"}
    | {"PI", "RADIANS", "SIN", "SOW_KEY", "SOW_KEYS", "TAN", "VALUE_LOOKUP", "WIDTH_BUCKET"}
)

PROPERTY_NAMES = (
    "content_type", "content_encoding", "delivery_mode", "priority", "correlation_id", "reply_to", "expiration",
    "message_id", "timestamp", "type", "user_id", "app_id", "cluster_id",
)  # fmt: skip
