"""A delayed message holds up nobody: 100,000 with mixed delays, each due to the nanosecond."""

import random

from leveret.engine import Broker, Delivered, Envelope, ManualClock, User
from leveret.engine.messages.content import PLAIN, encode_header, scan_properties
from leveret.engine.messages.field_table import Field

COUNT, RUN, MS = 100_000, 500, 1_000_000
USER = User("guest")


def test_100_000_mixed_delays_are_exact() -> None:
    """Published in runs while time passes; every delivery comes at the instant that it is due."""
    clock, chance = ManualClock(), random.Random(7)
    broker = Broker(clock)
    arrived: dict[int, int] = {}

    def flush() -> None:
        for effect in client.take_outbox():
            assert isinstance(effect, Delivered)
            for content in effect.contents:
                arrived[int(PLAIN.split(content)[1])] = clock.monotonic_ns()
        client.drained()

    client = broker.connections.open("/", USER, name="test", flush=flush)
    session = client.open_session()
    client.vhost.queues.declare("q", client=client)
    session.consume(client.vhost.queues.named("q"), "t", no_ack=True, exclusive=False, arguments={})
    route = client.vhost.router.route("", "q", USER)
    due: dict[int, int] = {}

    def advance_to(until_ns: int) -> None:
        while (next_ns := broker.next_deadline_ns()) is not None and next_ns <= until_ns:
            clock.advance_ns(next_ns - clock.monotonic_ns())
            broker.advance()
            while broker.end_turn():
                pass
        clock.advance_ns(until_ns - clock.monotonic_ns())

    for first in range(0, COUNT, RUN):
        contents = []
        for number in range(first, first + RUN):
            delay_ms = chance.choice((1, 10, 1000, 60_000, 3_600_000)) + chance.randrange(1000)
            due[number] = clock.monotonic_ns() + delay_ms * MS
            body = b"%d" % number
            contents.append(PLAIN.join(encode_header(len(body), {"headers": {"x-delay": Field("I", delay_ms)}}), body))
        facts = scan_properties(PLAIN.split(contents[0])[0][12:])
        session.publish(route, Envelope("", "q", facts), contents, mandatory=False)
        advance_to(clock.monotonic_ns() + chance.randrange(5) * MS)
    advance_to(max(due.values()))
    assert arrived == due


def test_an_exchange_that_delays_is_looked_at_late() -> None:
    """Two messages are due, one after the other, when the broker looks: they arrive in the order of their times."""
    clock = ManualClock()
    broker = Broker(clock)
    client = broker.connections.open("/", USER, name="test", flush=lambda: None)
    session, vhost = client.open_session(), client.vhost
    vhost.queues.declare("q", client=client)
    vhost.exchanges.declare("later", "x-delayed-message", arguments={"x-delayed-type": Field("S", b"fanout")})
    vhost.bindings.add("queue", "q", "later", "", {})
    for delay_ms in (500, 300, 300, 0):
        body = b"%d" % delay_ms
        content = PLAIN.join(encode_header(len(body), {"headers": {"x-delay": Field("I", delay_ms)}}), body)
        facts = scan_properties(PLAIN.split(content)[0][12:])
        session.publish(vhost.router.route("later", "", USER), Envelope("later", "", facts), [content], mandatory=False)
    clock.advance_ns(500 * MS)
    broker.advance()
    assert [int(message.body) for message in vhost.queues.named("q").store] == [0, 300, 300, 500]
