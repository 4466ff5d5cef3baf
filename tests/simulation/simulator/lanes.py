"""Worlds one after the other, in one process or in several: what came of all of them together."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import perf_counter

from .coverage import described
from .world import Report

#: The exit status of a lane in which a world broke.
BROKEN = 1


@dataclass(slots=True)
class Totals:
    """Of some worlds. Times in seconds; `cpu_s`: of all cores together; `hash`: of all, in any order."""

    worlds: int = 0
    broken: int = 0  # of them
    operations: int = 0
    deliveries: int = 0
    confirms: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    real_s: float = 0.0
    hash: int = 0
    happened: Counter[str] = field(default_factory=Counter)

    def add(self, report: Report) -> None:
        """One more world."""
        self.worlds += 1
        self.broken += report.fault is not None
        self.operations += report.operations
        self.deliveries += report.deliveries
        self.confirms += report.confirms
        self.virtual_s += report.virtual_s
        self.cpu_s += report.cpu_s
        self.real_s += report.real_s
        self.hash ^= int(report.hash, 16)
        self.happened += report.happened

    def add_lane(self, text: str) -> None:
        """What `to_json` of another process wrote. Lanes run side by side: their time is not added."""
        values = json.loads(text)
        self.happened += Counter(values.pop("happened"))
        self.real_s = max(self.real_s, values.pop("real_s"))
        self.hash ^= values.pop("hash")
        for name, value in values.items():
            setattr(self, name, getattr(self, name) + value)

    def to_json(self) -> str:
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    def lines(self) -> Iterator[str]:
        """For people."""
        cpu_s, real_s = self.cpu_s or 1e-9, self.real_s or 1e-9
        everything = self.operations + self.deliveries + self.confirms
        yield (
            f"{self.worlds:,} worlds, {self.broken:,} of them broken; {self.operations:,} methods sent by clients, "
            f"{self.deliveries:,} deliveries, {self.confirms:,} confirms"
        )
        yield (
            f"{self.operations / cpu_s:,.0f} methods sent a CPU second of a core, "
            f"{everything / cpu_s:,.0f} with deliveries and confirms"
        )
        yield f"{self.virtual_s:,.0f} virtual seconds, {self.virtual_s / real_s:,.0f} times real time"
        yield from described(self.happened)
        yield f"hash {self.hash:064x}"


def run_lanes(count: int, arguments: list[str]) -> tuple[int, Totals]:
    """This program, several times at once, each as another lane. Returns: exit status, totals."""
    begun = perf_counter()
    command = [sys.executable, sys.argv[0], *arguments, "--lanes", str(count)]
    lanes = [
        subprocess.Popen([*command, "--lane", str(lane)], stdout=subprocess.PIPE, text=True) for lane in range(count)
    ]
    totals, status = Totals(), 0
    for lane in lanes:
        out, _ = lane.communicate()
        if out.strip():
            totals.add_lane(out)
        status = status or lane.returncode
    totals.real_s = perf_counter() - begun
    return status, totals
