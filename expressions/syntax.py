"""The tree of an expression, which the parser makes, the printer prints and the compiler compiles.

Named tuples: frozen dataclasses would take 25 ms to import, for which the first filter would wait.
Source: queues page B.3.
"""

from enum import Enum
from typing import NamedTuple


class Dialect(Enum):
    """The language of an expression. Source: queues page B.2."""

    AMPS = "amps"  # content filters: x-filter
    JMS = "jms"  # selectors: x-selector


AMPS, JMS = Dialect.AMPS, Dialect.JMS

#: Types of constants; None is NULL.
Constant = None | bool | int | float | str


class Literal(NamedTuple):
    """A constant. Numbers are not negative: a sign is a `Sign`."""

    value: Constant


class Step(NamedTuple):
    """One name of a path, and the element of an array (from 0; None: all)."""

    name: str
    element: int | None = None


class Path(NamedTuple):
    """A place in a JSON body."""

    steps: tuple[Step, ...]


class Header(NamedTuple):
    """A header of the message, or one of the predefined names."""

    name: str


class Call(NamedTuple):
    """A function, its name in capitals."""

    name: str
    arguments: "tuple[Node, ...]"


class Sign(NamedTuple):
    """`-` or `+` before a number."""

    sign: str
    operand: "Node"


class Chain(NamedTuple):
    """`first`, then operators of one rank with their right operands, from left to right: + and -, or * / and %."""

    first: "Node"
    rest: "tuple[tuple[str, Node], ...]"


class Comparison(NamedTuple):
    """`=`, `<>`, `<`, `<=`, `>` or `>=`."""

    operator: str
    left: "Node"
    right: "Node"


class Is(NamedTuple):
    """IS NULL or IS NAN."""

    operand: "Node"
    what: str  # NULL or NAN
    negated: bool = False


class In(NamedTuple):
    """Equal to one of the members."""

    operand: "Node"
    members: "tuple[Node, ...]"
    negated: bool = False


class Between(NamedTuple):
    """From `low` to `high`, both included."""

    operand: "Node"
    low: "Node"
    high: "Node"
    negated: bool = False


class Match(NamedTuple):
    """`kind`: `regex` (found anywhere), `text` (the same for a literal text), or `like` (SQL's % and _)."""

    operand: "Node"
    kind: str
    pattern: str
    escape: str | None = None  # for `like`
    negated: bool = False


class Affix(NamedTuple):
    """BEGINS WITH or ENDS WITH one of the members."""

    operand: "Node"
    where: str  # BEGINS or ENDS
    members: "tuple[Node, ...]"
    negated: bool = False


class Not(NamedTuple):
    """Three-valued: NOT unknown is unknown."""

    operand: "Node"


class Logic(NamedTuple):
    """AND or OR of two or more."""

    operator: str
    operands: "tuple[Node, ...]"


Node = Literal | Path | Header | Call | Sign | Chain | Comparison | Is | In | Between | Match | Affix | Not | Logic
#: Nodes with one of three truth values; other nodes are converted to their truth.
CONDITIONS = Comparison | Is | In | Between | Match | Affix | Not | Logic
