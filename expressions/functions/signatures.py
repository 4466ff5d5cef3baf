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

SIGNATURES: dict[str, Signature] = {
    # conditions
    "IF": _THREE,
    "COALESCE": _MANY,
    # texts
    "CONCAT": _MANY,
    "UPPER": _ONE,
    "LOWER": _ONE,
    "LENGTH": _ONE,
    "INSTR": _TWO,
    "INSTR_I": _TWO,
    "STREQUAL_I": _TWO,
    "SUBSTR": Signature(2, 3),
    "LEFT": _TWO,
    "RIGHT": _TWO,
    "TRIM": Signature(1, 2),
    "LTRIM": Signature(1, 2),
    "RTRIM": Signature(1, 2),
    "REPLACE": _THREE,
    "REGEXP_REPLACE": Signature(3, 3, literal=1),
    "REVERSE": _ONE,
    "CHAR_VALUE": _ONE,
    "CRC32": _ONE,
    "MD5": _ONE,
    # numbers
    "ABS": _ONE,
    "SIGN": _ONE,
    "FLOOR": _ONE,
    "CEILING": _ONE,
    "ROUND": Signature(1, 2),
    "SQRT": _ONE,
    "POWER": _TWO,
    "EXP": _ONE,
    "LN": _ONE,
    "LOG2": _ONE,
    "LOG10": _ONE,
    "GREATEST": _MANY,
    "LEAST": _MANY,
    # arrays
    "ARRAY_COUNT": _ONE,
    "ARRAY_MAX": _ONE,
    "ARRAY_MIN": _ONE,
    "ARRAY_SUM": _ONE,
    "ARRAY_TO_STRING": Signature(2, 3),
    # times
    "STRFTIME": _TWO,
    "STRPTIME": _TWO,
    # constants
    "TRUE_VALUE": _NONE,
    "FALSE_VALUE": _NONE,
    "NAN_VALUE": _NONE,
    # the message
    "TOPIC_NAME": _NONE,
    "ROUTING_KEY": _NONE,
    "EXCHANGE": _NONE,
    "CORRELATION_ID": _NONE,
    "MESSAGE_SIZE": _NONE,
    "PROPERTY": Signature(1, 1, literal=0),
    "HEADER": Signature(1, 1, literal=0),
    "BOOKMARK": _NONE,
    "LEASE_COUNT": _NONE,
    "LAST_LEASED": _NONE,
    # the use of the expression
    "CLIENT_NAME": _NONE,
    "USER": _NONE,
    "REMOTE_ADDRESS": _NONE,
    "AMPS_INSTANCE_NAME": _NONE,
    "AMPS_GROUP_NAME": _NONE,
}

#: Functions known when the expression is compiled: about its client, and the broker.
OF_CLIENT_AND_BROKER = frozenset({"CLIENT_NAME", "USER", "REMOTE_ADDRESS", "AMPS_INSTANCE_NAME", "AMPS_GROUP_NAME"})
#: Functions whose value changes: refused, because a message is tested once, and the answer is kept.
VOLATILE = frozenset({"UNIX_TIMESTAMP"})
#: Further functions of AMPS.
UNSUPPORTED = frozenset(
    {"ACOS", "ASIN", "ATAN", "ATAN2", "COS", "COT", "CRC64", "DEGREES", "GEO_DISTANCE", "LAST_READ", "LAST_UPDATED"}
    | {"PI", "RADIANS", "SIN", "SOW_KEY", "SOW_KEYS", "TAN", "VALUE_LOOKUP", "WIDTH_BUCKET"}
)

PROPERTY_NAMES = (
    "content_type",
    "content_encoding",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)
