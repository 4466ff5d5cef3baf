"""Rounds on one directory: start a broker, look, load it, kill it; sometimes kill it while it starts."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from raw_client import Unexpected

from leveret.cli.control_client import ControlFailed

from .autopsy import autopsy, check_times
from .broker import Killer, Process, Setup
from .content import FANOUT
from .declares import Declares, declare_all
from .line import CONFIRMED, TRANSACTED, Line, Mood
from .look import look
from .operator import Operator
from .truth import Broken
from .world import CONSUMED, QUEUES, World

LOAD_SECONDS = 0.7
#: About what an orderly end takes behind its goodbye to clients: a last checkpoint.
SHUTDOWN_SECONDS = 0.1
#: Queues are emptied when one, or all together, hold more.
DEPTH_MAX, MESSAGES_MAX = 4000, 6000
#: Publishes that are sent without a confirm, about: more of them are open at the end, or more are sure.
WINDOWS = (100, 500, 500, 5000)
#: The control table lists a thousand.
WAITING_MAX = 400
#: What an operator does between two steps of a round, at most.
RULES = (2, 8, 40)
#: Counted apart.
MANY = 1000


class Lane:
    """One broker's life: `setup` says where, `chance` what happens. `figures`: what was done.

    `rules`: how many operations of an operator are between two steps of a round, less one; one of these a round.
    """

    def __init__(self, setup: Setup, chance: random.Random, rules: Sequence[int] = RULES) -> None:
        Path(setup.directory).mkdir(parents=True, exist_ok=True)
        self.setup = setup
        self.world = World(chance)
        self.figures: Counter[str] = Counter()
        self._chance = chance
        self._rules = rules
        self._start_seconds = 0.2

    def round(self) -> None:
        """Start, look, load, kill. Raises: Broken."""
        chance = self._chance
        while chance.random() < 0.25:
            self._kill_in_start()
        process = Process(self.setup, forked=chance.random() < 0.9)
        try:
            begun = time.monotonic()
            port = process.port()
            self._start_seconds = 0.8 * self._start_seconds + 0.2 * (time.monotonic() - begun)
            depths = look(port, self.world)
            self.figures["messages looked at"] += sum(depths.values())
            self.figures["queues of a thousand and more looked at"] += sum(depth >= MANY for depth in depths.values())
            self._load(process, port, depths)
        finally:
            process.stop(signal.SIGKILL)
        self._look_at_files()

    def _look_at_files(self) -> None:
        """Between two brokers. Raises: Broken, Damaged."""
        world, figures = self.world, self.figures
        world.all_is_sent()
        world.look_at_clock()
        found = autopsy(self.setup.journal)
        figures["torn ends"] += found.was_torn
        figures["kills in a checkpoint"] += found.in_checkpoint
        figures["kills while a segment was emptied"] += found.in_moving
        check_times(world, found)

    def _kill_in_start(self) -> None:
        process = Process(self.setup, forked=True)
        process.says_something(self._chance.random() * 1.2 * self._start_seconds)
        process.stop(signal.SIGKILL)
        self.figures["kills in a start"] += 1

    def _load(self, process: Process, port: int, depths: dict[str, int]) -> None:
        chance, world = self._chance, self.world
        how = signal.SIGKILL if chance.random() < 0.92 else signal.SIGTERM
        moods = self._moods(depths, is_orderly=how == signal.SIGTERM)
        lines = [Line(port, world, number, mood) for number, mood in enumerate(moods)]
        declare_all(lines[0], world)
        for line in lines:
            line.start()
        consumed = {queue for mood in moods for queue in mood.consumed}
        operator, rules = Operator(port, world), chance.choice(self._rules)
        declares = Declares(lines[0], world, set(QUEUES) - consumed)
        aim = chance.choice(("", "", "", "roll", "reclaim")) if how == signal.SIGKILL else ""
        after_s, lag_s = chance.random() * LOAD_SECONDS * (1 + (rules > 8)), chance.random() * 0.004
        killer = Killer(process, self.setup, after_s, aim=aim, lag_s=lag_s, how=how)
        killer.start()
        try:
            while True:
                for line in lines:
                    has_more = line.number == 0 and chance.random() < moods[0].declares
                    line.step(declares.some() if has_more else b"")
                for _ in range(chance.randrange(rules)):
                    operator.something()
        except (OSError, Unexpected, ControlFailed) as error:
            if not killer.has_struck:
                raise Broken(f"before it was killed: {error}") from error
        finally:
            killer.call_off()
            for line in lines:
                self._hear_out(line)
        figures = self.figures
        figures["kills" if how == signal.SIGKILL else "orderly ends"] += 1
        if killer.has_hit:
            figures[f"kills at a {aim}"] += 1
        figures["confirmed"] += sum(line.confirmed for line in lines)
        figures["answers to operators"] += operator.done
        figures["open at the end"] += world.truth.open_count
        if how != signal.SIGKILL and chance.random() < 0.5:
            process.says_something(chance.random() * SHUTDOWN_SECONDS)
            process.stop(signal.SIGKILL)
            figures["kills in an orderly end"] += 1
        elif how != signal.SIGKILL and (code := process.wait()):
            raise Broken(f"an orderly end has exit code {code}")

    def _hear_out(self, line: Line) -> None:
        try:
            line.read_to_the_end()
        except (OSError, Unexpected):
            pass
        line.wire.finish()

    def _moods(self, depths: dict[str, int], *, is_orderly: bool) -> list[Mood]:
        """What the round's connections do: pile up, work, or empty the queues.

        Nobody consumes when the end is to be orderly: it counts what is out, and only the broker knows what is.
        """
        chance = self._chance
        deepest, total = max(depths.values(), default=0), sum(depths.values())
        kind = chance.choice(("fill", "fill", "mixed", "mixed", "empty"))
        if deepest > DEPTH_MAX or total > MESSAGES_MAX:
            kind = "empty"
        targets = [FANOUT, "first", "timed", "work", "ring", "capped", "log", "brief", "newest", "kept"]
        window = chance.choice(WINDOWS)
        favoured = chance.sample(targets, 2) * 10
        if len(self.world.waiting) < WAITING_MAX:
            targets.append("later")
        if kind == "fill" or is_orderly:
            targets += favoured
            return [Mood(targets, {}, burst=chance.choice((20, 100, 400)), acks=0, window=window)]
        moods = [Mood(targets, {}, burst=60, acks=240, window=window)]
        if chance.random() < 0.3:
            moods.append(Mood([FANOUT, "work"], {}, burst=40, acks=240, window=window))
        if kind == "empty":
            for mood in moods:
                mood.burst, mood.acks = 5, 600
        for queue in CONSUMED if kind == "empty" else chance.sample(CONSUMED, 4):
            chance.choice(moods).consumed[queue] = chance.choice((CONFIRMED, CONFIRMED, TRANSACTED))
        return moods
