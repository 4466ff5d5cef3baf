"""The rows of the expressions on queues: what is captured, and what a consumer gets. Source: queues page G.B."""

from __future__ import annotations

import pytest
from desk import Refused
from expression_rows import Row, rows
from leased_desk import LeasedDesk

FILTERS, SELECTORS = rows("X"), rows("J")


def publish(desk: LeasedDesk, row: Row) -> list[str]:
    """The message of a row, to the topic E."""
    properties = dict(row.properties)
    if row.headers:
        properties["headers"] = dict(row.headers)
    return desk.publish(row.octets.decode(), exchange="E", key=row.routing_key, mandatory=True, **properties)


@pytest.mark.parametrize("row", FILTERS, ids=[row.id for row in FILTERS])
def test_b01(desk: LeasedDesk, row: Row) -> None:
    """Queues page, row B01: captured if the filter of the queue is true, not if it is unknown; 406 if it is none."""
    desk.exchange("E", "topic")
    arguments = {"x_underlying_topic": "E", "x_queue_filter": row.expression}
    if row.answer == "ERR":
        with pytest.raises(Refused, match="406.*E-EXPR"):
            desk.queue(**arguments)
        return
    desk.queue(**arguments)
    assert publish(desk, row) == ["ack" if row.answer == "T" else "returned"]
    assert desk.counts()[0] == (row.answer == "T")


@pytest.mark.parametrize("row", SELECTORS, ids=[row.id for row in SELECTORS])
def test_b03(desk: LeasedDesk, row: Row) -> None:
    """Queues page, row B03: as the selector of a consumer."""
    desk.exchange("E", "topic")
    desk.queue(x_underlying_topic="E")
    if row.answer == "ERR":
        with pytest.raises(Refused, match="406.*column"):
            desk.subscribe(x_selector=row.expression)
        return
    desk.subscribe(x_selector=row.expression)
    assert publish(desk, row) == ["ack"]
    assert len(desk.taken()) == (row.answer == "T")


def test_b04(desk: LeasedDesk) -> None:
    """Queues page, row B04: searched in linear time; it does not match, and the broker goes on."""
    desk.queue(x_queue_filter="/s LIKE '(a+)+$'")
    desk.queue("r", x_queue_filter="/s LIKE 'b$'", x_underlying_topic="q")
    assert desk.publish('{"s": "' + "a" * 40 + 'b"}') == ["ack"]
    assert (desk.counts("q")[0], desk.counts("r")[0]) == (0, 1)


def test_b05(desk: LeasedDesk) -> None:
    """Queues page, row B05: a body that is no JSON matters to paths alone."""
    desk.queue(x_queue_filter="ROUTING_KEY() = 'q'")
    desk.queue("r", x_queue_filter="/t IS NULL OR /t = 1", x_underlying_topic="q")
    desk.queue("s", x_queue_filter="/t = 1", x_underlying_topic="q")
    assert desk.publish("{", mandatory=True) == ["ack"]
    assert [desk.counts(name)[0] for name in "qrs"] == [1, 1, 0]
