"""What simulated clients take for an answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from simulator.clients.channel import Channel
from simulator.clients.client import Client
from simulator.clients.explorer import may_hold
from simulator.explored import FAULT
from simulator.ledger import Broken
from simulator.parts import ClientPlan, FaultPlan, Plan, QueuePlan

from leveret.interop.wire.raw_codec import Method


def client_of(*, may_be_held: bool) -> Client:
    """It has one channel, and asked for a message, then for no more deliveries."""
    world: Any = SimpleNamespace(
        plan=Plan(1, 1, ""), schedule=SimpleNamespace(now_ns=0), knowledge=SimpleNamespace(operations=0)
    )
    client = Client(world, ClientPlan("explorer", 1, 1, {}), lambda client: [Channel(client, 1, {}, 1)])
    client.channels[1].may_be_held = may_be_held
    client.link = SimpleNamespace(send=lambda data: None)  # type: ignore[assignment]
    client.ask(1, "basic.get", "basic.get-ok|basic.get-empty", lambda _: None, queue="q")
    client.ask(1, "channel.flow", "channel.flow-ok", lambda _: None, active=False)
    return client


@pytest.mark.parametrize(("names", "may_be_held", "is_taken"), [
    (["basic.get-empty", "channel.flow-ok"], False, True),
    (["channel.flow-ok", "basic.get-empty"], True, True),
    (["channel.flow-ok"], False, False),
    (["basic.cancel-ok"], True, False),
    (["basic.qos-ok"], True, False),
])  # fmt: skip
def test_answers_come_in_order(names: list[str], may_be_held: bool, is_taken: bool) -> None:
    """But for those that do not wait behind a publish that is held (queues page E.5); each to its question."""
    client = client_of(may_be_held=may_be_held)
    told = [Method(name, 1, {}) for name in names]
    if is_taken:
        for method in told:
            client._answer(method)
        assert not client.waiting
    else:
        with pytest.raises(Broken, match="expected basic.get|without a question"):
            client._answer(told[0])


@pytest.mark.parametrize(("configuration", "kinds", "expected"), [
    ("", [], False), ("", ["kill"], False), ("", ["operator blocks publishers"], True), ("", [FAULT], True),
    ("[flow]\n", [], True), ('address-full-policy = "FAIL"\n', [], True),
])  # fmt: skip
def test_which_worlds_hold_publishes(configuration: str, kinds: list[str], expected: bool) -> None:
    assert may_hold(Plan(1, 1, configuration, faults=[FaultPlan(0, kind, 1) for kind in kinds])) is expected


def test_a_queue_comes_after_that_of_its_dead_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead letter to an address would make that queue, without the arguments that its plan has."""
    client = client_of(may_be_held=False)
    dead = QueuePlan("dead", arguments={"x-max-priority": ("I", 1)}, features={"dead_letter_address": "dead"})
    client.world.plan.queues += [dead, QueuePlan("q", features={"dead_letter_address": "dead"})]
    asked: list[tuple[str, Any]] = []
    monkeypatch.setattr(
        Channel, "ask", lambda self, name, answer, then, **more: asked.append((more["queue"], more["arguments"]))
    )
    for queue in client.world.plan.queues:
        client.channels[1].declare(queue, lambda _: None)
    assert asked == [("dead", dead.arguments), ("dead", dead.arguments), ("q", {})]
