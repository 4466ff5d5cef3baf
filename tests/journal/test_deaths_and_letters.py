"""A message that dies and its dead letter are one turn's, however many die at once: a kill finds one of the two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from simulated_files import SimulatedFiles

from leveret.engine import Broker, Envelope, ManualClock, User
from leveret.engine.messages.content import PLAIN, PropertySummary, encode_header
from leveret.engine.messages.field_table import Field
from leveret.journal import Journal, JournalOptions
from leveret.journal.recording.recorder import Recorder
from leveret.journal.recording.restore import restore
from leveret.serving.supervisor import Supervisor

USER = User("u")
#: More than the broker buries in one turn.
MANY = 2500
TTL_MS = 1000


class Kept:
    """A broker with its keeper on simulated files: `mortal` leaves dead letters in `dead`."""

    def __init__(self, files: SimulatedFiles, clock: ManualClock) -> None:
        self.files, self.clock = files, clock
        self.broker = Broker(clock)
        options = JournalOptions(preallocate_size=0)
        self.journal = Journal.open("data", clock, options, files=files, threaded=False, new_id=bytes(16))
        recorder = Recorder(self.broker, self.journal)
        restore(self.broker, self.journal, recorder)
        self.supervisor = Supervisor(self.broker, self.journal, recorder)
        self.session = self.broker.connections.open("/", USER, name="c", flush=lambda: None).open_session()
        self.vhost = self.broker.virtual_hosts["/"]

    def furnish(self) -> None:
        """Many messages that will die."""
        letters = {"x-dead-letter-exchange": Field("S", b""), "x-dead-letter-routing-key": Field("S", b"dead")}
        expiry = {"x-message-ttl": Field("l", TTL_MS)}
        self.vhost.queues.declare("mortal", client=self.session.client, durable=True, arguments=letters | expiry)
        self.vhost.queues.declare("dead", client=self.session.client, durable=True)
        bodies = [b"%d" % number for number in range(MANY)]
        contents = [PLAIN.join(encode_header(len(body), {"delivery_mode": 2}), body) for body in bodies]
        envelope = Envelope("", "mortal", PropertySummary(persistent=True))
        self.session.publish(self.vhost.router.route("", "mortal", USER), envelope, contents, mandatory=False)
        self.turn()
        assert not self.broker.dead_letters.count

    def turn(self) -> None:
        """One turn ends, and the journal's thread writes what it may."""
        self.broker.end_turn()
        self.supervisor.commit()
        self.journal.writer.run_once()

    def killed(self) -> Kept:
        """Another one on what the files hold now."""
        return Kept(self.files.crash(), self.clock)

    def held(self) -> Counter[bytes]:
        """The bodies in both queues, and of letters that are on their way."""
        while self.broker.dead_letters.count:
            self.broker.end_turn()
        found: Counter[bytes] = Counter()
        for name in ("mortal", "dead"):
            while (taken := self.session.get(self.vhost.queues[name], no_ack=True)) is not None:
                found[taken[1].envelope.framing.split(taken[1].content)[1]] += 1
        return found


def reject(kept: Kept) -> None:
    for _ in range(MANY):
        kept.session.get(kept.vhost.queues["mortal"], no_ack=False)
    kept.session.reject(0, multiple=True, requeue=False)


def expire(kept: Kept) -> None:
    kept.clock.advance_ns(2 * TTL_MS * 1_000_000)
    kept.broker.advance()


@pytest.mark.parametrize("die", [reject, expire])
def test_more_die_than_are_buried_in_a_turn(die: Callable[[Kept], None]) -> None:
    """After a turn (each of the first, then one in five) a kill finds every message once, dead or alive."""
    kept = Kept(SimulatedFiles(), ManualClock())
    kept.furnish()
    die(kept)
    was_burying, turns = False, 0
    while kept.broker.dead_letters.count or kept.vhost.queues["mortal"].ready_count or not turns:
        kept.turn()
        was_burying = was_burying or kept.broker.dead_letters.count
        turns += 1
        if turns <= 20 or not turns % 5:
            found = kept.killed().held()
            assert len(found) == found.total() == MANY
    assert was_burying
    assert kept.vhost.queues["dead"].ready_count == MANY


def test_what_expired_while_no_broker_ran() -> None:
    """A start lets it die; until its letters are in the journal, it is where it was."""
    kept = Kept(SimulatedFiles(), ManualClock())
    kept.furnish()
    kept.clock.advance_ns(2 * TTL_MS * 1_000_000)
    for _ in range(3):
        kept = kept.killed()
        kept.journal.writer.run_once()  # its thread may write at any time
    found = kept.held()
    assert len(found) == found.total() == MANY
