"""Restarts that are rehearsed: a broker finds all that there is, and whatever a start loses is seen at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

import pytest
from simulated_files import SimulatedFiles
from simulator import rehearsals
from simulator.disk import Disk
from simulator.parts import ClientPlan, Plan, QueuePlan
from simulator.world import World

from leveret.engine import Broker
from leveret.engine.queues.bounds import LengthBound
from leveret.serving.composition import build_broker


def world(more: str = "") -> World:
    """`more`: of its section `[journal]`."""
    clients = [ClientPlan("publisher", 1, 1, {"queue": "a"}), ClientPlan("worker", 2, 2, {"queue": "a", "prefetch": 1})]
    configuration = f'[journal]\nsegment-size = "16KiB"\n{more}'
    return World(Plan(1, 2, configuration, [QueuePlan("a")], clients, pace=100.0, rehearsed=0.1))


def test_a_start_finds_what_there_is() -> None:
    """After a kill and after a power cut, at many moments."""
    played = world()
    assert played.run().fault is None
    assert played.lives.rehearsals.count > 5


def _loses_messages(broker: Broker) -> None:
    for queue in broker.virtual_hosts.queues():
        queue.purge()


def _loses_queues(broker: Broker) -> None:
    _loses_messages(broker)
    for vhost in broker.virtual_hosts.values():
        vhost.queues.clear()


@pytest.mark.parametrize(
    ("loses", "words"), [(_loses_messages, "after a restart: lost"), (_loses_queues, "queue|lost")]
)
def test_what_a_start_loses_is_seen(
    loses: Callable[[Broker], None], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def built(*of: Any, **named: Any) -> Any:
        made = build_broker(*of, **named)
        loses(made.broker)
        return made

    monkeypatch.setattr(rehearsals, "build_broker", built)
    fault = world().run().fault or ""
    assert "at this moment" in fault
    assert re.search(words, fault)


@pytest.mark.parametrize(("loses", "words"), [
    (_loses_messages, "the start after the next lost"), (_loses_queues, "the start after the next found"),
])  # fmt: skip
def test_what_the_start_after_the_next_loses_is_seen(
    loses: Callable[[Broker], None], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that a rehearsal started goes on alone, and the one after it has what it left."""
    starts = count()

    def built(*of: Any, **named: Any) -> Any:
        made = build_broker(*of, **named)
        if next(starts) % 2:
            loses(made.broker)
        return made

    monkeypatch.setattr(rehearsals, "build_broker", built)
    monkeypatch.setattr(rehearsals, "GOES_ON", 1.0)
    assert words in (world().run().fault or "")


def test_a_start_that_keeps_more_than_a_limit_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was out when the broker was killed is ready again, and the oldest have to go."""
    played = world()
    played.plan.queues[0].arguments = {"x-max-length": ("I", 1)}
    played.plan.queues[0].features = {"max_length": 1}
    monkeypatch.setattr(rehearsals, "GOES_ON", 1.0)
    monkeypatch.setattr(LengthBound, "returned", lambda *_: None)
    assert "messages after a restart, its limits are" in (played.run().fault or "")


@pytest.mark.parametrize("is_undermined", [False, True])
def test_after_a_failed_fsync_no_rehearsal_cuts_the_power(is_undermined: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of the broker that it starts: what the failed fsync was to make safe is in the system's cache alone."""
    cuts: list[SimulatedFiles] = []
    power_cut = SimulatedFiles.power_cut

    def cut(files: SimulatedFiles, random: Random | None = None) -> SimulatedFiles:
        cuts.append(files)
        return power_cut(files, random)

    monkeypatch.setattr(SimulatedFiles, "power_cut", cut)
    monkeypatch.setattr(Disk, "will_be_undermined", property(lambda _: is_undermined))
    monkeypatch.setattr(rehearsals, "GOES_ON", 1.0)
    played = world('fsync = "commit"\n')
    assert played.run().fault is None
    assert played.lives.rehearsals.count > 5
    assert bool(cuts) is not is_undermined
