"""Dead letters that cause others: each costs little more than its octets, and a turn publishes only so many."""

from collections.abc import Callable

import pytest
from steps import steps

from leveret.engine import Broker, Envelope, ManualClock, User
from leveret.engine.clients.session import Session
from leveret.engine.dead_letters import DEAD_SPREAD, LETTER_COST, LETTERS_MAX
from leveret.engine.messages.content import PLAIN, encode_header
from leveret.engine.messages.field_table import Field, FieldTable

USER = User("u")
Arguments = dict[str, Field]
#: Nothing stays in a queue with these: it expires at once, or is one too many.
HASTE: list[Arguments] = [{"x-message-ttl": Field("I", 0)}, {"x-max-length": Field("I", 0)}]


class Chain:
    """Queues `q0` to `q<count>` that each dead-letter into the next; the last one keeps what comes."""

    def __init__(self, count: int, arguments: Arguments) -> None:
        self.clock = ManualClock()
        self.clock.advance_ns(1_000_000)
        self.broker = Broker(self.clock)
        self.session: Session = self.broker.connections.open("/", USER, name="c", flush=lambda: None).open_session()
        self.vhost = self.broker.virtual_hosts["/"]
        for number in range(count):
            target: FieldTable = {
                "x-dead-letter-exchange": Field("S", b""),
                "x-dead-letter-routing-key": Field("S", b"q%d" % (number + 1)),
            }
            self.vhost.queues.declare(f"q{number}", client=self.session.client, arguments=target | arguments)
        self.last = self.vhost.queues.declare(f"q{count}", client=self.session.client)

    def publish(self, count: int = 1) -> None:
        content = PLAIN.join(encode_header(1), b"x")
        self.session.publish(
            self.vhost.router.route("", "q0", USER), Envelope("", "q0"), [content] * count, mandatory=False
        )

    def finish(self) -> None:
        while self.broker.end_turn():
            pass


def through(count: int) -> Callable[[], None]:
    """One message goes through a chain of so many queues."""
    chain = Chain(count, HASTE[0])

    def go() -> None:
        chain.publish()
        chain.finish()
        assert chain.last.ready_count == 1

    return go


def test_a_death_costs_no_more_for_the_deaths_before_it() -> None:
    """Twice the chain: twice the work, and a little for looking where in its x-death the entries begin."""
    assert steps(through(200)) <= 2.4 * steps(through(100))


def test_every_death_is_told() -> None:
    """Newest first, each once, with the queue that it was in."""
    chain = Chain(50, HASTE[0])
    chain.publish()
    chain.finish()
    (message,) = chain.last.store
    deaths = message.envelope.headers(message.content)["x-death"].value
    assert isinstance(deaths, list)
    tables = [death.value for death in deaths]
    assert [table["queue"].text for table in tables if isinstance(table, dict)] == [f"q{n}" for n in range(49, -1, -1)]
    assert all(isinstance(table, dict) and table["count"] == Field("l", 1) for table in tables)


@pytest.mark.parametrize("arguments", HASTE, ids=["ttl", "length"])
def test_a_turn_publishes_a_slice(arguments: Arguments) -> None:
    """However many there are; all of them come out in the end, in order."""
    chain = Chain(100, arguments)
    chain.publish(30)
    slices = []
    is_more = True
    while is_more:
        before = chain.broker.context.counters.published
        is_more = chain.broker.end_turn()
        slices.append(chain.broker.context.counters.published - before)
    assert sum(slices) == 30 * 100 and max(slices) <= DEAD_SPREAD // LETTER_COST + 1
    ids = [message.id for message in chain.last.store]
    assert len(ids) == 30 and ids == sorted(ids)


@pytest.mark.parametrize("arguments", HASTE, ids=["ttl", "length"])
def test_a_journal_may_write_before_the_end_of_a_long_chain(arguments: Arguments) -> None:
    """After so many letters those that are on their way arrive, and only then die; at such times all is in queues."""
    chain = Chain(100, arguments)
    chain.publish(30)
    since, most, stops = 0, 0, 0
    while chain.broker.end_turn():
        if chain.broker.is_unfinished:
            since += 1
            most = max(most, since)
        else:
            since, stops = 0, stops + 1
            assert sum(queue.ready_count for queue in chain.vhost.queues.values()) == 30
    assert stops >= 30 * 100 // (2 * LETTERS_MAX)
    assert most <= 2 * LETTERS_MAX * LETTER_COST // DEAD_SPREAD


def test_letters_that_wait_have_not_come_for_a_get() -> None:
    """A message that was to expire at once is never handed out, also while its death waits."""
    chain = Chain(100, HASTE[0])
    chain.publish(30)
    while chain.broker.end_turn():
        for queue in list(chain.vhost.queues.values()):
            if queue is not chain.last and queue.ready_count:
                assert chain.session.get(queue, no_ack=True) is None
    assert chain.last.ready_count == 30


def test_letters_to_many_queues() -> None:
    """Where one letter goes to many queues, a turn has fewer of them."""
    chain = Chain(1, {"x-message-ttl": Field("I", 1)})
    queues = 20
    for number in range(queues):
        arguments: FieldTable = {"x-dead-letter-exchange": Field("S", b"amq.fanout"), "x-message-ttl": Field("I", 1)}
        chain.vhost.queues.declare(f"f{number}", client=chain.session.client, arguments=arguments)
        chain.vhost.bindings.add("queue", f"f{number}", "amq.fanout", "", {})
    widths = []
    content = PLAIN.join(encode_header(1), b"x")
    route = chain.vhost.router.route("amq.fanout", "", USER)
    chain.session.publish(route, Envelope("amq.fanout", ""), [content], mandatory=False)
    for _ in range(2):
        chain.clock.advance_ns(2_000_000)
        chain.broker.advance()
        is_more = True
        while is_more:
            before = chain.broker.context.effort.spent
            is_more = chain.broker.end_turn()
            widths.append(chain.broker.context.effort.spent - before)
    assert max(widths) <= 2 * DEAD_SPREAD and len(widths) > 10
