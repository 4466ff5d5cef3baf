"""A delayed message holds up nobody: 25,000 with mixed delays, each due to the nanosecond."""

import random

from leveret.engine import Envelope, scheduled
from leveret.engine.messages.content import NATIVE, encode_header, scan_properties
from leveret.engine.messages.field_table import Field
from leveret.testing.harness import Harness

COUNT, RUN, MS = 25_000, 500, 1_000_000


def test_mixed_delays_are_exact() -> None:
    """Published in runs while time passes; every delivery comes at the instant that it is due."""
    harness, chance = Harness(), random.Random(7)
    clock = harness.clock
    arrived: dict[int, int] = {}

    def flush() -> None:
        harness.read(session.client)
        arrived.update((int(one.body), clock.monotonic_ns()) for one in harness.deliveries)
        harness.deliveries.clear()

    session = harness.connect("test", flush=flush)
    harness.queue(durable=False)
    harness.consume(tag="t", by=session, no_ack=True)
    route = harness.route("q")
    due: dict[int, int] = {}

    for first in range(0, COUNT, RUN):
        contents = []
        for number in range(first, first + RUN):
            delay_ms = chance.choice((1, 10, 1000, 60_000, 3_600_000)) + chance.randrange(1000)
            due[number] = clock.monotonic_ns() + delay_ms * MS
            body = b"%d" % number
            contents.append(NATIVE.join(encode_header(len(body), {"headers": {"x-delay": Field("I", delay_ms)}}), body))
        facts = scan_properties(NATIVE.split(contents[0])[0][12:])
        session.publish(route, Envelope("", "q", facts), contents, mandatory=False)
        harness.advance(chance.randrange(5))
    harness.advance((max(due.values()) - clock.monotonic_ns()) / MS)
    assert arrived == due


def test_an_exchange_that_delays_is_looked_at_late() -> None:
    """Two messages are due, one after the other, when the broker looks: they arrive in the order of their times."""
    harness = Harness()
    queue = harness.queue(durable=False)
    harness.vhost.exchanges.declare("later", "x-delayed-message", arguments={"x-delayed-type": Field("S", b"fanout")})
    harness.bind("q", "later")
    for delay_ms in (500, 300, 300, 0):
        harness.publish(str(delay_ms), key="", exchange="later", headers={"x-delay": delay_ms})
    harness.clock.advance_ns(500 * MS)
    harness.broker.advance()
    assert [int(message.body) for message in queue.store] == [0, 300, 300, 500]


def test_a_message_that_was_given_a_later_time_expires_on_time() -> None:
    """An operator sets when it is due, beyond its TTL: it is a dead letter when the TTL is over, not when it is due."""
    harness = Harness()
    harness.queue("dead", durable=False)
    queue = harness.queue(durable=False, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    harness.publish("m", headers={"x-delay": 1000}, expiration="5000")
    harness.end_turn()
    ((_, message),) = queue.scheduled.entries()
    assert not scheduled.reschedule(queue, message.id + 1, 60_000)  # there is no such message
    assert scheduled.reschedule(queue, message.id, 60_000)
    harness.advance(4999)
    assert len(queue.scheduled) == 1
    harness.advance(1)
    assert len(queue.scheduled) == 0 and len(harness.named("dead").store) == 1
