"""A message that dies and its dead letter are one turn's, however many die at once: a kill finds one of the two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from simulated_files import SimulatedFiles

from leveret.engine import ManualClock
from leveret.serving.supervisor import Supervisor
from leveret.testing.harness import Harness

#: More than the broker buries in one turn.
MANY = 2500
TTL_MS = 1000


class Kept(Harness):
    """A broker with its keeper on simulated files: `mortal` leaves dead letters in `dead`."""

    ends_turns = False

    def __init__(self, files: SimulatedFiles | None = None, clock: ManualClock | None = None) -> None:
        super().__init__(journal=files or SimulatedFiles(), clock=clock)
        self.supervisor = Supervisor(self.broker, self.journal, self.recorder)

    def furnish(self) -> None:
        """Many messages that will die."""
        self.queue("mortal", x_dead_letter_exchange="", x_dead_letter_routing_key="dead", x_message_ttl=TTL_MS)
        self.queue("dead")
        self.publish(*map(str, range(MANY)), key="mortal", delivery_mode=2)
        self.turn()
        assert not self.broker.dead_letters.waiting

    def turn(self) -> bool:
        """One turn ends, and the journal's thread writes what it may."""
        is_more = self.broker.end_turn()
        self.supervisor.commit()
        self.journal.writer.run_once()
        return is_more

    def killed(self) -> Kept:
        """Another one on what the files hold now."""
        return Kept(self.files.crash(), self.clock)

    def held(self) -> Counter[bytes]:
        """The bodies in both queues, and of letters that are on their way."""
        while self.broker.dead_letters.waiting:
            self.broker.end_turn()
        found: Counter[bytes] = Counter()
        for name in ("mortal", "dead"):
            while (taken := self.get(name)) is not None:
                found[taken[1].body] += 1
        return found


def reject(kept: Kept) -> None:
    for _ in range(MANY):
        kept.get("mortal", no_ack=False)
    kept.session.reject(0, multiple=True, requeue=False)


def expire(kept: Kept) -> None:
    kept.clock.advance_ns(2 * TTL_MS * 1_000_000)
    kept.broker.advance()


@pytest.mark.parametrize("die", [reject, expire])
def test_more_die_than_are_buried_in_a_turn(die: Callable[[Kept], None]) -> None:
    """After a turn (each of the first, then one in ten) a kill finds every message once, dead or alive."""
    kept = Kept()
    kept.furnish()
    die(kept)
    was_burying, turns = False, 0
    while kept.broker.dead_letters.waiting or kept.vhost.queues["mortal"].ready_count or not turns:
        kept.turn()
        was_burying = was_burying or bool(kept.broker.dead_letters.waiting)
        turns += 1
        if turns <= 10 or not turns % 10:
            found = kept.killed().held()
            assert len(found) == found.total() == MANY
    assert was_burying
    assert kept.vhost.queues["dead"].ready_count == MANY


def test_what_expired_while_no_broker_ran() -> None:
    """A start lets it die; until its letters are in the journal, it is where it was."""
    kept = Kept()
    kept.furnish()
    kept.clock.advance_ns(2 * TTL_MS * 1_000_000)
    for _ in range(3):
        kept = kept.killed()
        kept.journal.writer.run_once()  # its thread may write at any time
    found = kept.held()
    assert len(found) == found.total() == MANY
