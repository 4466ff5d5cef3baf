"""A plug-in of pytest: each function of the rooms notes that it ran, and which test ran it (`--noted DIRECTORY`).

Modules are compiled with one more statement at the start of each function, which took 4 % more CPU time on two parts
of the tests; coverage by lines and tests took 130 % more there.
"""

from __future__ import annotations

import ast
import os
import pickle
import sys
from array import array
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from time import process_time
from types import CodeType
from typing import Any

import pytest
from mutant import ROOT

#: What a test ran, and the CPU seconds that it took in this process.
Noted = dict[str, tuple["array[int]", float]]
#: The name of `_ran` in the modules: a byte for each function, 1 when it has run since the last test.
NOTE = "__has_run__"

_names: list[str] = []
_ran = bytearray(1 << 16)
_noted: Noted = {}
_skipped: set[str] = set()


def pytest_addoption(parser: pytest.Parser) -> None:
    """What `covering.measure` says. Modules that are imported later are noted: installed plug-ins come after this."""
    assert not any(name.startswith("leveret.") for name in sys.modules), "imported before it could be noted"
    sys.meta_path.insert(0, _Finder())
    parser.addoption("--noted", metavar="DIRECTORY", help="write there which test ran which functions, pickled")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test with its fixtures."""
    _taken()
    begun = process_time()
    try:
        return (yield)
    finally:
        took_s = process_time() - begun
        if item.nodeid not in _skipped:
            _noted[item.nodeid] = _taken(), took_s


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """What is skipped runs nothing."""
    if report.skipped:
        _skipped.add(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A file for each process that ran tests."""
    if _noted:
        path = Path(session.config.getoption("--noted")) / f"{os.getpid()}.pickle"
        path.write_bytes(pickle.dumps((_names, _noted)))


def _taken() -> array[int]:
    """Numbers of the functions that have run, which have not from now on."""
    numbers, at = array("H"), -1
    while (at := _ran.find(1, at + 1)) >= 0:
        numbers.append(at)
        _ran[at] = 0
    return numbers


def noting(source: str, file: str, names: list[str]) -> ast.Module:
    """The module with a note in each function, named `FILE::QUALIFIED.NAME`, which is appended to `names`."""
    module = ast.parse(source)

    def look(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                look(child, f"{prefix}{child.name}.")
            else:
                look(child, prefix)
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                note = ast.parse(f"{NOTE}[{len(names)}] = 1").body[0]
                for part in ast.walk(note):
                    ast.copy_location(part, child.body[0])
                names.append(f"{file}::{prefix}{child.name}")
                child.body.insert(ast.get_docstring(child) is not None, note)

    look(module, "")
    return module


class _Noting(SourceFileLoader):
    """Compiles with notes, and not from the cache."""

    def get_code(self, fullname: str) -> CodeType | None:
        path = Path(self.path)
        module = noting(path.read_text(), str(path.resolve().relative_to(ROOT)), _names)
        return compile(module, self.path, "exec")

    def exec_module(self, module: Any) -> None:
        setattr(module, NOTE, _ran)
        super().exec_module(module)


class _Finder(MetaPathFinder):
    """Before pytest's own, which compiles what belongs to a plug-in's package."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        if not fullname.startswith("leveret."):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Noting(spec.loader.name, spec.loader.path)
        return spec
