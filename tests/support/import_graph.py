"""Who imports whom in a tree of ours, read from its source. For the tests of the house."""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = (
    *("vendored", "expressions", "settings", "engine", "journal", "cluster", "amqp_frontend", "pipeline", "console"),
    "interop",
)
FRONT_DOOR = "src/leveret"
#: Programs in many languages, each built and started by itself: no packages, whatever they are written in.
PROGRAMS = "interop/drivers"


def sources(room: str) -> list[Path]:
    """The modules of a room and of the rooms in it."""
    return sorted(path for path in (ROOT / room).rglob("*.py") if (ROOT / PROGRAMS) not in path.parents)


def packages(room: str) -> list[str]:
    """The folders of a room that hold modules, itself among them, by their paths in the tree."""
    return sorted({path.parent.relative_to(ROOT).as_posix() for path in sources(room)})


@dataclass(frozen=True, slots=True)
class Source:
    """What the tests of the house ask of a file; its tree is not kept, which takes much memory.

    `imports`: wherever they stand; `at_run_time`: but for those for annotations.
    """

    text: str
    imports: list[ast.AST]
    at_run_time: list[ast.AST]
    defines_async: bool
    waits: bool
    calls: set[str]
    attributes: set[str]


@cache
def source_of(path: Path) -> Source:
    """Read once: some twenty tests look at the same files."""
    text = path.read_text()
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    return Source(
        text,
        imports=_imports_of(nodes),
        at_run_time=_imports_of(at_run_time(tree)),
        defines_async=any(isinstance(node, ast.AsyncFunctionDef) for node in nodes),
        waits=any(isinstance(node, ast.Await) for node in nodes),
        calls={node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)},
        attributes={node.attr for node in nodes if isinstance(node, ast.Attribute)},
    )


def _imports_of(nodes: Iterable[ast.AST]) -> list[ast.AST]:
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """(level, module) of every import of a file, wherever it stands."""
    for node in source_of(path).imports:
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = [node.module] if node.module else [alias.name for alias in node.names]
            yield from ((node.level, name) for name in names if name)


def at_run_time(tree: ast.AST) -> Iterator[ast.AST]:
    """The statements of a tree and all within them, but for those under `if TYPE_CHECKING`, which annotations alone
    need."""
    ahead = [tree]
    while ahead:
        within = ahead.pop()
        if isinstance(within, ast.If) and ast.unparse(within.test).endswith("TYPE_CHECKING"):
            inner: Iterable[ast.AST] = within.orelse
        else:
            parts = ("body", "orelse", "finalbody", "handlers", "cases")
            inner = [node for part in parts for node in getattr(within, part, ())]
        yield from inner
        ahead += inner


def import_graph(
    room: str, nodes: Callable[[Source], Iterable[ast.AST]] = attrgetter("imports")
) -> dict[str, set[str]]:
    """Module -> modules of its room that it imports, by dotted names within the room; `nodes`: which imports count."""
    names = {path: ".".join(path.relative_to(ROOT / room).with_suffix("").parts) for path in sources(room)}
    return {
        name: imported(nodes(source_of(path)), name.split(".")[:-1], set(names.values())) - {name}
        for path, name in names.items()
    }


def imported(nodes: Iterable[ast.AST], package: list[str], modules: set[str]) -> set[str]:
    """Which of the modules a module in this package imports relatively; what leaves the room is left out."""
    found = set()
    for node in nodes:
        if not isinstance(node, ast.ImportFrom) or not 1 <= node.level <= len(package) + 1:
            continue
        base = [*package[: len(package) + 1 - node.level], *(node.module.split(".") if node.module else ())]
        for alias in node.names:
            inner = [*base, alias.name]
            candidates = (".".join(parts) for parts in (inner, [*inner, "__init__"], base, [*base, "__init__"]))
            found |= set([candidate for candidate in candidates if candidate in modules][:1])
    return found


def circles(graph: Mapping[str, Iterable[str]]) -> list[tuple[str, ...]]:
    """The strongly connected components of more than one node, sorted."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        reached[start], ahead = set(), [start]
        while ahead:
            for name in graph.get(ahead.pop(), ()):
                if name not in reached[start]:
                    reached[start].add(name)
                    ahead.append(name)
    return sorted(
        {tuple(sorted(other for other in reached[name] if name in reached.get(other, ()))) for name in graph} - {()}
    )
