"""Simulated worlds with one fault at a time, each in a fork: `worlds.py JOBS DESCRIPTOR` (`Tree.try_jobs`).

The process imports the simulations and all that a world may need once. A fork has the fault's code instead of what it
changes, and runs one world after the other until one breaks or the CPU time is over.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import pickle
import pkgutil
import resource
import select
import signal
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from time import monotonic, process_time
from typing import Any, BinaryIO

from mutant import ROOT
from simulated import KINDS, Seed, run_world
from swap import Program, changed_functions
from tree import Result, Tree, Verdict, WorldsJob

#: A fault that takes more memory than this is found.
MEMORY_MAX = 6 << 30
#: A world that computes for so many seconds has no end: about a hundred times what a short one takes.
HANGS_S = 20
#: So many times what it may compute a fork may last: on a busy machine.
WAITS_MAX = 20
#: What a world may import while it runs.
PACKAGES = ("engine", "journal", "cluster", "amqp_frontend", "settings", "expressions")


class _Worlds:
    def __init__(self) -> None:
        for name in PACKAGES:
            package = import_module(f"leveret.{name}")
            for module in pkgutil.walk_packages(package.__path__, f"leveret.{name}."):
                import_module(module.name)
        for kind in KINDS:
            run_world(Seed(kind, 1))  # imports what it needs
        gc.collect()
        self._program = Program(ROOT.resolve())
        gc.freeze()  # forks share what is there: nobody looks through it again
        self._tree = Tree(ROOT)
        self._breaks_anyway: dict[Seed, bool] = {}  # the world of a seed, without a fault

    def run(self, job: WorldsJob) -> tuple[Result, float]:
        """What became of it, and the CPU seconds that it took."""
        sum_s = 0.0
        while True:
            result, seed, cpu_s = self._in_fork(job)
            sum_s += cpu_s
            if result.verdict is not Verdict.FOUND or not self._fails_without(job, seed):
                return result, sum_s
            job = replace(job, seeds=job.seeds[job.seeds.index(seed) + 1 :], seconds=max(1, job.seconds - cpu_s))

    def _fails_without(self, job: WorldsJob, seed: Seed) -> bool:
        """Whether this world breaks in any case; not asked where the process had the fault from the start."""
        before = self._tree.before(job.mutant)
        if seed not in self._breaks_anyway and before != job.mutant.source:
            harmless = replace(job, mutant=replace(job.mutant, source=before), seeds=[seed])
            self._breaks_anyway[seed] = self._in_fork(harmless)[0].verdict is Verdict.FOUND
        return self._breaks_anyway.get(seed, False)

    def _in_fork(self, job: WorldsJob) -> tuple[Result, Seed, float]:
        """What became of it, the seed of the last world, and the CPU seconds."""
        changed = changed_functions(self._tree.before(job.mutant), job.mutant.source)
        self._tree.plant(job.mutant)  # for modules that a world is the first to import
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException), open(write, "wb", 0) as told:
                os.setsid()
                os.close(read)
                if changed:  # else it was there at the start
                    self._program.swap(job.mutant.file, changed)
                pickle.dump(_run_worlds(job, told), told)
            os._exit(0)
        os.close(write)
        said, end = b"", monotonic() + WAITS_MAX * (job.seconds + HANGS_S)
        while select.select([read], [], [], max(0, end - monotonic()))[0] and (piece := os.read(read, 1 << 16)):
            said += piece
        os.close(read)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        used = os.wait4(child, 0)[2]
        self._tree.remove()
        *seeds, result = _pickles(said)
        if isinstance(result, Seed):
            how = f"{result}: the world has no end, or was the end"
            seeds, result = [result], Result(Verdict.FOUND, how)
        return result, seeds[-1], used.ru_utime + used.ru_stime


def _pickles(said: bytes) -> list[Any]:
    found, stream = [], io.BytesIO(said)
    with contextlib.suppress(EOFError, pickle.UnpicklingError):
        while True:
            found.append(pickle.load(stream))
    return found


def _run_worlds(job: WorldsJob, told: BinaryIO) -> Result:
    """Tells the seed of each before it begins."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_MAX, MEMORY_MAX))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    begun, worlds = process_time(), 0
    for seed in job.seeds:
        worlds += 1
        pickle.dump(seed, told)
        signal.setitimer(signal.ITIMER_PROF, HANGS_S)  # the process ends
        fault = run_world(seed)
        signal.setitimer(signal.ITIMER_PROF, 0)
        gc.collect()  # while it runs, little is
        if fault is not None:
            return Result(Verdict.FOUND, f"{seed}: {fault}")
        if process_time() - begun > job.seconds:
            break
    return Result(Verdict.SURVIVED, f"no world of {worlds} broke")


def main() -> None:
    """See the module."""
    worlds = _Worlds()
    with open(int(sys.argv[2]), "wb") as results:
        for job in pickle.loads(Path(sys.argv[1]).read_bytes()):
            pickle.dump(worlds.run(job), results)
            results.flush()


if __name__ == "__main__":
    main()
