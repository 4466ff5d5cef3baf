"""Functions of a running program get the code that a changed source has for them."""

from __future__ import annotations

import gc
import inspect
from collections import defaultdict
from collections.abc import Iterator
from functools import _lru_cache_wrapper
from pathlib import Path
from types import CodeType, FunctionType

#: Where a function begins in the source as it was: its qualified name and its first line.
Place = tuple[str, int]


def changed_functions(before: str, after: str) -> dict[Place, CodeType] | None:
    """The new code of each function that differs, with those around it.

    Returns: None: a constant, a class or a default differs as well, and the program has to begin anew.
    """
    changed: dict[Place, CodeType] = {}

    def compare(old: CodeType, new: CodeType) -> bool:
        """Whether they or what is within them differ."""
        olds, news = _within(old), _within(new)
        is_other = not _is_same(old, new) or [one.co_name for one in olds] != [one.co_name for one in news]
        if is_other and not old.co_flags & inspect.CO_OPTIMIZED or old.co_freevars != new.co_freevars:
            raise _BeginsAnew
        pairs = [] if is_other and len(olds) != len(news) else zip(olds, news)
        is_changed = sum(compare(*pair) for pair in pairs) > 0 or is_other
        if is_changed and old.co_flags & inspect.CO_OPTIMIZED:
            changed[old.co_qualname, old.co_firstlineno] = new
        return is_changed

    try:
        compare(*(compile(source, "", "exec", dont_inherit=True) for source in (before, after)))
    except _BeginsAnew:
        return None
    return changed


class _BeginsAnew(Exception):
    pass


def _within(code: CodeType) -> list[CodeType]:
    return [one for one in code.co_consts if isinstance(one, CodeType)]


def _is_same(old: CodeType, new: CodeType) -> bool:
    """Without lines, and without the functions within them."""
    return _bare(old) == _bare(new)


def _bare(code: CodeType) -> CodeType:
    consts = tuple(None if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_consts=consts, co_firstlineno=1, co_linetable=b"")


class Program:
    """All functions of the files below `root` that there are now, and caches of what they returned."""

    def __init__(self, root: Path) -> None:
        self._functions: dict[tuple[str, Place], list[FunctionType]] = defaultdict(list)
        self._caches: list[_lru_cache_wrapper[object]] = []
        files: dict[str, str | None] = {}
        for function in _all_functions():
            code = function.__code__
            if code.co_filename not in files:
                path = Path(code.co_filename).resolve()
                files[code.co_filename] = str(path.relative_to(root)) if path.is_relative_to(root) else None
            if (file := files[code.co_filename]) is not None:
                self._functions[file, (code.co_qualname, code.co_firstlineno)].append(function)
        for one in gc.get_objects():
            if isinstance(one, _lru_cache_wrapper) and one.__module__.startswith("leveret"):
                self._caches.append(one)

    def swap(self, file: str, changed: dict[Place, CodeType] | None) -> None:
        """Whoever calls one of these functions runs its new code from now on."""
        assert changed is not None, "more than functions changed"
        for place, code in changed.items():
            for function in self._functions.get((file, place), ()):
                function.__code__ = code
        for cache in self._caches:
            cache.cache_clear()


def _all_functions() -> Iterator[FunctionType]:
    return (one for one in gc.get_objects() if isinstance(one, FunctionType))
