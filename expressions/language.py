"""The interface of this room: the parts of the language for other rooms. Patterns have their own, so that they load
alone.
"""

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
