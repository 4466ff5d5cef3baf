"""What becomes of an x-death that a message brings along: grouped, counted on, or passed over.

Before RabbitMQ 3.5.4 there was one entry for each death, without a count; clients also send what they like.
Source: behaviour page 3.4; probed on 3.10.
"""

from __future__ import annotations

from typing import Any

import pytest
from rawclient import Client
from spec_broker import SpecBroker

Q, DEAD = "p.deaths.q", "p.deaths.dead"
Entry = tuple[str, dict[str, Any]]
Counts = dict[tuple[str, str], Any]


def entry(queue: str = Q, reason: str = "rejected", **more: Any) -> Entry:
    """A death as a client tells it."""
    return "F", {"queue": ("S", queue), "reason": ("S", reason), **more}


def die(broker: SpecBroker, x_death: tuple[str, Any]) -> dict[str, Any]:
    """A message that brings this x-death is rejected: the headers of the dead letter."""
    client = broker.open()
    client.call("queue.declare", queue=DEAD)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD}
    client.call("queue.declare", queue=Q, arguments=arguments)
    client.publish("", Q, headers={"x-death": x_death})
    client.wait_for_ready(Q, 1)
    return rejected(client, Q, DEAD)


def rejected(client: Client, queue: str, dead: str) -> dict[str, Any]:
    client.send("basic.reject", delivery_tag=client.take(queue)["delivery_tag"], requeue=False)
    client.wait_for_ready(dead, 1)
    letter = client.take(dead, no_ack=True)
    assert letter.content is not None
    return letter.content.headers


def told(headers: dict[str, Any]) -> list[tuple[tuple[str, str], Any]]:
    """(queue, reason), and its count, of each entry."""
    tag, deaths = headers["x-death"]
    assert (tag, {kind for kind, _ in deaths}) == ("A", {"F"})
    return [((_text(death, "queue"), _text(death, "reason")), death.get("count")) for _, death in deaths]


def _text(death: dict[str, Any], key: str) -> str:
    return death[key][1].decode() if key in death else ""


def number(count: int) -> tuple[str, int]:
    return "l", count


THIS, OTHER, EXPIRED = (Q, "rejected"), ("q1", "rejected"), ("q1", "expired")


@pytest.mark.parametrize(
    ("brought", "counts"),
    [
        ([], {THIS: number(1)}),
        ([entry()], {THIS: number(1)}),
        ([entry(), entry(), entry()], {THIS: number(4)}),
        ([entry("q1")], {THIS: number(1), OTHER: None}),
        ([entry("q1"), entry("q1")], {THIS: number(1), OTHER: number(2)}),
        ([entry("q1"), entry("q1", "expired")], {THIS: number(1), OTHER: number(1), EXPIRED: number(1)}),
        ([entry("q1"), entry(), entry("q1"), entry(), entry("q1")], {THIS: number(3), OTHER: number(3)}),
        ([entry(count=number(5))], {THIS: number(6)}),
        ([entry(count=number(5)), entry(count=number(7))], {THIS: number(6)}),
        ([entry("q1", count=number(5)), entry("q1")], {THIS: number(1), OTHER: number(5)}),
        ([entry("q1"), entry("q1", count=number(5))], {THIS: number(1), OTHER: number(2)}),
        ([entry(), entry(count=number(5))], {THIS: number(3)}),
        ([("F", {}), ("F", {})], {THIS: number(1), ("", ""): number(2)}),
        ([entry("q1", exchange=("S", "a")), entry("q1", exchange=("S", "b"))], {THIS: number(1), OTHER: number(2)}),
    ],
)
def test_entries_are_grouped_by_queue_and_reason(brought: list[Entry], counts: Counts, broker: SpecBroker) -> None:
    """Each that has no count counts as one, the first of a group tells its facts; one that is alone stays as it is."""
    found = told(die(broker, ("A", brought)))
    assert dict(found) == counts
    assert len(found) == len(counts)
    assert found[0][0] == THIS


def test_many_entries_of_an_old_broker_become_few(broker: SpecBroker) -> None:
    """23 of them, for six queues and reasons."""
    brought = [entry(f"q{number % 5}") for number in range(17)] + [entry("q1", "expired") for _ in range(6)]
    counts = {(f"q{at}", "rejected"): number(4 if at < 2 else 3) for at in range(5)}
    assert dict(told(die(broker, ("A", brought)))) == {THIS: number(1), **counts, EXPIRED: number(6)}


@pytest.mark.parametrize("count", [("I", 5), ("s", 5), ("b", 5), ("l", 5), ("T", 5)])
def test_counts_of_any_integer_type(count: tuple[str, int], broker: SpecBroker) -> None:
    """They are counted on."""
    assert told(die(broker, ("A", [entry(count=count)]))) == [(THIS, number(6))]


@pytest.mark.parametrize("x_death", [("S", "none"), ("I", 3), ("F", {"queue": ("S", Q)}), ("V", None), ("A", [])])
def test_what_is_no_array_counts_as_an_empty_one(x_death: tuple[str, Any], broker: SpecBroker) -> None:
    """It is replaced; and as there was one, this is not the first death."""
    headers = die(broker, x_death)
    assert told(headers) == [(THIS, number(1))]
    assert headers.keys() == {"x-death"}


@pytest.mark.parametrize("count", [("S", "5"), ("d", 5.5), ("t", True), ("V", None)])
def test_counts_that_are_none(count: tuple[str, Any], broker: SpecBroker) -> None:
    """Counted from 1 again."""
    if broker.is_rabbitmq:
        pytest.skip("its queue fails on them")
    assert told(die(broker, ("A", [entry(count=count)]))) == [(THIS, number(1))]


@pytest.mark.parametrize("brought", [[("S", "text"), entry("q1")], [("I", 4), entry("q1"), ("I", 4)]])
def test_entries_that_are_no_tables(brought: list[Any], broker: SpecBroker) -> None:
    """They are passed over."""
    if broker.is_rabbitmq:
        pytest.skip("its queue fails on them")
    assert told(die(broker, ("A", brought))) == [(THIS, number(1)), (OTHER, None)]


def test_deaths_are_told_newest_first(broker: SpecBroker) -> None:
    """A message dies in four queues one after the other; RabbitMQ turns round what is behind the newest each time."""
    client = broker.open()
    names = [f"p.deaths.{number}" for number in range(5)]
    for name, following in zip(names, [*names[1:], ""]):
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": following}
        client.call("queue.declare", queue=name, arguments=arguments)
    client.publish("", names[0])
    for name, following in zip(names[:-1], names[1:]):
        client.wait_for_ready(name, 1)
        client.send("basic.reject", delivery_tag=client.take(name)["delivery_tag"], requeue=False)
        client.wait_for_ready(following, 1)
    letter = client.take(names[-1], no_ack=True)
    assert letter.content is not None
    order = [queue for (queue, _), _ in told(letter.content.headers)]
    expected = [3, 1, 0, 2] if broker.is_rabbitmq else [3, 2, 1, 0]
    assert order == [names[number] for number in expected]
