"""Many who replay or browse one leased queue, with filters: no turn is long, and each has its turns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pamqp import commands as C
from peer import method
from replay_desk import JournalReplays, MemoryReplays, Replays

READERS, MESSAGES = 118, 200
#: Of one turn, in units of effort (one is about 1.2 us): what `Broker` allows, and a slice of one reader.
TURN_MAX = 8_000
FILTERS = {"takes all": "/n >= 0", "takes none": "/n < 0", "takes one": f"/n = {MESSAGES - 1}"}


def turns(desk: Replays) -> Iterator[int]:
    """What each turn costs, until nothing is left to do."""
    broker = desk.pair.broker
    before = broker.context.turn.effort
    while broker.end_turn() or broker.scheduler.load():
        yield broker.context.turn.effort - before
        before = broker.context.turn.effort
    yield broker.context.turn.effort - before


@pytest.mark.parametrize("filter_", FILTERS.values(), ids=FILTERS)
@pytest.mark.parametrize("reads", ["replay", "browse"])
@pytest.mark.parametrize("kind", [MemoryReplays, JournalReplays])
def test_no_turn_is_long(kind: type[Replays], reads: str, filter_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One filter asked about one message is counted, whoever asks; what is left of a turn is for the next one."""
    desk = kind()
    desk.queue()
    for number in range(MESSAGES):
        desk.publish(f'{{"n": {number}}}')
    desk.confirmed()
    peer = desk.pair.open()
    peer.call(1, C.Basic.Qos, prefetch_count=1000)
    arguments: dict[str, Any] = {"x-filter": filter_}
    arguments |= {"x-bookmark": "0"} if reads == "replay" else {"x-browse": True}
    before = desk.pair.broker.context.turn.effort
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(desk.pair, "end_turn", lambda: None)
        for number in range(READERS):
            peer.send(method(1, C.Basic.Consume, queue="q", consumer_tag=f"r{number}", arguments=arguments))
    costs = list(turns(desk))
    peer._flush()
    got = [one.frame.consumer_tag for one in peer.take() if isinstance(one.frame, C.Basic.Deliver)]
    expected = MESSAGES if "0" in filter_ and ">" in filter_ else 0 if "<" in filter_ else 1
    assert {got.count(f"r{number}") for number in range(READERS)} == {expected}
    assert desk.pair.broker.context.turn.effort - before >= READERS * MESSAGES  # all was counted
    assert max(costs) <= TURN_MAX
