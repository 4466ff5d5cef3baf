"""Faults in configuration files, their positions, and hints for misspelt names."""

import re
from collections.abc import Iterable

from .frozen import frozen


@frozen
class Fault:
    """One fault in a file; `line` counts from 1."""

    file: str
    line: int
    key: str
    problem: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.key}: {self.problem}"


class ArgumentFault(ValueError):
    """An argument has an impossible value, or two contradict each other."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key
        self.problem = problem


@frozen
class Origin:
    """The position of a declaration or setting in the configuration."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


_POSITION = re.compile(r"(.+?):([0-9]+): ")


def in_order(lines: Iterable[str], files: Iterable[str] = ()) -> list[str]:
    """Lines that begin with FILE:LINE, in the order of files and lines; other lines first. Each line comes once."""
    ranks = {file: rank for rank, file in enumerate(files)}

    def position(line: str) -> tuple[int, int]:
        found = _POSITION.match(line)
        return (-1, 0) if found is None else (ranks.setdefault(found[1], len(ranks)), int(found[2]))

    return sorted(dict.fromkeys(lines), key=position)


#: Share of common letters below which two names are not called similar. Of 54 misspelt names of settings 0.5 to 0.65
#: find 53; of 49 names of other systems 0.5 offers a hint for 22, 0.6 for 7, 0.65 for 2.
SIMILARITY_MIN = 0.65


def nearest(key: str, known: Iterable[str]) -> str:
    """`, did you mean 'x'?` for the known key that is most similar to `key`; empty if there is none."""
    plain = key.lower().replace("_", "-")[:100]
    spelled = {name.lower().replace("_", "-"): name for name in known}
    import difflib  # loaded only for faults

    close = difflib.get_close_matches(plain, list(spelled), n=1, cutoff=SIMILARITY_MIN)
    return f", did you mean {spelled[close[0]]!r}?" if close else ""
