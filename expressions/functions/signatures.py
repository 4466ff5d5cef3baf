"""All functions and their arguments. The parser checks calls against them.

Source: queues page B.4. STRFTIME and STRPTIME take their arguments in the order of C's functions.
"""

import inspect
from collections.abc import Callable
from typing import NamedTuple

from ..values import NAN, Value
from .numbers import NUMBERS
from .of_message import OF_MESSAGE
from .texts import TEXTS
from .times import TIMES

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


def _signature_of(function: Callable[..., Value]) -> Signature:
    """The arguments of a function after the subject."""
    _, *parameters = inspect.signature(function).parameters.values()
    low = sum(one.default is one.empty for one in parameters)
    is_open = bool(parameters) and parameters[-1].kind is inspect.Parameter.VAR_POSITIONAL
    return Signature(low, ANY if is_open else len(parameters))


CONSTANTS: dict[str, Value] = {"TRUE_VALUE": True, "FALSE_VALUE": False, "NAN_VALUE": NAN}
#: Functions whose value is known when the expression is compiled: about its client, and the broker.
OF_CLIENT_AND_BROKER = ("CLIENT_NAME", "USER", "REMOTE_ADDRESS", "AMPS_INSTANCE_NAME", "AMPS_GROUP_NAME")
#: Functions of values, which `Compiler` calls with a subject and the values of their arguments.
FUNCTIONS: dict[str, Callable[..., Value]] = {**TEXTS, **NUMBERS, **TIMES}

SIGNATURES: dict[str, Signature] = {
    **{name: _signature_of(function) for name, function in {**FUNCTIONS, **OF_MESSAGE}.items()},
    **dict.fromkeys((*CONSTANTS, *OF_CLIENT_AND_BROKER), Signature(0, 0)),
    "IF": Signature(3, 3),
    "COALESCE": Signature(1, ANY),
    **dict.fromkeys(("PROPERTY", "HEADER"), Signature(1, 1, literal=0)),
    "REGEXP_REPLACE": Signature(3, 3, literal=1),
}

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
