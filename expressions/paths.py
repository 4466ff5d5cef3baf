"""Compiled access to a path in a body. Source: queues page B.1 (arrays), B.2 (choice 9)."""

from collections.abc import Callable
from typing import Any

from .subject import UNREAD, Subject
from .syntax import Step
from .values import Value

Evaluate = Callable[[Subject], Value]
#: Types whose empty values are NULL.
_EMPTY = (str, list)
_UNREAD = type(UNREAD)


def compiled_path(steps: tuple[Step, ...]) -> Evaluate:
    """A function that reads the path. What is missing, an empty text and an empty array are NULL."""
    names = [step.name for step in steps]
    if any(step.element is not None for step in steps):
        return lambda subject: _follow(subject, _document(subject), steps)
    if len(names) == 1:
        (only,) = names

        def one(subject: Subject) -> Value:
            document: Any = subject.document
            if type(document) is not dict:
                document = _document(subject)
                if type(document) is not dict:
                    return _follow(subject, document, steps)
            value: Value = document.get(only)
            return value if value or type(value) not in _EMPTY else None

        return one
    first, *others = names

    def several(subject: Subject) -> Value:
        document: Any = subject.document
        if type(document) is not dict:
            document = _document(subject)
            if type(document) is not dict:
                return _follow(subject, document, steps)
        value: Any = document.get(first)
        for name in others:
            if type(value) is not dict:
                return _follow(subject, document, steps)
            value = value.get(name)
        return value if value or type(value) not in _EMPTY else None

    return several


def _document(subject: Subject) -> Any:
    document = subject.document
    return subject.read() if type(document) is _UNREAD else document


def _follow(subject: Subject, value: Any, steps: tuple[Step, ...]) -> Value:
    """Follow the steps. In an array a name is looked up in each element, and the results are one list."""
    for step in steps:
        if type(value) is dict:
            value = value.get(step.name)
        elif type(value) is list:
            subject.charge(len(value))
            value = _mapped(value, step.name)
        else:
            return None
        if step.element is not None:
            if type(value) is not list:  # it counts as an array of one element
                value = value if step.element == 0 else None
            else:
                value = value[step.element] if step.element < len(value) else None
    return value if value or type(value) not in _EMPTY else None


def _mapped(values: list[Any], name: str) -> list[Any]:
    found: list[Any] = []
    for one in values:
        if type(one) is dict and name in one:
            inner = one[name]
            if type(inner) is list:
                found += inner
            else:
                found.append(inner)
    return found
