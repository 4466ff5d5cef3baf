"""Rounds on one directory: start a broker, look, load it, kill it; sometimes kill it while it starts."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from raw_client import Unexpected

from leveret.cli.control_client import ControlFailed

from .autopsy import autopsy, check_times
from .borrower import Borrower
from .broker import Killer, Process, Setup
from .content import FANOUT
from .crowd import Crowd, check_spool
from .declares import Declares, declare_all
from .line import CONFIRMED, TRANSACTED, Line, Mood
from .look import look
from .operator import Operator
from .truth import Broken
from .world import CONSUMED, ONCE, QUEUES, TOPIC, World

LOAD_SECONDS = 0.7
#: Of rounds with nothing but leased queues, which are to be many.
BRIEF_SECONDS = 0.2
LEASED_TARGETS = ("lent", "lent-briefly", ONCE, "urgent", TOPIC)
BRIEF_BURSTS, BRIEF_WINDOW = (2, 5, 40), 40
#: There queues are emptied by a purge, when they hold more.
BRIEF_DEPTH_MAX = 150
#: How likely somebody consumes leased queues.
BORROWED_ROUNDS = 0.8
#: About what an orderly end takes behind its goodbye to clients: a last checkpoint.
SHUTDOWN_SECONDS = 0.1
#: Queues are emptied when one, or all together, hold more.
DEPTH_MAX, MESSAGES_MAX = 4000, 6000
#: Publishes that are sent without a confirm, about: more of them are open at the end, or more are sure.
WINDOWS = (100, 500, 500, 5000)
#: How likely a round has limits, and publishers that are blocked.
LIMITED_ROUNDS = 0.5
#: The control table lists a thousand.
WAITING_MAX = 400
#: What an operator does between two steps of a round, at most.
RULES = (2, 8, 40)
#: Counted apart.
MANY = 1000


class Lane:
    """One broker's life: `setup` says where, `chance` what happens. `figures`: what was done.

    `rules`: how many operations of an operator are between two steps of a round, less one; one of these a round.
    `is_leased`: short rounds with nothing but leased queues.
    """

    def __init__(
        self, setup: Setup, chance: random.Random, rules: Sequence[int] = RULES, *, is_leased: bool = False
    ) -> None:
        Path(setup.directory).mkdir(parents=True, exist_ok=True)
        self.setup = setup
        self.world = World(chance)
        self.figures: Counter[str] = Counter()
        self._chance = chance
        self._rules = (1,) if is_leased else rules
        self._is_leased = is_leased
        self._start_seconds = 0.2

    def round(self) -> None:
        """Start, look, load, kill. Raises: Broken."""
        chance = self._chance
        while chance.random() < 0.25:
            self._kill_in_start()
        setup = replace(self.setup, has_limits=not self._is_leased and chance.random() < LIMITED_ROUNDS)
        process = Process(setup, forked=chance.random() < 0.9)
        try:
            begun = time.monotonic()
            port = process.port()
            check_spool(setup)
            self._start_seconds = 0.8 * self._start_seconds + 0.2 * (time.monotonic() - begun)
            depths = look(port, self.world)
            self.figures["messages looked at"] += sum(depths.values())
            self.figures["queues of a thousand and more looked at"] += sum(depth >= MANY for depth in depths.values())
            self._load(process, port, depths, has_limits=setup.has_limits)
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

    def _load(self, process: Process, port: int, depths: dict[str, int], *, has_limits: bool) -> None:
        chance, world = self._chance, self.world
        how = signal.SIGKILL if chance.random() < 0.92 else signal.SIGTERM
        moods = self._moods(depths, is_orderly=how == signal.SIGTERM)
        lines = [Line(port, world, number, mood) for number, mood in enumerate(moods)]
        declare_all(lines[0], world)
        for line in lines:
            line.start()
        for queue, depth in depths.items():
            if self._is_leased and depth > BRIEF_DEPTH_MAX:
                lines[0].wire.write(lines[0].purge(queue))
        crowd = Crowd(port, world, takes=how == signal.SIGKILL) if has_limits else None
        borrower = Borrower(port, world, moods[0].acks // 4 + 4) if chance.random() < BORROWED_ROUNDS else None
        consumed = {queue for mood in moods for queue in mood.consumed}
        operator, rules = Operator(port, world), chance.choice(self._rules)
        declares = Declares(lines[0], world, set(QUEUES) - consumed)
        aim = chance.choice(("", "", "", "roll", "reclaim")) if how == signal.SIGKILL else ""
        longest_s = BRIEF_SECONDS if self._is_leased else LOAD_SECONDS * (1 + (rules > 8))
        after_s, lag_s = chance.random() * longest_s, chance.random() * 0.004
        killer = Killer(process, self.setup, after_s, aim=aim, lag_s=lag_s, how=how)
        killer.start()
        try:
            while True:
                for line in lines:
                    has_more = line.number == 0 and chance.random() < moods[0].declares
                    line.step(declares.some() if has_more else b"")
                for _ in range(chance.randrange(rules)):
                    operator.something()
                if crowd is not None:
                    crowd.step()
                if borrower is not None:
                    borrower.step()
        except (OSError, Unexpected, ControlFailed) as error:
            if not killer.has_struck:
                raise Broken(f"before it was killed: {error}") from error
        except BaseException:
            process.stop(signal.SIGKILL)  # or else nobody would hear the end of it
            raise
        finally:
            killer.call_off()
            for line in lines:
                self._hear_out(line)
            if crowd is not None:
                crowd.hear_out()
                self.figures.update(crowd.figures)
            if borrower is not None:
                borrower.hear_out()
                self.figures.update(borrower.figures)
        figures = self.figures
        figures["ends while leases were out"] += borrower is not None
        figures["kills while publishes were held"] += bool(has_limits and how == signal.SIGKILL)
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
        targets = list(LEASED_TARGETS)
        if not self._is_leased:
            targets += [FANOUT, "first", "timed", "work", "ring", "capped", "log", "brief", "newest", "kept"]
        window = chance.choice(WINDOWS)
        favoured = chance.sample(targets, 2) * 10
        if len(self.world.waiting) < WAITING_MAX and not self._is_leased:
            targets.append("later")
        if kind == "fill" or is_orderly:
            targets += favoured
            moods = [Mood(targets, {}, burst=chance.choice((20, 100, 400)), acks=0, window=window)]
        else:
            moods = [Mood(targets, {}, burst=60, acks=240, window=window)]
        if self._is_leased:
            more = {"burst": chance.choice(BRIEF_BURSTS), "window": BRIEF_WINDOW, "transactions": 0.05}
            moods = [replace(moods[0], transacted=LEASED_TARGETS, declares=0.0, **more)]
        if kind == "fill" or is_orderly:
            return moods
        if chance.random() < 0.3 and not self._is_leased:
            moods.append(Mood([FANOUT, "work"], {}, burst=40, acks=240, window=window))
        if kind == "empty":
            for mood in moods:
                mood.burst, mood.acks = 5, 600
        consumed = ("ended",) if self._is_leased else CONSUMED
        for queue in consumed if kind == "empty" else chance.sample(consumed, min(4, len(consumed))):
            chance.choice(moods).consumed[queue] = chance.choice((CONFIRMED, CONFIRMED, TRANSACTED))
        return moods
