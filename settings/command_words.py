"""A parser of command lines that suggests the nearest word for an unknown one."""

import argparse
from collections.abc import Sequence
from typing import Any

from .faults import nearest


class NearestParser(argparse.ArgumentParser):
    """An argparse parser that reports a misspelt option before missing arguments."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        if args is not None and not any(isinstance(one, argparse._SubParsersAction) for one in self._actions):
            self._refuse_unknown(args)
        return super().parse_known_args(args, namespace)

    def _refuse_unknown(self, args: Sequence[str]) -> None:
        options = [name for name in self._option_string_actions if name.startswith("--")]
        for one in args:
            if one == "--":
                return
            name = one.partition("=")[0]
            if len(name) > 2 and name.startswith("--") and not any(known.startswith(name) for known in options):
                self.error(f"unknown option {name!r}{nearest(name, options)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = [] if action.choices is None else list(action.choices)
        if choices and value not in choices:
            listed = ", ".join(map(str, choices))
            problem = f"{value!r} is not right{nearest(str(value), map(str, choices))}, expected one of {listed}"
            raise argparse.ArgumentError(action, problem)
