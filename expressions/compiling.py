"""Compiles a tree to closures: each node becomes a function of the subject, which calls the functions of its parts.

Parts that do not depend on the message are computed once. Comparisons with a constant, which are common, have their own
closures. `Like` matches the patterns of LIKE.
Source: queues page B.2, B.5; docs/decisions/0015-one-parser-of-our-own.md (measured).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from .comparing import MIRRORED, OPERATORS, Rules, any_equal, comparison
from .functions.numbers import ARITHMETIC
from .functions.of_message import OF_MESSAGE, PREDEFINED
from .functions.signatures import CONSTANTS, FUNCTIONS, OF_CLIENT_AND_BROKER
from .functions.texts import regexp_replace
from .paths import Evaluate, compiled_path
from .patterns.searching import Charge, Searcher
from .subject import Subject
from .syntax import (
    CONDITIONS,
    Affix,
    Between,
    Call,
    Chain,
    Comparison,
    Header,
    In,
    Is,
    Literal,
    Logic,
    Match,
    Node,
    Not,
    Path,
    Sign,
)
from .values import NAN, Value, any_of, elements, number_of, text_of

#: Maximum length of a text in which patterns are searched; beyond it the result is unknown (queues page B.2, choice
#: 10).
MATCHED_MAX = 64 * 1024
_EMPTY = (str, list)

#: Computes True, False, or None for unknown.
Condition = Callable[[Subject], "bool | None"]


class _NoMessage(Subject):
    """The message for computing constants."""

    def body(self) -> bytes:
        return b""

    def headers(self) -> Mapping[str, Value]:
        return {}

    def property(self, name: str) -> int | str | None:
        return None


class Compiled(NamedTuple):
    """`constant`: the value does not depend on the message."""

    evaluate: Evaluate
    constant: bool = False


class Compiler:
    """Compiles the nodes of one expression.

    `client_values`: values of the functions about the client and the broker (CLIENT_NAME, ...). `used`: the names of
    those that the expression calls.
    """

    def __init__(self, rules: Rules, client_values: Mapping[str, Value]) -> None:
        self.rules = rules
        self.client_values = client_values
        self.used: set[str] = set()
        self.reads_body = False
        self._no_message = _NoMessage("", "")

    # -- conditions ---------------------------------------------------------------------------------------------------

    def condition(self, node: Node) -> Condition:
        """A function that computes the truth of a node."""
        if isinstance(node, Logic):
            parts = [self.condition(one) for one in node.operands]
            return _joined(parts, decisive=node.operator == "OR")
        if isinstance(node, Not):
            return _negated(self.condition(node.operand))
        if isinstance(node, Comparison):
            return self._comparison(node)
        if isinstance(node, Is):
            return self._is(node)
        if isinstance(node, In | Between | Match | Affix):
            answer = self._relation(node)
            return _negated(answer) if node.negated else answer
        truth = self.rules.truth
        evaluate = self.value(node).evaluate
        return lambda subject: truth(evaluate(subject))

    def _comparison(self, node: Comparison) -> Condition:
        left, right = self.value(node.left), self.value(node.right)
        symbol = node.operator
        if left.constant and not right.constant:
            left, right, symbol = right, left, MIRRORED[symbol]
        compare = comparison(symbol, self.rules)
        value_of, other_of = left.evaluate, right.evaluate
        if not right.constant:
            return lambda subject: compare(value_of(subject), other_of(subject), subject)
        other = other_of(self._no_message)
        kind = type(other)
        # The same as `compare` if both are of this type: neither is NULL, NaN, or to be converted.
        if kind is int or (kind is str and (self.rules.orders_texts or symbol in ("=", "<>"))):
            quick = OPERATORS[symbol]

            def same(subject: Subject) -> bool | None:
                value = value_of(subject)
                return quick(value, other) if type(value) is kind else compare(value, other, subject)

            return same
        return lambda subject: compare(value_of(subject), other, subject)

    def _is(self, node: Is) -> Condition:
        evaluate, negated = self.value(node.operand).evaluate, node.negated
        if node.what == "NULL":
            return lambda subject: (evaluate(subject) is None) != negated

        def is_nan(subject: Subject) -> bool | None:
            value = evaluate(subject)
            return (isinstance(value, float) and value != value) != negated

        return is_nan

    def _relation(self, node: "In | Between | Match | Affix") -> Condition:
        evaluate = self.value(node.operand).evaluate
        if isinstance(node, In):
            return self._in(evaluate, [self.value(one) for one in node.members])
        if isinstance(node, Between):
            return self._between(evaluate, self.value(node.low).evaluate, self.value(node.high).evaluate)
        if isinstance(node, Match):
            return self._match(evaluate, node)
        return self._affix(evaluate, node.where, [self.value(one) for one in node.members])

    def _in(self, evaluate: Evaluate, members: Sequence[Compiled]) -> Condition:
        equal = comparison("=", self.rules)
        if not all(one.constant for one in members):
            several = [one.evaluate for one in members]
            return lambda subject: any_equal(equal, evaluate(subject), (one(subject) for one in several), subject)
        values = [one.evaluate(self._no_message) for one in members]
        kinds = set(map(type, values))
        kind = kinds.pop() if len(kinds) == 1 else None
        if kind is not str and kind is not int:
            return lambda subject: any_equal(equal, evaluate(subject), values, subject)
        known = frozenset(values)

        def is_member(subject: Subject) -> bool | None:
            value = evaluate(subject)
            return value in known if type(value) is kind else any_equal(equal, value, values, subject)

        return is_member

    def _between(self, evaluate: Evaluate, low_of: Evaluate, high_of: Evaluate) -> Condition:
        at_least, at_most, empty = comparison(">=", self.rules), comparison("<=", self.rules), self.rules.empty

        def is_between(subject: Subject) -> bool | None:
            value, low, high = evaluate(subject), low_of(subject), high_of(subject)
            if type(value) is not list:
                return _both(at_least(value, low, subject), at_most(value, high, subject))
            each = elements(value, empty)
            return any_of(_both(at_least(one, low, subject), at_most(one, high, subject)) for one in each)

        return is_between

    def _match(self, evaluate: Evaluate, node: Match) -> Condition:
        matches, only_texts, empty = _matcher(node), node.kind == "like", self.rules.empty

        def matched(value: Value, subject: Subject) -> bool | None:
            if type(value) is not str:
                if value is None or isinstance(value, dict):
                    return None
                if isinstance(value, list):
                    return any_of(matched(one, subject) for one in elements(value, empty))
                if only_texts:
                    return False
            text = text_of(value)
            if text is None or len(text) > MATCHED_MAX:
                return None
            return matches(text, subject)

        return lambda subject: matched(evaluate(subject), subject)

    def _affix(self, evaluate: Evaluate, where: str, members: Sequence[Compiled]) -> Condition:
        several, empty = [one.evaluate for one in members], self.rules.empty
        fits = str.startswith if where == "BEGINS" else str.endswith

        def fits_any(value: Value, texts: list[str | None], subject: Subject) -> bool | None:
            if isinstance(value, list):
                return any_of(fits_any(one, texts, subject) for one in elements(value, empty))
            text = text_of(value)
            if text is None:
                return None
            subject.charge(10 * len(texts))
            return any_of(None if one is None else fits(text, one) for one in texts)

        return lambda subject: fits_any(evaluate(subject), [text_of(one(subject)) for one in several], subject)

    # -- values -------------------------------------------------------------------------------------------------------

    def value(self, node: Node) -> Compiled:
        """A function that computes a node."""
        compiled = self._value(node)
        if compiled.constant and not isinstance(node, Literal):
            return _constant(compiled.evaluate(self._no_message))
        return compiled

    def _value(self, node: Node) -> Compiled:
        if isinstance(node, Literal):
            return _constant(None if node.value == "" and self.rules.empty_is_null else node.value)
        if isinstance(node, Path):
            self.reads_body = True
            return Compiled(compiled_path(node.steps))
        if isinstance(node, Header):
            return Compiled(self._header(node.name))
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, Sign):
            return self._sign(node)
        if isinstance(node, Chain):
            return self._chain(node)
        assert isinstance(node, CONDITIONS)
        return Compiled(self.condition(node))

    def _header(self, name: str) -> Evaluate:
        return self._without_empty(PREDEFINED.get(name) or (lambda subject: subject.header(name)))

    def _without_empty(self, evaluate: Evaluate) -> Evaluate:
        """A function that turns an empty text or array into NULL."""
        if not self.rules.empty_is_null:
            return evaluate

        def filled(subject: Subject) -> Value:
            value = evaluate(subject)
            return value if value or type(value) not in _EMPTY else None

        return filled

    def _number(self, compiled: Compiled) -> Compiled:
        """A function that converts to a number, for arithmetic. A text gives NaN unless the rules convert texts."""
        evaluate, converts = compiled.evaluate, self.rules.converts

        def number(subject: Subject) -> Value:
            value = evaluate(subject)
            if type(value) is str and not converts:
                return NAN
            return number_of(value)

        return Compiled(number, compiled.constant)

    def _sign(self, node: Sign) -> Compiled:
        number = self._number(self.value(node.operand))
        if node.sign == "+":
            return number
        negative = partial(ARITHMETIC["-"], 0)
        evaluate = number.evaluate

        def negated(subject: Subject) -> Value:
            value = evaluate(subject)
            if type(value) is float:
                return -value
            return None if value is None else negative(value)  # type: ignore[arg-type]

        return Compiled(negated, number.constant)

    def _chain(self, node: Chain) -> Compiled:
        first = self._number(self.value(node.first))
        rest = [(ARITHMETIC[operator], self._number(self.value(one))) for operator, one in node.rest]
        head, steps = first.evaluate, [(compute, one.evaluate) for compute, one in rest]

        def computed(subject: Subject) -> Value:
            value = head(subject)
            for compute, operand in steps:
                other = operand(subject)
                value = None if value is None or other is None else compute(value, other)  # type: ignore[arg-type]
            return value

        return Compiled(computed, first.constant and all(one.constant for _, one in rest))

    def _call(self, node: Call) -> Compiled:
        name = node.name
        if name in CONSTANTS:
            return _constant(CONSTANTS[name])
        if name in OF_CLIENT_AND_BROKER:
            self.used.add(name)
            return _constant(self.client_values.get(name))
        if name in OF_MESSAGE:
            return Compiled(self._without_empty(OF_MESSAGE[name]))
        if name in ("HEADER", "PROPERTY"):
            literal = node.arguments[0]
            assert isinstance(literal, Literal) and isinstance(literal.value, str)
            asked = literal.value
            if name == "HEADER":
                return Compiled(self._without_empty(lambda subject: subject.header(asked)))
            return Compiled(self._without_empty(lambda subject: subject.property(asked)))
        if name == "IF":
            return self._if(node)
        arguments = [self.value(one) for one in node.arguments]
        constant = all(one.constant for one in arguments)
        evaluates = [one.evaluate for one in arguments]
        if name == "COALESCE":
            return Compiled(partial(_first_of, evaluates), constant)
        if name == "REGEXP_REPLACE":
            pattern = evaluates.pop(1)(self._no_message)
            function: Callable[..., Value] = partial(regexp_replace, Searcher(str(pattern or "")))
        else:
            function = FUNCTIONS[name]
        if len(evaluates) == 1:
            (only,) = evaluates
            return Compiled(self._without_empty(lambda subject: function(subject, only(subject))), constant)
        return Compiled(
            self._without_empty(lambda subject: function(subject, *[one(subject) for one in evaluates])), constant
        )

    def _if(self, node: Call) -> Compiled:
        asked, first, second = node.arguments
        condition, yes, no = self.condition(asked), self.value(first), self.value(second)
        then, otherwise = yes.evaluate, no.evaluate
        return Compiled(lambda subject: then(subject) if condition(subject) else otherwise(subject))


def _matcher(node: Match) -> Callable[[str, Subject], bool]:
    """A function that matches a text."""
    if node.kind == "like":
        like = Like(node.pattern, node.escape)
        return lambda text, subject: like.matches(text, subject.charge)
    if node.kind == "text":
        part = node.pattern
        return lambda text, subject: part in text
    searcher = Searcher(node.pattern)
    return lambda text, subject: searcher.search(text, subject.charge)


def _first_of(evaluates: list[Evaluate], subject: Subject) -> Value:
    for evaluate in evaluates:
        value = evaluate(subject)
        if value is not None:
            return value
    return None


def _constant(value: Value) -> Compiled:
    return Compiled(lambda subject: value, True)


def _both(one: bool | None, other: bool | None) -> bool | None:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def _negated(condition: Condition) -> Condition:
    def negated(subject: Subject) -> bool | None:
        answer = condition(subject)
        return None if answer is None else not answer

    return negated


def _joined(parts: list[Condition], *, decisive: bool) -> Condition:
    """OR (`decisive`: the first true part decides), or AND."""

    def joined(subject: Subject) -> bool | None:
        found: bool | None = not decisive
        for part in parts:
            answer = part(subject)
            if answer is decisive:
                return decisive
            if answer is None:
                found = None
        return found

    return joined


class Like:
    """A pattern of LIKE, split at each `%`: the first segment is at the beginning, the last one at the end.

    The others are searched one after the other: the first match of each leaves most for the next.
    """

    def __init__(self, pattern: str, escape: str | None) -> None:
        segments: list[list[str]] = [[]]
        position = 0
        while position < len(pattern):
            character = pattern[position]
            position += 1
            if character == escape and position < len(pattern):
                segments[-1].append(re.escape(pattern[position]))
                position += 1
            elif character == "%":
                segments.append([])
            else:
                segments[-1].append("." if character == "_" else re.escape(character))
        self._segments = [(re.compile("".join(one), re.DOTALL), len(one)) for one in segments]
        self._size = sum(len(one) for one in segments) + 1

    def matches(self, text: str, charge: Charge) -> bool:
        """Whether the whole text matches."""
        charge(len(text) * self._size)
        first, size = self._segments[0]
        if len(self._segments) == 1:
            return len(text) == size and first.match(text) is not None
        last, size_last = self._segments[-1]
        end = len(text) - size_last
        at = size
        if at > end or first.match(text) is None or last.match(text, end) is None:
            return False
        for segment, _ in self._segments[1:-1]:
            found = segment.search(text, at, end)
            if found is None:
                return False
            at = found.end()
        return True
