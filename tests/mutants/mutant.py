"""Faults as changes of one source file: from the rows of `*.toml` here, or from cosmic-ray's operators."""

from __future__ import annotations

import ast
import builtins
import dis
import json
import random
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).parents[2]
ROWS = Path(__file__).parent
#: Code outside of functions: constants, class bodies.
MODULE = "<module>"
#: Operators of cosmic-ray that make no fault here: decorators declare, and the program ends at import; `is` is asked of
#: None and of members of enums, of which `==` says the same.
WITHOUT_MEANING = {
    "core/RemoveDecorator",
    "core/ReplaceComparisonOperator_Is_Eq",
    "core/ReplaceComparisonOperator_IsNot_NotEq",
    "core/ReplaceComparisonOperator_Eq_Is",
    "core/ReplaceComparisonOperator_NotEq_IsNot",
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault: `source` is the whole of `file` with it. `harm`: what it does to a user, or what was replaced.
    `found_by`: a test that is known to find it, perhaps with the parameters that do; empty: no test was named.
    """

    name: str
    file: str
    function: str
    source: str
    harm: str
    found_by: str = ""


class BadRow(Exception):
    """A row that names no place, several, or makes no program of it."""


@lru_cache(maxsize=8)
def _parsed(source: str) -> ast.Module:
    """Rows of one file follow each other."""
    return ast.parse(source)


def function_at(source: str, line: int) -> str:
    """The qualified name of the innermost function that has this line, counted from 1; `MODULE` outside of all."""
    found = MODULE

    def look(node: ast.AST, prefix: str) -> None:
        nonlocal found
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                first = min([child.lineno, *(mark.lineno for mark in child.decorator_list)])
                if first <= line <= (child.end_lineno or first):
                    name = f"{prefix}{child.name}"
                    if not isinstance(child, ast.ClassDef):
                        found = name
                    look(child, f"{name}.")
            else:
                look(child, prefix)

    look(_parsed(source), "")
    return found


def _first_change(before: str, after: str) -> int:
    """The line of `before`, from 1, where they begin to differ."""
    pairs = zip_longest(before.splitlines(), after.splitlines())
    return next(at for at, (one, other) in enumerate(pairs, 1) if one != other)


def read_rows(room: str = "") -> list[Mutant]:
    """All rows whose file is in `room`, by name.

    Raises: BadRow: the text that a row replaces is not in its file exactly once, or the result is no program.
    """
    mutants = []
    for table in sorted(ROWS.glob("*.toml")):
        for row in tomllib.loads(table.read_text())["mutant"]:
            if row["file"].startswith(room):
                mutants.append(_mutant(f"{table.stem}/{row['name']}", row))
    return mutants


def _mutant(name: str, row: dict[str, str]) -> Mutant:
    path = ROOT / row["file"]
    if not path.is_file():
        raise BadRow(f"{name}: there is no file {row['file']}")
    before = path.read_text()
    if (count := before.count(row["find"])) != 1:
        raise BadRow(f"{name}: the text to replace stands {count} times in {row['file']}")
    after = before.replace(row["find"], row["replace"])
    try:
        planted = compile(after, row["file"], "exec")
    except SyntaxError as error:
        raise BadRow(f"{name}: {error}") from None
    if unknown := _unknown_names(_compiled(before), planted):
        raise BadRow(f"{name}: {row['file']} has no {', '.join(sorted(unknown))}")
    function = function_at(before, _first_change(before, after))
    return Mutant(name, row["file"], function, after, row["harm"], row.get("found-by", ""))


@lru_cache(maxsize=64)
def _compiled(source: str) -> CodeType:
    return compile(source, "", "exec")


def _functions(code: CodeType) -> Iterator[CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _functions(inner)


def _unknown_names(before: CodeType, after: CodeType) -> set[str]:
    """Names that changed functions look up and nothing defines: any test that runs such a line would find it."""
    same = set(_functions(before))
    changed = [code for code in _functions(after) if code not in same]
    names = {one.argval for code in changed for one in dis.get_instructions(code) if one.opname == "LOAD_GLOBAL"}
    return names - {*after.co_names, *vars(builtins)}


def name_finder(mutant: Mutant, test: str) -> None:
    """Write into the row of `mutant`, which names no test, the one that finds it."""
    table, _, name = mutant.name.partition("/")
    path = ROWS / f"{table}.toml"
    before, mark, row = path.read_text().partition(f'\nname = "{name}"')
    kept, harm, following = row.partition("\nharm = ")
    words, _, rest = following.partition("\n")
    found_by = json.dumps(test, ensure_ascii=False)
    path.write_text(f"{before}{mark}{kept}{harm}{words}\nfound-by = {found_by}\n{rest}")


def sample_operators(room: str, count: int, seed: int) -> list[Mutant]:
    """Up to `count` faults by cosmic-ray's operators in `room`: a place by lot, then one of its operators by lot."""
    places = defaultdict(list)
    for path in sorted((ROOT / room).rglob("*.py")) if (ROOT / room).is_dir() else [ROOT / room]:
        for place, operator, occurrence in _operators_of(path):
            places[path, place].append((operator, occurrence))
    chance = random.Random(seed)
    mutants: list[Mutant] = []
    for path, place in chance.sample(sorted(places), len(places)):
        if len(mutants) == count:
            break
        operator, occurrence = chance.choice(places[path, place])
        if (mutant := _operated(path, place, operator, occurrence)) is not None:
            mutants.append(mutant)
    return mutants


def _operators_of(path: Path) -> Iterator[tuple[tuple[int, int], str, int]]:
    """Place, operator and its occurrence in the file; without what changes no behaviour."""
    from cosmic_ray import plugins
    from cosmic_ray.ast import ast_nodes, get_ast_from_path

    without = _lines_without_behaviour(path.read_text())
    nodes = list(ast_nodes(get_ast_from_path(path)))
    for name in plugins.operator_names():
        operator_class = plugins.get_operator(name)
        if operator_class.arguments() or name in WITHOUT_MEANING:
            continue
        operator, occurrence = operator_class(), 0
        for node in nodes:
            for start, _ in operator.mutation_positions(node):
                if start[0] not in without and not _is_declared(node):
                    yield start, name, occurrence
                occurrence += 1


def _lines_without_behaviour(source: str) -> set[int]:
    """Assertions, imports and what is for type checkers alone, calls of loggers, and fields without a value."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        is_typing = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        is_logging = isinstance(node, ast.Expr) and ast.unparse(node.value).startswith("logger.")
        is_bare = isinstance(node, ast.AnnAssign) and node.value is None
        is_other = isinstance(node, ast.Assert | ast.Import | ast.ImportFrom)
        if isinstance(node, ast.stmt) and (is_typing or is_logging or is_bare or is_other):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def _is_declared(node: Any) -> bool:
    """Whether parso's node is (in) an annotation, which is not computed with, the star of keyword-only parameters, or
    an argument `slots` or `frozen`: such data do what others do."""
    while (parent := node.parent) is not None:
        is_annotation = parent.type == "tfpdef" or parent.type == "annassign" and node is parent.children[1]
        is_option = parent.type == "argument" and parent.children[0].get_code().strip() in ("slots", "frozen")
        is_star = parent.type == "parameters" and node.type == "operator"
        if is_annotation or is_option or is_star or parent.type == "funcdef" and node is parent.annotation:
            return True
        node = parent
    return False


def _operated(path: Path, place: tuple[int, int], name: str, occurrence: int) -> Mutant | None:
    """None: the operator makes no other program of it."""
    from cosmic_ray import plugins
    from cosmic_ray.mutating import mutate_code

    before = path.read_text()
    try:
        after = mutate_code(before, plugins.get_operator(name)(), occurrence)
        if after is None or ast.dump(ast.parse(before)) == ast.dump(ast.parse(after)):
            return None
    except (SyntaxError, AttributeError):  # the star of keyword-only parameters, and `except errors.NotFound`
        return None
    file, line = str(path.relative_to(ROOT)), _first_change(before, after)
    was, is_now = before.splitlines()[line - 1].strip(), after.splitlines()[line - 1].strip()
    short = name.removeprefix("core/")
    return Mutant(
        f"{file}:{place[0]}:{place[1]} {short}", file, function_at(before, line), after, f"{was}  ->  {is_now}"
    )
