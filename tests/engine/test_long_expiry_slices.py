"""More messages have expired than one slice takes: what lives behind them still comes to those who wait for it."""

import pytest

from leveret.engine import Broker, Delivered, Envelope, ManualClock, User
from leveret.engine.messages.content import PLAIN, encode_header, scan_properties
from leveret.engine.messages.field_table import Field, FieldTable
from leveret.engine.queues import queue as queue_module

USER, MS = User("guest"), 1_000_000
SLICE = 10

ALIVE = {"expiration": b"60000"}
IN_A_GROUP = {**ALIVE, "headers": {"JMSXGroupID": Field("S", b"a")}}
TAKES_ALL: FieldTable = {"x-filter": Field("S", b"1 = 1")}


@pytest.mark.parametrize("dead", [1, SLICE - 1, SLICE, SLICE + 1, 2 * SLICE, 2 * SLICE + 1, 5 * SLICE])
@pytest.mark.parametrize("at_once", [True, False], ids=["consumer waits", "consumer comes"])
@pytest.mark.parametrize(
    "arguments, properties",
    [({}, ALIVE), (TAKES_ALL, ALIVE), ({}, IN_A_GROUP)],
    ids=["plain", "filter", "group"],
)
def test_what_lives_is_delivered(
    monkeypatch: pytest.MonkeyPatch,
    *,
    arguments: FieldTable,
    properties: dict[str, object],
    at_once: bool,
    dead: int,
) -> None:
    """However the number of expired ones divides into slices, and without anything else that happens."""
    monkeypatch.setattr(queue_module, "EXPIRE_SLICE", SLICE)
    clock = ManualClock()
    clock.advance_ns(MS)
    broker = Broker(clock)
    arrived: list[bytes] = []

    def flush() -> None:
        for effect in client.take_outbox():
            assert isinstance(effect, Delivered)
            arrived.extend(PLAIN.split(content)[1] for content in effect.contents)
        client.drained()

    client = broker.connections.open("/", USER, name="test", flush=flush)
    session = client.open_session()
    queue = client.vhost.queues.declare("q", client=client)

    def publish(body: bytes, count: int, values: dict[str, object]) -> None:
        content = PLAIN.join(encode_header(len(body), values), body)
        facts = scan_properties(PLAIN.split(content)[0][12:])
        session.publish(
            client.vhost.router.route("", "q", USER), Envelope("", "q", facts), [content] * count, mandatory=False
        )

    def finish_turn() -> None:
        while broker.end_turn():
            pass

    if at_once:
        session.limit(1, total=False)
        session.consume(queue, "c", no_ack=False, exclusive=False, arguments=arguments)
        publish(b"first", 1, properties)
    publish(b"dead", dead, {**properties, "expiration": b"1000"})
    publish(b"alive", 1, properties)
    finish_turn()
    clock.advance_ns(2000 * MS)  # in which the process stood still
    if at_once:
        session.ack(1, multiple=False)
    else:
        session.consume(queue, "c", no_ack=False, exclusive=False, arguments=arguments)
    finish_turn()
    assert arrived == [b"first", b"alive"][not at_once :]
