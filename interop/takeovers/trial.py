"""A trial: a publisher with confirms and a consumer of one client during one change of the leader."""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from ..brokers.processes import PeerFailed, kill_group

PATIENCE_SECONDS = 90.0
#: Confirms before the change and after it.
BEFORE, BEHIND = 100, 100
#: Seconds between two publishes. About a hundred a second are enough to see a pause.
PAUSE_SECONDS = 0.005
#: Seconds to wait for duplicates.
SETTLE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a trial. `published_s`, `consumed_s`: the longest pauses of confirms, and of messages.

    `twice`: messages that came more than once. `unflagged`: those among them that came again without `redelivered`.
    """

    confirmed: int
    lost: int
    twice: int
    unflagged: int
    published_s: float
    consumed_s: float

    @property
    def is_well(self) -> bool:
        """Whether no message is lost, and all duplicates have `redelivered`."""
        return not self.lost and not self.unflagged


class _Side:
    """A running program. `orders`: of this trial, confirmed or received, and whether redelivered; `times`: when."""

    def __init__(self, command: Sequence[str], log: Path, prefix: str) -> None:
        self._log, self._prefix = log, prefix
        self.times: list[float] = []
        self.orders: list[tuple[str, bool]] = []
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
                bufsize=1,
            )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            words = line.split()
            if words[:1] in (["confirmed"], ["received"]) and words[1].startswith(self._prefix):
                self.orders.append((words[1], words[2:] == ["again"]))
                self.times.append(time.monotonic())

    def feed(self, order: str) -> None:
        """Write a line to its input."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(f"{order}\n")

    def is_past(self, moment: float) -> bool:
        """Whether it has written `BEHIND` lines after a time."""
        return sum(at > moment for at in self.times[-2 * BEHIND :]) >= BEHIND

    def await_fact(self, fact: Callable[[], bool], what: str) -> None:
        """Wait until a fact is true. Raises: PeerFailed, with the output of the program."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not fact():
            code = self.process.poll()
            if time.monotonic() > deadline or code is not None:
                end = "" if code is None else f" (it ended with {code})"
                raise PeerFailed(f"{what}: not within {PATIENCE_SECONDS:g} s{end}\n{self._log.read_text()[-3000:]}")
            time.sleep(0.01)

    def still_s(self, since: float) -> float:
        """The longest pause between lines after a time, in seconds."""
        times = [since, *(at for at in self.times if at > since)]
        return max(later - one for one, later in zip(times, times[1:]))


class _Feeder:
    """Gives a publisher the next order when the last one is confirmed. `sent`: the number of orders."""

    def __init__(self, publisher: _Side, prefix: str) -> None:
        self.sent = 0
        self._publisher, self._prefix = publisher, prefix
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.wait(PAUSE_SECONDS):
            if len(self._publisher.orders) >= self.sent:
                self._publisher.feed(f"{self._prefix}{self.sent}")
                self.sent += 1

    def end(self) -> None:
        """Give no further orders."""
        self._is_over.set()
        self._thread.join()


def run(command: Sequence[str], urls: Sequence[str], act: Callable[[], float], directory: Path, number: int) -> Outcome:
    """Publish and consume while `act` changes the leader. `number`: of this trial, which is part of its orders.

    Raises: PeerFailed: a program ended or does not continue.
    """
    prefix = f"{number}-"
    with ExitStack() as stack:
        consumer, publisher = (
            _Side([*command, what, *urls], directory / f"{what}.log", prefix) for what in ("consume", "publish")
        )
        for side in (consumer, publisher):
            stack.callback(kill_group, side.process)
        feeder = _Feeder(publisher, prefix)
        stack.callback(feeder.end)
        for side, what in ((publisher, "confirms"), (consumer, "deliveries")):
            side.await_fact(lambda side=side: len(side.orders) >= BEFORE, f"{what} before")  # type: ignore[misc]
        since = act()
        time.sleep(SETTLE_SECONDS)  # because it takes a moment until clients notice the change
        settled = time.monotonic()
        for side, what in ((publisher, "confirms"), (consumer, "deliveries")):
            side.await_fact(lambda side=side: side.is_past(settled), what)  # type: ignore[misc]
        feeder.end()
        publisher.await_fact(lambda: len(publisher.orders) >= feeder.sent, "the last confirms")
        confirmed = {order for order, _ in publisher.orders}
        with suppress(PeerFailed):
            consumer.await_fact(lambda: confirmed <= {order for order, _ in consumer.orders}, "the last deliveries")
        time.sleep(SETTLE_SECONDS)
    times = Counter(order for order, _ in consumer.orders)
    unflagged = Counter(order for order, again in consumer.orders if not again)
    return Outcome(
        confirmed=len(confirmed),
        lost=len(confirmed - times.keys()),
        twice=sum(count > 1 for count in times.values()),
        unflagged=sum(count > 1 for count in unflagged.values()),
        published_s=publisher.still_s(since),
        consumed_s=consumer.still_s(since),
    )
