"""Misspelt attributes and keywords of the test broker name the nearest right one.

Python says so of attributes only where it prints a traceback itself, not to pytest, and of keywords not at all.
"""

import inspect
import re
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from ..settings.faults import nearest

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])

_UNEXPECTED = re.compile(r"(?:[\w<>]+\.)*(\w+)\(\) got an unexpected keyword argument '(\w+)'")


def nearest_names(owner: C) -> C:
    """Of a class: for its instances' attributes and the keywords of its public methods."""
    for name, value in list(vars(owner).items()):
        if inspect.isfunction(value) and not name.startswith("_"):
            setattr(owner, name, nearest_keywords(value))

    def unknown(self: object, name: str) -> Any:
        there = [known for known in {**dict.fromkeys(dir(owner)), **_own(self)} if not known.startswith("_")]
        listed = f" (there are: {', '.join(sorted(there))})" if not name.startswith("_") else ""
        raise AttributeError(f"{owner.__name__!r} has no attribute {name!r}{nearest(name, there)}{listed}")

    assert "__getattr__" not in vars(owner)
    owner.__getattr__ = unknown  # type: ignore[attr-defined]
    return owner


def _own(one: object) -> dict[str, Any]:
    """What an instance has beside its class; nothing of one with slots."""
    try:
        return dict(object.__getattribute__(one, "__dict__"))
    except AttributeError:
        return {}


def nearest_keywords(function: F) -> F:
    """Of a function."""

    @wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        try:
            return function(*args, **named)
        except TypeError as error:
            misspelt = _UNEXPECTED.match(str(error))
            if misspelt is None or misspelt[1] != function.__name__:
                raise
            known = [name for name in inspect.signature(function).parameters if name != "self"]
            if misspelt[2] in known:  # a function of the same name further inside
                raise
            raise TypeError(f"{misspelt[0]}{nearest(misspelt[2], known)}") from None

    return call  # type: ignore[return-value]
