"""Which simulated worlds run which function, and how long each takes: `worlds_map.py SEED COUNT`, kept in `.mutants/`.

As of tests (`covering.py`): a fault is looked for first in the worlds that run what it changes.
"""

from __future__ import annotations

import gc
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from time import process_time
from types import CodeType, FrameType
from typing import Any

from covering import KEPT
from mutant import MODULE, ROOT
from simulated import SHORT, STORM, Seed, run_world

FILE = KEPT / "worlds.json"
#: Of so many worlds one is a storm of three nodes.
STORM_EVERY = 4
#: So many of the worlds that run a function are varied.
VARIED_MAX = 8
#: Files of which other worlds run nothing.
CLUSTERED = ("cluster/", "journal/copying/")


class WorldsMap:
    """The measured worlds by function, those first that run little else and are over soon."""

    def __init__(self, worlds: Sequence[Seed] = (), functions: dict[str, list[int]] | None = None) -> None:
        self._worlds = worlds
        self._functions = functions or {}

    def of(self, file: str, function: str, first_seed: int, *, is_clustered: bool = False) -> Iterator[Seed]:
        """Worlds that run it, and then without end variants of the first of them, and those from a seed on.

        Of a module's own code: worlds that run any function of its file. `is_clustered`: the fault shows where there
        are several nodes.
        """
        is_clustered = is_clustered or file.startswith(CLUSTERED)
        of_file = [name for name in self._functions if name.startswith(f"{file}::")]
        names = of_file if function == MODULE else [f"{file}::{function}"]
        known = [self._worlds[at] for at in dict.fromkeys(at for name in names for at in self._functions.get(name, ()))]
        yield from sorted(known, key=lambda world: is_clustered and world.kind != STORM)
        varied = [] if is_clustered else [world for world in known if world.kind == SHORT][:VARIED_MAX]
        for number in count():
            yield from (world._replace(variant=number + 1) for world in varied)
            yield Seed(STORM if is_clustered else SHORT, first_seed + number)


def read_map() -> WorldsMap:
    """What was measured last; empty, if nothing was."""
    if not FILE.exists():
        return WorldsMap()
    read = json.loads(FILE.read_text())
    return WorldsMap([Seed(*one) for one in read["worlds"]], read["functions"])


def measure(first: int, number: int) -> None:
    """Run so many worlds, and keep what each of them runs."""
    KEPT.mkdir(exist_ok=True)
    worlds: list[Seed] = []
    costs: list[float] = []
    ran: list[set[str]] = []
    for seed in range(first, first + number):
        world = Seed(STORM if seed % STORM_EVERY == 0 else SHORT, seed)
        calls = _Calls()
        begun = process_time()
        sys.settrace(calls)
        try:
            fault = run_world(world)
        finally:
            sys.settrace(None)
        gc.collect()
        if fault is not None:
            print(f"{world} breaks: {fault}", flush=True)
            continue
        worlds.append(world)
        costs.append(process_time() - begun)
        ran.append(calls.functions())
    functions: dict[str, list[int]] = defaultdict(list)
    for at in sorted(range(len(worlds)), key=lambda at: costs[at] * len(ran[at])):
        for function in ran[at]:
            functions[function].append(at)
    FILE.write_text(json.dumps({"worlds": worlds, "functions": functions}))
    print(f"{len(worlds)} worlds run {len(functions)} functions, in {sum(costs):.0f} CPU s")


class _Calls:
    """A trace of `sys.settrace` that knows which code was called."""

    def __init__(self) -> None:
        self._codes: set[CodeType] = set()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        self._codes.add(frame.f_code)

    def functions(self) -> set[str]:
        """As the rows name them: file and qualified name."""
        root, found = ROOT.resolve(), set()
        for code in self._codes:
            if "leveret" in code.co_filename and (path := Path(code.co_filename).resolve()).is_relative_to(root):
                found.add(f"{path.relative_to(root)}::{code.co_qualname.replace('.<locals>', '')}")
        return found


if __name__ == "__main__":
    measure(int(sys.argv[1]), int(sys.argv[2]))
