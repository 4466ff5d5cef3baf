"""Leased queues, in virtual time: declaring them, and what they capture. Source: queues page A.2, G.A."""

from __future__ import annotations

import pytest
from desk import Refused
from leased_desk import LeasedDesk


def test_a01(desk: LeasedDesk) -> None:
    """Queues page, row A01: equal arguments, then different ones."""
    desk.queue(x_lease_period=500)
    desk.queue(x_lease_period=500)
    with pytest.raises(Refused, match="406.*x-lease-period"):
        desk.queue(x_lease_period=600)


def test_a02_a03(desk: LeasedDesk) -> None:
    """Queues page, rows A02, A03: a publish to the topic, and one to the queue's name, which is of the topic, too."""
    desk.queue("ToDo", x_underlying_topic="Work")
    assert desk.publish("a", key="Work", mandatory=True) == ["ack"]
    assert desk.publish("b", key="ToDo", mandatory=True) == ["ack"]
    desk.subscribe("ToDo", qos=10)
    first, second = desk.taken()
    assert (first.routing_key, first.headers["x-topic"]) == ("Work", "Work")
    assert (second.routing_key, second.headers["x-topic"]) == ("ToDo", "Work")
    assert desk.publish("c", key="Other", mandatory=True) == ["returned"]


def test_a05(desk: LeasedDesk) -> None:
    """Queues page, row A05: a common topic, and one that each queue has for itself."""
    desk.queue("Q_A", x_underlying_topic="^SALES$|^A_IN$", x_default_publish_target="A_IN")
    desk.queue("Q_B", x_underlying_topic="^SALES$|^B_IN$", x_default_publish_target="B_IN")
    for body, key in (("s", "SALES"), ("a", "Q_A"), ("b", "B_IN")):
        assert desk.publish(body, key=key, mandatory=True) == ["ack"]
    assert (desk.all("Q_A"), desk.all("Q_B")) == ("sa", "sb")


def test_topics_of_exchanges(desk: LeasedDesk) -> None:
    """A topic is an exchange's name, or EXCHANGE/KEY; captured is routed (queues page A.2)."""
    desk.exchange("E", "topic")
    desk.queue("all", x_underlying_topic="E")
    desk.queue("some", x_underlying_topic="E/red")
    assert desk.publish("a", exchange="E", key="red", mandatory=True) == ["ack"]
    assert desk.publish("b", exchange="E", key="blue", mandatory=True) == ["ack"]
    assert (desk.all("all"), desk.all("some")) == ("ab", "a")
    desk.delete("all")
    assert desk.publish("c", exchange="E", key="blue", mandatory=True) == ["returned"]


def test_each_message_tells_its_topic(desk: LeasedDesk) -> None:
    """Also of two exchanges whose messages have one key."""
    desk.queue("all", x_underlying_topic="^[EF]$", x_default_publish_target="E")
    for name in "EFE":
        desk.exchange(name, "topic")
        desk.publish(name, exchange=name, key="red")
    desk.subscribe("all", qos=10)
    assert [(got.body, got.headers["x-topic"]) for got in desk.taken()] == [("E", "E"), ("F", "F"), ("E", "E")]


def test_bound_queues(desk: LeasedDesk) -> None:
    """What a binding leads to a leased queue is of the queue's publish target (queues page A.2)."""
    desk.exchange("F")
    desk.queue("Q", x_underlying_topic="T")
    desk.queue("twin", x_underlying_topic="T")
    desk.bind("Q", "F")
    assert desk.publish("a", exchange="F", key="any", mandatory=True) == ["ack"]
    assert (desk.all("Q"), desk.all("twin")) == ("a", "a")


def test_one_message_for_all(desk: LeasedDesk) -> None:
    """However many queues capture it, it is published once, with one bookmark (queues page A.1)."""
    for name in "abc":
        desk.queue(name, x_underlying_topic="T")
    before = desk.pair.broker.context.next_id
    desk.publish("x", key="T")
    assert desk.pair.broker.context.next_id == before + 1
    assert len({desk.must_get(name).headers["x-bookmark"] for name in "abc"}) == 1


def test_filters(desk: LeasedDesk) -> None:
    """Only matching messages are captured; what no queue captures is unroutable. Unknown is no (queues page A.3)."""
    desk.queue("big", x_underlying_topic="T", x_queue_filter="/n > 5")
    desk.queue("odd", x_underlying_topic="T", x_queue_filter="/n % 2 = 1")
    outcomes = [*desk.publish('{"n": 7}', '{"n": 3}', '{"n": 2}', "no json", key="T", mandatory=True)]
    assert outcomes == ["ack", "ack", "returned", "returned"]
    assert (desk.all("big"), desk.all("odd")) == ('{"n": 7}', '{"n": 7}{"n": 3}')


def test_filters_in_transactions(desk: LeasedDesk) -> None:
    """What is chosen when a message is published holds at the commit."""
    desk.queue("q", x_underlying_topic="T", x_queue_filter="/n > 5")
    desk.select()
    desk.publish_in_transaction('{"n": 7}', '{"n": 3}', key="q")
    desk.commit()
    assert desk.counts() == (1, 0, 0)
