"""Parses a text to a tree: recursive descent, one method for each rank of operators.

Errors are found here with their positions, also unknown functions, wrong numbers of arguments, and invalid patterns;
errors within a token are found by `tokens.py`. Depth counts nested brackets, calls, signs and NOTs, and comparisons of
comparisons. Source: queues page B.2 (choices 10 to 14), B.3; docs/decisions/0015-one-parser-of-our-own.md.
"""

from collections.abc import Callable

from .errors import ExpressionError, UnsupportedFunction
from .functions.signatures import PROPERTY_NAMES, SIGNATURES, UNSUPPORTED, VOLATILE
from .patterns.pattern_syntax import PatternFault
from .patterns.searching import check_pattern
from .syntax import (
    AMPS,
    JMS,
    Affix,
    Between,
    Call,
    Chain,
    Comparison,
    Dialect,
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
from .tokens import END, NUMBER, OPERATOR, PATH, QUOTED, RAW, STRING, TEXT_OCTETS_MAX, WORD, Token, tokens_of

DEPTH_MAX = 64
MEMBERS_MAX = 1000
#: Words that cannot be names of headers, unless they are quoted.
RESERVED = frozenset({"AND", "OR", "NOT", "IS", "IN", "BETWEEN", "LIKE", "ESCAPE", "NULL", "TRUE", "FALSE"})
_LITERALS = {"TRUE": True, "FALSE": False, "NULL": None}
_COMPARISONS = {"=": "=", "==": "=", "!=": "<>", "<>": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_ORDERINGS = frozenset({"<", "<=", ">", ">="})
#: Prefixes of a selector (Artemis): strings become numbers when compared with numbers; names may have hyphens.
CONVERTING, HYPHENATED = "convert_string_expressions:", "hyphenated_props:"


def parse(text: str, dialect: Dialect) -> tuple[Node, bool]:
    """The tree of an expression, and whether strings are compared with numbers as numbers.

    Raises: ExpressionError, UnsupportedFunction.
    """
    if len(text.encode("utf-8", "surrogatepass")) > TEXT_OCTETS_MAX:
        raise ExpressionError(text, 0, f"longer than {TEXT_OCTETS_MAX} octets")
    start, converts, hyphenated = 0, dialect is AMPS, False
    while dialect is JMS:
        if text.startswith(CONVERTING, start):
            start, converts = start + len(CONVERTING), True
        elif text.startswith(HYPHENATED, start):
            start, hyphenated = start + len(HYPHENATED), True
        else:
            break
    parser = _Parser(text, dialect, tokens_of(text, dialect, start, hyphenated=hyphenated), converts)
    tree = parser.disjunction()
    if parser.token.kind != END:
        raise parser.unexpected("an operator or the end")
    return tree, converts


class _Parser:
    """`token`: the next one. Methods of ranks and values read what their name says, beginning with that token."""

    def __init__(self, text: str, dialect: Dialect, tokens: list[Token], converts: bool) -> None:
        self.text = text
        self.dialect = dialect
        self.converts = converts
        self.tokens = tokens
        self.at = 0
        self.token = tokens[0]
        self.depth = 0

    # -- tokens -------------------------------------------------------------------------------------------------------

    def advance(self) -> Token:
        token = self.token
        if token.kind != END:
            self.at += 1
            self.token = self.tokens[self.at]
        return token

    def is_word(self, word: str, ahead: int = 0) -> bool:
        token = self.tokens[min(self.at + ahead, len(self.tokens) - 1)]
        return token.kind == WORD and token.text.upper() == word

    def take_word(self, word: str) -> bool:
        if self.is_word(word):
            self.advance()
            return True
        return False

    def is_operator(self, operator: str) -> bool:
        return self.token.kind == OPERATOR and self.token.text == operator

    def expect_word(self, word: str) -> None:
        if not self.take_word(word):
            raise self.unexpected(word)

    def unexpected(self, expected: str) -> ExpressionError:
        token = self.token
        if token.kind == PATH and expected.startswith("an operator"):
            expected = "an operator; division needs blanks on both sides"
        found = "the text ends" if token.kind == END else f"found {token.kind} {_shown(token)}"
        return self.fault(token, f"expected {expected}, {found}")

    def fault(self, token: Token, problem: str) -> ExpressionError:
        return ExpressionError(self.text, token.position, problem)

    def deeper(self, token: Token) -> None:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise self.fault(token, f"more than {DEPTH_MAX} nested levels")

    # -- ranks of operators -------------------------------------------------------------------------------------------

    def disjunction(self) -> Node:
        return self.logic("OR", self.conjunction)

    def conjunction(self) -> Node:
        return self.logic("AND", self.negation)

    def logic(self, word: str, read: Callable[[], Node]) -> Node:
        operands = [read()]
        while self.take_word(word):
            operands.append(read())
        return operands[0] if len(operands) == 1 else Logic(word, tuple(operands))

    def negation(self) -> Node:
        count = 0
        while self.is_word("NOT"):
            self.deeper(self.advance())
            count += 1
        node = self.predicate()
        self.depth -= count
        for _ in range(count):
            node = Not(node)
        return node

    def predicate(self) -> Node:
        left_token = self.token
        node = self.sum()
        count = 0
        while (following := self.relation(node, left_token)) is not None:
            node = following
            self.deeper(self.token)
            count += 1
        self.depth -= count
        return node

    def relation(self, left: Node, left_token: Token) -> Node | None:
        """The relation that begins with `left`; None if no such operator comes next."""
        token = self.token
        if token.kind == OPERATOR and token.text in _COMPARISONS:
            return self.comparison(left, left_token)
        if token.kind != WORD:
            return None
        if self.take_word("IS"):
            negated = self.take_word("NOT")
            for what in ("NULL", "NAN"):
                if self.take_word(what):
                    return Is(left, what, negated)
            raise self.unexpected("NULL or NAN")
        negated = self.is_word("NOT")
        if negated and self.is_word("NULL", 1):
            self.advance()
            self.advance()
            return Is(left, "NULL", True)
        word = (self.tokens[self.at + 1] if negated else token).text.upper()
        if word not in ("IN", "BETWEEN", "LIKE", "MATCHES", "BEGINS", "ENDS"):
            if negated:
                self.advance()
                raise self.unexpected("IN, BETWEEN, LIKE, MATCHES, BEGINS, ENDS or NULL after NOT")
            return None
        if negated:
            self.advance()
        self.advance()
        if word == "IN":
            return In(left, self.members(), negated)
        if word == "BETWEEN":
            return self.between(left, left_token, negated)
        if word in ("BEGINS", "ENDS"):
            self.expect_word("WITH")
            return Affix(left, word, self.members(), negated)
        return self.match(left, word, negated)

    def comparison(self, left: Node, left_token: Token) -> Node:
        operator = _COMPARISONS[self.advance().text]
        right_token = self.token
        right = self.sum()
        if operator in _ORDERINGS:
            self.check_ordered(left, left_token)
            self.check_ordered(right, right_token)
        return Comparison(operator, left, right)

    def between(self, left: Node, left_token: Token, negated: bool) -> Node:
        bounds: list[Node] = []
        self.check_ordered(left, left_token)
        for _ in range(2):
            if bounds:
                self.expect_word("AND")
            token = self.token
            bounds.append(self.sum())
            self.check_ordered(bounds[-1], token)
        return Between(left, bounds[0], bounds[1], negated)

    def check_ordered(self, node: Node, token: Token) -> None:
        """Refuse an order of strings in selectors, unless they become numbers (queues page B.2)."""
        if not self.converts and isinstance(node, Literal) and isinstance(node.value, str):
            raise self.fault(token, "strings have no order in selectors: expected a number")

    def members(self) -> tuple[Node, ...]:
        if not self.is_operator("("):
            raise self.unexpected("'('")
        self.advance()
        self.deeper(self.token)
        found = self.separated(self.sum, "members")
        self.close()
        return tuple(found)

    def separated(self, read: Callable[[], Node], what: str) -> list[Node]:
        """One to `MEMBERS_MAX` nodes with commas between them. `what`: their name in an error."""
        found = [read()]
        while self.is_operator(","):
            if len(found) == MEMBERS_MAX:
                raise self.fault(self.token, f"more than {MEMBERS_MAX} {what}")
            self.advance()
            found.append(read())
        return found

    def close(self) -> None:
        """Take the bracket that ends a list."""
        self.depth -= 1
        if not self.is_operator(")"):
            raise self.unexpected("',' or ')'")
        self.advance()

    def match(self, left: Node, word: str, negated: bool) -> Node:
        token = self.token
        if token.kind not in (STRING, RAW):
            raise self.unexpected("a quoted pattern")
        self.advance()
        if self.dialect is JMS and word == "LIKE":
            return Match(left, "like", token.text, self.escape(), negated)
        kind = "text" if token.kind == RAW else "regex"
        if kind == "regex":
            self.check_pattern(token, token.text)
        return Match(left, kind, token.text, None, negated)

    def escape(self) -> str | None:
        if not self.take_word("ESCAPE"):
            return None
        token = self.token
        if token.kind != STRING or len(token.text) != 1:
            raise self.unexpected("one character in quotes")
        self.advance()
        return token.text

    def sum(self) -> Node:
        first = self.product()
        rest: list[tuple[str, Node]] = []
        while self.token.kind == OPERATOR and self.token.text in "+-":
            rest.append((self.advance().text, self.product()))
        return Chain(first, tuple(rest)) if rest else first

    def product(self) -> Node:
        first = self.unary()
        rest: list[tuple[str, Node]] = []
        while (self.token.kind == OPERATOR and self.token.text in "*/%") or self.is_word("MOD"):
            operator = self.advance().text
            rest.append((operator if operator in "*/%" else "%", self.unary()))
        return Chain(first, tuple(rest)) if rest else first

    def unary(self) -> Node:
        signs: list[str] = []
        while self.is_operator("-") or self.is_operator("+"):
            self.deeper(self.token)
            signs.append(self.advance().text)
        node = self.primary()
        self.depth -= len(signs)
        for sign in reversed(signs):
            node = Sign(sign, node)
        return node

    # -- values -------------------------------------------------------------------------------------------------------

    def primary(self) -> Node:
        token = self.token
        if token.kind in (NUMBER, STRING, RAW):
            return Literal(self.advance().value)
        if token.kind == PATH:
            return Path(self.advance().steps)
        if token.kind == QUOTED:
            return Header(self.advance().text)
        if self.is_operator("("):
            self.deeper(self.advance())
            node = self.disjunction()
            self.depth -= 1
            if not self.is_operator(")"):
                raise self.unexpected("an operator or ')'")
            self.advance()
            return node
        if token.kind == WORD:
            word = token.text.upper()
            following = self.tokens[self.at + 1]
            if word in _LITERALS:
                self.advance()
                return Literal(_LITERALS[word])
            if word not in RESERVED:
                self.advance()
                is_call = following.kind == OPERATOR and following.text == "("
                return self.call(token) if is_call else Header(token.text)
        raise self.unexpected("a value")

    def call(self, token: Token) -> Node:
        name = token.text.upper()
        if name in UNSUPPORTED:
            raise UnsupportedFunction(self.text, token.position, f"unsupported function {name}")
        if name in VOLATILE:
            problem = f"{name} changes with time: a message is tested once, and the answer is kept"
            raise UnsupportedFunction(self.text, token.position, problem)
        signature = SIGNATURES.get(name)
        if signature is None:
            raise self.fault(token, f"no such function: {token.text}")
        self.deeper(self.advance())
        first = self.token
        arguments = [] if self.is_operator(")") else self.separated(self.disjunction, "arguments")
        self.close()
        if not signature.takes(len(arguments)):
            raise self.fault(token, f"{name} takes {signature.wanted}, not {len(arguments)}")
        self.check_literals(name, arguments, first)
        return Call(name, tuple(arguments))

    def check_literals(self, name: str, arguments: list[Node], first: Token) -> None:
        """Check the argument that must be a quoted text, if the function has one."""
        at = SIGNATURES[name].literal
        if at is None:
            return
        literal = arguments[at]
        if not isinstance(literal, Literal) or not isinstance(literal.value, str):
            raise self.fault(first, f"{name} takes a quoted text as argument {at + 1}")
        if name == "PROPERTY" and literal.value not in PROPERTY_NAMES:
            raise self.fault(first, f"no such property: {literal.value}; expected one of {', '.join(PROPERTY_NAMES)}")
        if name == "REGEXP_REPLACE":
            self.check_pattern(first, literal.value)

    def check_pattern(self, token: Token, pattern: str) -> None:
        try:
            check_pattern(pattern)
        except PatternFault as fault:
            raise self.fault(token, f"the pattern: {fault}") from fault


def _shown(token: Token) -> str:
    text = token.text if token.kind not in (STRING, RAW) else repr(token.text)
    return text if len(text) <= 40 else f"{text[:40]}..."
