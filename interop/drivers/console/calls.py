"""Functions of the programs beside this file. They run in the environment of a tool, with the standard library only.

Each call is a check, which prints a JSON object on one line: the facts that are compared between brokers.
"""

import json
import os
import traceback
from collections.abc import Callable
from typing import Any

URL = os.environ.get("TOOLS_URL", "")
HOST, PORT = os.environ.get("TOOLS_HOST", ""), os.environ.get("TOOLS_PORT", "")
NODE = os.environ.get("TOOLS_NODE", "")


def check(
    name: str,
    call: Callable[..., Any],
    *arguments: Any,
    facts: Callable[[Any], Any] = lambda answer: answer,
    raises: str | None = None,
    **more: Any,
) -> Any:
    """Make a call. `facts`: makes the facts from the answer. `raises`: the name of the expected exception."""
    try:
        answer = call(*arguments, **more)
    except Exception as error:
        if raises is not None and type(error).__name__ == raises:
            print(json.dumps({"check": name, "facts": raises}), flush=True)
        else:
            last = traceback.format_exception_only(error)[-1].strip()
            print(json.dumps({"check": name, "failed": last[:300]}), flush=True)
        return None
    if raises is not None:
        print(json.dumps({"check": name, "failed": f"expected {raises}"}), flush=True)
    else:
        print(json.dumps({"check": name, "facts": facts(answer)}), flush=True)
    return answer


def only(*names: str) -> Callable[[Any], Any]:
    """Makes facts from an answer: these fields of an object, or of each object in a list, sorted."""

    def of(answer: Any) -> Any:
        if isinstance(answer, list):
            return sorted(({name: one.get(name) for name in names} for one in answer), key=str)
        return {name: answer.get(name) for name in names}

    return of
