"""An expression ready for use: a filter, or a value computed from a message.

Source: queues page B.2 (choice 4: a message matches only if the filter is true).
"""

from collections.abc import Mapping

from .comparing import CONVERTING_SELECTORS, FILTERS, SELECTORS, Rules
from .compiling import Compiler
from .errors import ExpressionError
from .parser import parse
from .paths import Evaluate
from .printing import printed
from .subject import Subject
from .syntax import AMPS, Dialect
from .values import TooCostly, Value

NO_VALUES: Mapping[str, Value] = {}


class Expression:
    """An expression; made by `compiled`. `text`: its normal form. `reads_body`: it has paths.

    `key`: filters with equal keys match the same messages.
    """

    __slots__ = ("_compiler", "_condition", "_evaluate", "_tree", "dialect", "key", "reads_body", "text")

    def __init__(self, text: str, dialect: Dialect, client_values: Mapping[str, Value]) -> None:
        self._tree, converts = parse(text, dialect)
        self._compiler = compiler = Compiler(_rules_of(dialect, converts), client_values)
        self._evaluate: Evaluate | None = None  # made on first use: a filter needs none
        try:
            self._condition = compiler.condition(self._tree)
        except TooCostly:
            raise ExpressionError(text, 0, "the part that does not depend on the message takes too long") from None
        self.dialect = dialect
        self.text = printed(self._tree, dialect, converts=converts)
        used = tuple((name, client_values.get(name)) for name in sorted(compiler.used))
        self.key: tuple[object, ...] = (dialect, self.text, used)
        self.reads_body = compiler.reads_body

    def matches(self, subject: Subject) -> bool:
        """Whether the message matches: the expression is true, neither false nor unknown. Raises nothing."""
        return self.truth(subject) is True

    def truth(self, subject: Subject) -> bool | None:
        """True, false, or None: unknown, also if it took too long."""
        subject.spent = 0
        try:
            return self._condition(subject)
        except TooCostly:
            return None

    def value(self, subject: Subject) -> Value:
        """The value of the expression for a message; None: NULL."""
        subject.spent = 0
        try:
            if self._evaluate is None:
                self._evaluate = self._compiler.value(self._tree).evaluate
            return self._evaluate(subject)
        except TooCostly:
            return None

    def __repr__(self) -> str:
        return f"<Expression {self.dialect.value} {self.text}>"


def _rules_of(dialect: Dialect, converts: bool) -> Rules:
    if dialect is AMPS:
        return FILTERS
    return CONVERTING_SELECTORS if converts else SELECTORS


def compiled(text: str, dialect: Dialect, client_values: Mapping[str, Value] = NO_VALUES) -> Expression:
    """An expression. `client_values`: the values of CLIENT_NAME, USER, REMOTE_ADDRESS and the names of the broker.

    Raises: ExpressionError, UnsupportedFunction.
    """
    return Expression(text, dialect, client_values)
