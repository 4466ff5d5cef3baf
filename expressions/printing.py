"""Prints a tree as text. Parsing it in the same dialect gives the same tree, so equal texts mean equal filters."""

from .parser import CONVERTING, RESERVED
from .syntax import (
    AMPS,
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
    Step,
)
from .tokens import PLAIN_STEP, PLAIN_WORD

_OR, _AND, _NOT, _RELATION, _SUM, _PRODUCT, _UNARY, _PRIMARY = range(8)
_CONTROLS = {"\a": "\\a", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", "\\": "\\\\"}


def printed(tree: Node, dialect: Dialect, *, converts: bool = False) -> str:
    """The text of a tree; `converts`: it is a selector whose strings become numbers."""
    printer = _Printer(dialect)
    prefix = CONVERTING if converts and dialect is not AMPS else ""
    return prefix + printer.at_least(_OR, tree)


def _rank(node: Node) -> int:
    if isinstance(node, Logic):
        return _OR if node.operator == "OR" else _AND
    if isinstance(node, Not):
        return _NOT
    if isinstance(node, Comparison | Is | In | Between | Match | Affix):
        return _RELATION
    if isinstance(node, Chain):
        return _SUM if node.rest[0][0] in "+-" else _PRODUCT
    return _UNARY if isinstance(node, Sign) else _PRIMARY


class _Printer:
    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def at_least(self, rank: int, node: Node) -> str:
        """The text of a node in a position that needs at least this rank."""
        text = self.text(node)
        return text if _rank(node) >= rank else f"({text})"

    def text(self, node: Node) -> str:
        if isinstance(node, Literal):
            return self.constant(node)
        if isinstance(node, Path):
            return self.path(node.steps)
        if isinstance(node, Header):
            return self.header(node.name)
        if isinstance(node, Call):
            return f"{node.name}({', '.join(self.at_least(_OR, one) for one in node.arguments)})"
        if isinstance(node, Sign):
            return f"{node.sign} {self.at_least(_UNARY, node.operand)}"
        if isinstance(node, Chain):
            return self.chain(node)
        if isinstance(node, Not):
            return f"NOT {self.at_least(_NOT, node.operand)}"
        if isinstance(node, Logic):
            rank = _AND if node.operator == "OR" else _NOT
            return f" {node.operator} ".join(self.at_least(rank, one) for one in node.operands)
        return self.relation(node)

    def relation(self, node: "Comparison | Is | In | Between | Match | Affix") -> str:
        if isinstance(node, Comparison):
            return f"{self.at_least(_RELATION, node.left)} {node.operator} {self.at_least(_SUM, node.right)}"
        left = self.at_least(_RELATION, node.operand)
        negated = "NOT " if node.negated else ""
        if isinstance(node, Is):
            return f"{left} IS {negated}{node.what}"
        if isinstance(node, In):
            return f"{left} {negated}IN ({self.list(node.members)})"
        if isinstance(node, Between):
            return f"{left} {negated}BETWEEN {self.at_least(_SUM, node.low)} AND {self.at_least(_SUM, node.high)}"
        if isinstance(node, Affix):
            return f"{left} {negated}{node.where} WITH ({self.list(node.members)})"
        word = "LIKE" if self.dialect is AMPS or node.kind == "like" else "MATCHES"
        quoted = "'" + node.pattern.replace("'", "''") + "'"
        escape = "" if node.escape is None else " ESCAPE '" + node.escape.replace("'", "''") + "'"
        return f"{left} {negated}{word} {'r' if node.kind == 'text' else ''}{quoted}{escape}"

    def list(self, nodes: tuple[Node, ...]) -> str:
        return ", ".join(self.at_least(_SUM, one) for one in nodes)

    def chain(self, node: Chain) -> str:
        rank = _rank(node)
        parts = [self.at_least(rank + 1, node.first)]
        parts += [f"{operator} {self.at_least(rank + 1, one)}" for operator, one in node.rest]
        return " ".join(parts)

    def constant(self, node: Literal) -> str:
        value = node.value
        if value is None:
            return "NULL"
        if isinstance(value, bool):
            return "TRUE" if value else "FALSE"
        if isinstance(value, str):
            return self.string(value)
        return "1e999" if value == float("inf") else repr(value)

    def string(self, value: str) -> str:
        if self.dialect is AMPS:
            value = "".join(
                _CONTROLS.get(one) or (f"\\x{ord(one):02x}" if one < " " or one == "\x7f" else one) for one in value
            )
        return "'" + value.replace("'", "''") + "'"

    def path(self, steps: tuple[Step, ...]) -> str:
        if all(PLAIN_STEP.fullmatch(step.name) for step in steps):
            return "".join(f"/{step.name}" + ("" if step.element is None else f"[{step.element}]") for step in steps)
        return "[/" + "/".join(step.name for step in steps) + "]"

    def header(self, name: str) -> str:
        if PLAIN_WORD.fullmatch(name) and name.upper() not in RESERVED:
            return name
        return '"' + name.replace('"', '""') + '"'
