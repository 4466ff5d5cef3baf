"""A parser of command lines that suggests the nearest word for an unknown one."""

import argparse
from collections.abc import Sequence
from typing import Any

from .faults import nearest


class NearestParser(argparse.ArgumentParser):
    """An argument parser that reports a misspelt option before missing arguments, and accepts options between words."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        if args is not None and not any(isinstance(one, argparse._SubParsersAction) for one in self._actions):
            self._refuse_unknown(args)
        options, left = super().parse_known_args(args, namespace)
        return options, self._take_words(options, left) if left else left

    def _take_words(self, options: argparse.Namespace, left: list[str]) -> list[str]:
        """Add words after an option to the list of positional words before it: argparse ends that list at
        the first option.

        Returns: the words that were not added.
        """
        ends = left.index("--") if "--" in left else len(left)
        words = left[:ends] + left[ends + 1 :]
        if not any(one.startswith("-") and one != "-" for one in left[:ends]):
            for action in self._actions:
                if not action.option_strings and action.nargs in ("*", "+") and not action.type and not action.default:
                    setattr(options, action.dest, [*(getattr(options, action.dest) or ()), *words])
                    return []
        return left

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
            problem = f"{value!r} is invalid{nearest(str(value), map(str, choices))}, expected one of {listed}"
            raise argparse.ArgumentError(action, problem)
