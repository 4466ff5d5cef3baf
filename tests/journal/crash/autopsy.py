"""What a killed broker's files say before another one starts on them: times, and what the kill came into the way of.

Clients see neither when a message will expire nor when one is due; the journal does. Nothing is changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from leveret.engine.messages.content import NATIVE
from leveret.journal.disk.files import REAL
from leveret.journal.format.record import MOVED, QUEUE, SNAPSHOT
from leveret.journal.recovery.content_reader import ContentReader
from leveret.journal.recovery.reader import JournalReader
from leveret.journal.recovery.recovered import RecoveredMessage
from leveret.journal.recovery.recovery import recover
from leveret.journal.recovery.replay import Recovered

from .content import number_of
from .truth import Broken
from .world import SLACK_MS, World, message


@dataclass(slots=True)
class Autopsy:
    """`later`: id -> number and due time (wall ms) of what waits; `timed`: number -> when it expires (wall ms)."""

    was_torn: bool = False
    in_checkpoint: bool = False
    in_moving: bool = False
    later: dict[int, tuple[int, int]] = field(default_factory=dict)
    timed: dict[int, int] = field(default_factory=dict)


def autopsy(directory: str) -> Autopsy:
    """Raises: Damaged."""
    found = recover(REAL, directory)
    result = Autopsy(was_torn=bool(found.torn_bytes))
    if not found.segments:
        return result
    for _, record in JournalReader(directory).records(found.checkpoint_end, trust_open=True):
        result.in_checkpoint = result.in_checkpoint or record.kind == SNAPSHOT
        result.in_moving = result.in_moving or record.kind == MOVED
    contents = ContentReader(directory)
    try:
        for one, number in _messages(found, contents, "later"):
            result.later[one.id] = (number, one.state.due_ms)
        for one, number in _messages(found, contents, "timed"):
            result.timed[number] = one.expires_ms
    finally:
        contents.close()
    return result


def _messages(found: Recovered, contents: ContentReader, queue: str) -> list[tuple[RecoveredMessage, int]]:
    ids = [id_ for id_ in found.names.ids_of(QUEUE) if found.names.text(id_) == queue and id_ in found.queues]
    return [
        (one, number_of(NATIVE.split(contents.read_message(one.content_lsn)[1].content)[1]))
        for id_ in ids
        for one in found.queues[id_].messages()
    ]


def check_times(world: World, found: Autopsy) -> None:
    """A time that was told once stays. Raises: Broken."""
    slack = SLACK_MS + world.clock_moved_ms
    told = {message("timed", number): time for number, time in found.timed.items()}
    told |= {message("later", number): time for number, time in found.later.values()}
    for fact, time_ms in told.items():
        if fact not in world.times:
            raise Broken(f"{fact} is in the journal, but was gone for good before")
        earliest, latest = world.times[fact]
        if not earliest - slack <= time_ms <= latest + slack:
            raise Broken(f"{fact} has its time at {time_ms} ms, which is not within {earliest} and {latest} ms")
        world.times[fact] = (max(earliest, time_ms - slack), min(latest, time_ms + slack))
    world.waiting = found.later
