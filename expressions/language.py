"""The door of this room: what others use of the language. Patterns have theirs, so that these need not load it all."""

from .errors import ExpressionError, UnsupportedFunction
from .expression import Expression, compiled
from .subject import Subject
from .syntax import AMPS, JMS, Dialect
from .values import Value

__all__ = [
    "AMPS",
    "JMS",
    "Dialect",
    "Expression",
    "ExpressionError",
    "Subject",
    "UnsupportedFunction",
    "Value",
    "compiled",
]
