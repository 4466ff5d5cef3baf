"""Errors for misspelt attributes and keywords of the test broker that suggest the nearest name.

Python suggests attributes only in tracebacks that it prints itself, not in those of pytest, and never keywords.
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
    """Decorate a class: suggest attributes of its instances and keywords of its public methods."""
    for name, value in list(vars(owner).items()):
        if inspect.isfunction(value) and not name.startswith("_"):
            setattr(owner, name, nearest_keywords(value))

    def unknown(self: object, name: str) -> Any:
        names = [known for known in {**dict.fromkeys(dir(owner)), **_own(self)} if not known.startswith("_")]
        listed = f" (there are: {', '.join(sorted(names))})" if not name.startswith("_") else ""
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}{nearest(name, names)}{listed}")

    assert "__getattr__" not in vars(owner)
    owner.__getattr__ = unknown  # type: ignore[attr-defined]
    return owner


def _own(one: object) -> dict[str, Any]:
    """The attributes of an instance, without those of its class; {} if it has slots."""
    try:
        return dict(object.__getattribute__(one, "__dict__"))
    except AttributeError:
        return {}


def nearest_keywords(function: F) -> F:
    """Decorate a function: suggest keywords."""

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
            if misspelt[2] in known:  # the error is about a function of the same name that this one calls
                raise
            raise TypeError(f"{misspelt[0]}{nearest(misspelt[2], known)}") from None

    return call  # type: ignore[return-value]
