"""Counts of the structure of a source tree: import circles, sizes, writes from outside, imports past façades.

It reads the source only, so that it can count any revision, also one that cannot be imported any more.
`docs/draw_census.py` draws docs/census.md from it; `tests/test_census.py` checks that what is zero stays zero.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import citations
from import_graph import FRONT_DOOR, ROOMS, ROOT, circles, import_graph, sources

METHODS_MAX, FILE_LINES_MAX, FUNCTION_LINES_MAX = 25, 400, 50

CIRCLES = "files in circles of imports"
CLASSES = f"classes with over {METHODS_MAX} methods"
FILES = f"files over {FILE_LINES_MAX} lines"
FUNCTIONS = f"functions over {FUNCTION_LINES_MAX} lines"
QUEUE_WRITES = "slots of a queue written outside the files of its classes"
STORE_WRITES = "slots of a store written outside the files of its classes"
KIND_CHECKS = "isinstance checks on kinds of queues or stores outside their room"
PAST_FACADE = "imports past the façade of the engine"
CITATIONS = "citations that lead nowhere"
MEASURES = (
    CIRCLES,
    CLASSES,
    FILES,
    FUNCTIONS,
    QUEUE_WRITES,
    STORE_WRITES,
    KIND_CHECKS,
    PAST_FACADE,
    CITATIONS,
)

#: How code names what it holds: the last word of the expression that is written to.
QUEUE_WORDS = re.compile(r"(^|_)queue_?$")
STORE_WORDS = re.compile(r"(^|_)(store|ready|log|tail|scheduled)$")
STORE_CLASS = re.compile(r"(Store|Ready|Log|Tail|Scheduled)$")
QUEUE_CLASS = re.compile(r"Queue$")
#: Modules of the engine that held the kinds of stores before there was a room for them.
OLD_STORES = {"kept_log", "kept_ready", "last_value", "ready", "stream_log", "tail"}
#: Measures whose goal is zero.
NONE = (CIRCLES, QUEUE_WRITES, STORE_WRITES, KIND_CHECKS, PAST_FACADE, CITATIONS)

#: The journal's second door: what recovery has to put back.
DOORS = {"journal": {"engine.state"}}


@dataclass(slots=True, frozen=True, order=True)
class Finding:
    """One thing that is counted: where, and a short text that does not depend on line numbers."""

    measure: str
    room: str
    path: str
    what: str

    @property
    def key(self) -> str:
        """Without sizes, which change from day to day: `engine/broker.py`, `engine/broker.py: Broker`."""
        name = self.what.split(",")[0]
        return self.path if not name or name.isdigit() else f"{self.path}: {name}"


class Tree:
    """The source of one tree, parsed once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.rooms = [room for room in (*ROOMS, FRONT_DOOR) if (root / room).is_dir()]
        self.files = {path: room for room in self.rooms for path in sources(room, root)}
        self.parsed = {path: ast.parse(path.read_text()) for path in self.files}

    def name(self, path: Path) -> str:
        """As reports name a file."""
        return path.relative_to(self.root).as_posix()

    def finding(self, measure: str, path: Path, what: str = "") -> Finding:
        """Of a file."""
        return Finding(measure, self.files[path], self.name(path), what)

    def classes(self) -> Iterator[tuple[Path, ast.ClassDef]]:
        """All, with their files."""
        for path, tree in self.parsed.items():
            yield from ((path, node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def census(root: Path = ROOT) -> list[Finding]:
    """All findings of a tree, sorted."""
    tree = Tree(root)
    found = [*in_circles(tree), *large(tree), *past_the_facade(tree), *lost_citations(tree)]
    queues, stores = kinds(tree)
    found += writes(tree, QUEUE_WRITES, queues, QUEUE_WORDS)
    found += writes(tree, STORE_WRITES, stores, STORE_WORDS)
    found += kind_checks(tree, {**stores, **{name: path for name, path in queues.items() if name != "Queue"}})
    return sorted(found)


def in_circles(tree: Tree) -> Iterator[Finding]:
    """Over all imports: within functions, and for annotations alone."""
    for room in tree.rooms:
        for circle in circles(import_graph(room, root=tree.root)):
            for module in circle:
                path = tree.root / room / f"{module.replace('.', '/')}.py"
                yield tree.finding(CIRCLES, path, f"one of {len(circle)}")


def large(tree: Tree) -> Iterator[Finding]:
    """Classes by methods, files and functions by lines. A property and its setter are one."""
    for path, node in tree.classes():
        names = {one.name for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
        if len(names) > METHODS_MAX:
            yield tree.finding(CLASSES, path, f"{node.name}, {len(names)}")
    for path, module in tree.parsed.items():
        lines = len(path.read_text().splitlines())
        if lines > FILE_LINES_MAX:
            yield tree.finding(FILES, path, f"{lines}")
        for node in ast.walk(module):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    yield tree.finding(FUNCTIONS, path, f"{node.name}, {lines}")


def kinds(tree: Tree) -> tuple[dict[str, Path], dict[str, Path]]:
    """Classes of queues and of stores in the engine, and their files."""
    queues, stores = {}, {}
    for path, node in tree.classes():
        if tree.files[path] != "engine":
            continue
        is_store = path.parent.name == "stores" or (path.parent.name == "engine" and path.stem in OLD_STORES)
        if is_store and STORE_CLASS.search(node.name):
            stores[node.name] = path
        elif QUEUE_CLASS.search(node.name) and (path.parent.name in ("queues", "engine")):
            queues[node.name] = path
    return queues, stores


def slots_of(tree: Tree, names: Iterable[str]) -> set[str]:
    """What instances of these classes have, inherited or not: slots, fields, and what their methods set."""
    found: set[str] = set()
    bases = {node.name: {last_word(base) for base in node.bases} for _, node in tree.classes()}
    names, ahead = set(names), list(names)
    while ahead:
        new = bases.get(ahead.pop(), set()) - names
        names |= new
        ahead += new
    for _, node in tree.classes():
        if node.name not in names:
            continue
        for one in ast.walk(node):
            if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store) and is_self(one.value):
                found.add(one.attr)
        for one in node.body:
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                found.add(one.target.id)
            elif isinstance(one, ast.Assign) and any(
                isinstance(target, ast.Name) and target.id == "__slots__" for target in one.targets
            ):
                found |= {leaf.value for leaf in ast.walk(one.value) if isinstance(leaf, ast.Constant)}
    return found


def is_self(node: ast.expr) -> bool:
    """Whether a method writes to its own instance."""
    return isinstance(node, ast.Name) and node.id == "self"


def writes(tree: Tree, measure: str, kinds: dict[str, Path], words: re.Pattern[str]) -> Iterator[Finding]:
    """Assignments to slots of these classes through a name that means one of them, in other files of the tree.

    A name means one where it is called so (`queue`, `self._queue`), or where an annotation of the function says it.
    """
    slots, homes = slots_of(tree, kinds), set(kinds.values())
    for path, module in tree.parsed.items():
        if path in homes:
            continue
        meant = annotated(module, kinds)
        found = {
            node.attr
            for node in ast.walk(module)
            if isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store | ast.Del)
            and node.attr in slots
            and not is_self(node.value)
            and (last_word(node.value) in meant or words.search(last_word(node.value)))
        }
        yield from (tree.finding(measure, path, attr) for attr in found)


def annotated(module: ast.Module, kinds: Iterable[str]) -> set[str]:
    """Names of parameters and variables of a file that an annotation declares to be one of these classes."""
    names = re.compile(rf"\b({'|'.join(kinds)})\b") if kinds else re.compile(r"(?!)")
    found = set()
    for node in ast.walk(module):
        if isinstance(node, ast.arg) and node.annotation is not None:
            if names.fullmatch(ast.unparse(node.annotation).strip("'\"")):
                found.add(node.arg)
        elif isinstance(node, ast.AnnAssign) and names.fullmatch(ast.unparse(node.annotation).strip("'\"")):
            found.add(last_word(node.target))
    return found


def last_word(node: ast.expr) -> str:
    """Of an expression: `ready` of `queue.ready`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def kind_checks(tree: Tree, kinds: dict[str, Path]) -> Iterator[Finding]:
    """`isinstance` on a kind where the kind is not at home; numbered within a file."""
    for path, module in tree.parsed.items():
        counts: dict[str, int] = defaultdict(int)
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
                asked = {leaf.id for leaf in ast.walk(node.args[1]) if isinstance(leaf, ast.Name)}
                for name in sorted(asked & kinds.keys()):
                    home = kinds[name]
                    at_home = path == home if home.parent.name == "engine" else path.parent == home.parent
                    if not at_home:
                        counts[name] += 1
        for name, count in counts.items():
            yield from (tree.finding(KIND_CHECKS, path, f"{name} ({at})") for at in range(1, count + 1))


def past_the_facade(tree: Tree) -> Iterator[Finding]:
    """Modules inside the engine that files outside it import, each once for a file."""
    for path, room in tree.files.items():
        if room == "engine":
            continue
        depth = len(path.relative_to(tree.root / room).parts)
        up = depth if room == FRONT_DOOR else depth + 1
        found = set()
        for node in ast.walk(tree.parsed[path]):
            if isinstance(node, ast.ImportFrom) and node.module and node.level == up:
                found.add(node.module)
            elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("leveret.engine."):
                found.add(node.module.removeprefix("leveret."))
        inner = {module for module in found if module.startswith("engine.")} - DOORS.get(room, set())
        yield from (tree.finding(PAST_FACADE, path, module) for module in inner)


def lost_citations(tree: Tree) -> Iterator[Finding]:
    """Those of rooms, tests and docs; where a tree has no pages to cite, all of them."""
    there = citations.ROOT, citations.REFERENCE
    citations.ROOT, citations.REFERENCE = tree.root, tree.root / "docs" / "reference"
    try:
        if citations.REFERENCE.is_dir():
            resolver = citations.Resolver(citations.REFERENCE)
            for path in citations.files():
                for one in resolver.citations(tree.name(path), path.read_text()):
                    if one.problem:
                        yield Finding(CITATIONS, room_of(one.path), one.path, f"{one}")
            return
        patterns = (citations.NAMED, citations.RULING, citations.RULINGS_WORDS, citations.TRAP)
        for path in citations.files():
            name = tree.name(path)
            plain, _ = citations.unwrapped(path.read_text())
            count = sum(len(pattern.findall(plain)) for pattern in patterns)
            yield from (Finding(CITATIONS, room_of(name), name, f"({at})") for at in range(1, count + 1))
    finally:
        citations.ROOT, citations.REFERENCE = there


def room_of(path: str) -> str:
    """The room in whose column a file is counted: the first folder of its path, or the front door."""
    return FRONT_DOOR if path.startswith("src/") else path.split("/")[0]


def counted(findings: Iterable[Finding]) -> dict[str, dict[str, int]]:
    """Measure -> room -> how many."""
    table: dict[str, dict[str, int]] = {measure: defaultdict(int) for measure in MEASURES}
    for one in findings:
        table[one.measure][one.room] += 1
    return table
