"""No id, offset or bookmark that a client has seen ever means another message, however often the broker dies.

Decision 18. The clients here keep everything that they were shown, of messages too that no disk ever had.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, product
from pathlib import Path
from typing import Any

import pytest
from replay_desk import JournalReplays
from simulated_files import SimulatedFiles

from leveret.engine import Broker, ManualClock
from leveret.journal.recording.checkpoint import checkpoint
from leveret.journal.recovery.recovery import IDS_UNNOTED_MAX
from leveret.serving.supervisor import Supervisor
from leveret.settings import load_configuration

ORDERS = '[[logged-topic]]\nname = "q"\n'
LEASED, STREAM, QUORUM = "q", "s", "u"
#: Headers that say which message it is.
SHOWN = ("x-bookmark", "x-stream-offset", "x-amps-bookmark")


class Death(Exception):
    """The process is killed at this operation of its files."""


class Witness:
    """What clients were shown over all lives of a broker: which body each id of each queue has."""

    def __init__(self) -> None:
        self.bodies: dict[tuple[str, str, str], str] = {}
        self.count = 0

    def look(self, desk: JournalReplays, queue: str, **start: Any) -> None:
        """What a consumer is shown, at once."""
        self.count += 1
        tag = f"{queue}{self.count}"
        desk.replay(queue=queue, tag=tag, **start)
        self.note(queue, desk)

    def note(self, queue: str, desk: JournalReplays) -> None:
        for one in desk.got:
            for name in SHOWN:
                if name in one.headers:
                    place = queue, name, str(one.headers[name])
                    assert self.bodies.setdefault(place, one.body) == one.body, f"{place} is another message now"


def state(desk: JournalReplays, slices: int | None = None) -> None:
    """A checkpoint, or the beginning of one."""
    desk.journal.commit()
    for _ in islice(checkpoint(desk.pair.broker, desk.journal, desk.recorder), slices):
        desk.settle()


def at_once(desk: JournalReplays) -> SimulatedFiles:
    """Nothing of what this life did is written."""
    return desk.files.crash()


def written(desk: JournalReplays) -> SimulatedFiles:
    desk.settle()
    return desk.files.crash()


def power_goes(desk: JournalReplays) -> SimulatedFiles:
    return desk.files.power_cut()


def in_a_checkpoint(desk: JournalReplays) -> SimulatedFiles:
    state(desk, 3)
    return desk.files.crash()


def behind_a_checkpoint(desk: JournalReplays) -> SimulatedFiles:
    """What comes after it is not written."""
    state(desk)
    desk.publish("behind")
    return desk.files.crash()


def at_a_new_segment(desk: JournalReplays) -> SimulatedFiles:
    """Its head is not written yet."""
    desk.settle()
    desk.journal.begin_segment()
    return desk.files.crash()


DEATHS = (at_once, written, power_goes, in_a_checkpoint, behind_a_checkpoint, at_a_new_segment)


def begun() -> JournalReplays:
    desk = JournalReplays(ORDERS)
    desk.queue(LEASED)
    desk.declare(STREAM, x_queue_type="stream")
    desk.declare(QUORUM, x_queue_type="quorum")
    desk.settle()
    return desk


def live(desk: JournalReplays, witness: Witness, life: int) -> None:
    """Messages of each kind of queue, which whoever is there gets as soon as it may."""
    witness.look(desk, LEASED, bookmark="0")
    for number in range(2):
        for queue in (LEASED, STREAM, QUORUM):
            desk.publish(f"{queue}{life}.{number}", key=queue)
    desk.more()
    witness.note(LEASED, desk)
    witness.look(desk, STREAM, stream_offset="first")


@pytest.mark.parametrize(
    "deaths", list(product(DEATHS, repeat=2)), ids=lambda deaths: "-".join(one.__name__ for one in deaths)
)
def test_an_id_is_of_one_message_in_all_lives(deaths: tuple[Callable[[JournalReplays], SimulatedFiles], ...]) -> None:
    """Two deaths of any kinds, and the first once more."""
    witness = Witness()
    desk = begun()
    for life, death in enumerate((*deaths, deaths[0])):
        live(desk, witness, life)
        desk = JournalReplays(ORDERS, death(desk), wall_ms=desk.wall_ms + 1_000)
    live(desk, witness, len(DEATHS))
    desk.settle()
    desk.more()
    witness.note(STREAM, desk)
    witness.look(desk, LEASED, bookmark="0")
    witness.look(desk, STREAM, stream_offset="first")
    assert len(witness.bodies) > 10


@pytest.mark.parametrize("death", DEATHS)
def test_a_bookmark_of_what_was_cut_stands_where_it_stood(death: Callable[[JournalReplays], SimulatedFiles]) -> None:
    """Whoever saw a message that no disk ever had goes on behind what was there before, with all that came later."""
    desk = begun()
    desk.publish("a")
    desk.confirmed()
    desk.replay(bookmark="0")
    desk.publish("cut")
    assert desk.more() == "cut"
    seen = desk.got[0].headers["x-bookmark"]
    desk = JournalReplays(ORDERS, death(desk), wall_ms=desk.wall_ms + 1_000)
    desk.publish("b")
    desk.confirmed()
    behind = "behindb" if death is behind_a_checkpoint and "behind" in desk.replay(bookmark="0", tag="all") else "b"
    assert desk.replay(bookmark=seen) == behind


def operations_of_a_start(files: SimulatedFiles) -> int:
    count = 0

    def counted(operation: str, path: str) -> None:
        nonlocal count
        count += 1

    again = files.crash()
    again.fault = counted
    JournalReplays(ORDERS, again)
    return count


def test_a_start_that_is_killed_gives_no_id_away_twice() -> None:
    """At each operation of its files; what was written by then stays. The lives before and after it show their ids."""
    desk = begun()
    witness = Witness()
    live(desk, witness, 0)
    files = at_once(desk)
    for at in range(operations_of_a_start(files)):
        left = at

        def die(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Death

        dying = files.crash()
        dying.fault = die
        with pytest.raises(Death):
            JournalReplays(ORDERS, dying)
        own = Witness()
        own.bodies = dict(witness.bodies)
        after = JournalReplays(ORDERS, dying.crash())
        live(after, own, 1)
        again = JournalReplays(ORDERS, at_once(after))
        live(again, own, 2)


def test_ids_of_what_is_not_recorded_are_noted(tmp_path: Path) -> None:
    """Billions of transient messages use ids, too: a start goes on above them, although no record has one."""
    configuration, _ = load_configuration([])

    def opened() -> tuple[Broker, Supervisor]:
        broker = Broker(ManualClock())
        return broker, Supervisor.open(str(tmp_path / "data"), broker, configuration)

    seen = 0
    for _ in range(3):
        broker, supervisor = opened()
        assert broker.context.next_id > seen
        for _ in range(3):
            broker.context.next_id += IDS_UNNOTED_MAX + 1
            supervisor.commit()
        broker.context.next_id += IDS_UNNOTED_MAX - 1  # so many may be used without a note
        supervisor.commit()
        seen = broker.context.next_id
        supervisor.journal.wait(supervisor.journal.next_lsn)
        supervisor.journal.close()
