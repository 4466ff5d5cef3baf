# mypy: implicit-reexport
# ruff: noqa: F401 - imported for others
"""The interface of this room for other rooms. Patterns are imported from their own modules, which load faster."""

from .errors import ExpressionError, UnsupportedFunction
from .expression import Expression, compiled
from .subject import Subject
from .syntax import AMPS, JMS, Dialect
from .values import Value
