"""Dead letters that cause others: each costs little more than its octets, and a turn publishes only so many."""

from collections.abc import Callable
from typing import Any

import pytest
from steps import steps

from leveret.engine import MS
from leveret.engine.dead_letters import DEAD_LETTERS_EFFORT, LETTER_COST, LETTERS_MAX
from leveret.engine.messages.field_table import Field
from leveret.testing.harness import Harness

Arguments = dict[str, Any]
#: Nothing stays in a queue with these: it expires at once, or is one too many.
HASTE: list[Arguments] = [{"x-message-ttl": 0}, {"x-max-length": 0}]


class Chain(Harness):
    """Queues `q0` to `q<count>` that each dead-letter into the next; the last one keeps what comes."""

    ends_turns = False

    def __init__(self, count: int, arguments: Arguments) -> None:
        super().__init__()
        self.clock.advance_ns(1_000_000)
        for number in range(count):
            target = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"q{number + 1}"}
            self.queue(f"q{number}", durable=False, **target | arguments)
        self.last = self.queue(f"q{count}", durable=False)

    def fill(self, count: int = 1) -> None:
        self.publish(*["x"] * count, key="q0")


def through(count: int) -> Callable[[], None]:
    """One message goes through a chain of so many queues."""
    chain = Chain(count, HASTE[0])

    def go() -> None:
        chain.fill()
        chain.end_turn()
        assert chain.last.ready_count == 1

    return go


def test_a_death_costs_no_more_for_the_deaths_before_it() -> None:
    """Twice the chain: twice the work, and a little for looking where in its x-death the entries begin."""
    assert steps(through(200)) <= 2.4 * steps(through(100))


def test_every_death_is_told() -> None:
    """Newest first, each once, with the queue that it was in."""
    chain = Chain(50, HASTE[0])
    chain.fill()
    chain.end_turn()
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
    chain.fill(30)
    slices = list(chain.turns(lambda: chain.broker.context.counters.published))
    assert sum(slices) == 30 * 100 and max(slices) <= DEAD_LETTERS_EFFORT // LETTER_COST + 1
    ids = [message.id for message in chain.last.store]
    assert len(ids) == 30 and ids == sorted(ids)


@pytest.mark.parametrize("arguments", HASTE, ids=["ttl", "length"])
def test_a_journal_may_write_before_the_end_of_a_long_chain(arguments: Arguments) -> None:
    """After so many letters those that are on their way arrive, and only then die; at such times all is in queues."""
    chain = Chain(100, arguments)
    chain.fill(30)
    since, most, stops = 0, 0, 0
    while chain.broker.end_turn():
        if chain.broker.is_unfinished:
            since += 1
            most = max(most, since)
        else:
            since, stops = 0, stops + 1
            assert sum(queue.ready_count for queue in chain.vhost.queues.values()) == 30
    assert stops >= 30 * 100 // (2 * LETTERS_MAX)
    assert most <= 2 * LETTERS_MAX * LETTER_COST // DEAD_LETTERS_EFFORT


def test_letters_that_wait_have_not_come_for_a_get() -> None:
    """A message that was to expire at once is never handed out, also while its death waits."""
    chain = Chain(100, HASTE[0])
    chain.fill(30)
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
        chain.queue(f"f{number}", durable=False, x_dead_letter_exchange="amq.fanout", x_message_ttl=1)
        chain.bind(f"f{number}", "amq.fanout")
    widths: list[int] = []
    chain.publish("x", key="", exchange="amq.fanout")
    for _ in range(2):
        chain.clock.advance_ns(2_000_000)
        chain.broker.advance()
        widths += chain.turns(lambda: chain.broker.context.turn.effort)
    assert max(widths) <= 2 * DEAD_LETTERS_EFFORT and len(widths) > 10


def test_messages_that_expire_beside_many_deaths_are_dead_soon() -> None:
    """They wait for the dead letters of others, and then neither for a consumer nor for a get."""
    harness = Harness()
    harness.queue("dead")
    to_dead = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "dead"}
    harness.queue("rejected", **to_dead)
    expiring = harness.queue("expiring", x_message_ttl=1000, **to_dead)
    harness.publish(*["x"] * LETTERS_MAX, key="rejected")
    harness.consume("rejected")
    harness.publish("last", key="expiring")
    harness.ends_turns = False
    harness.session.reject(0, multiple=True, requeue=False)
    harness.clock.advance_ns(1000 * MS)
    harness.broker.advance()
    assert expiring.ready_count == 1 and harness.broker.dead_letters.is_congested
    harness.finish_turns()
    assert expiring.ready_count == 0 and harness.all("dead") == "x" * LETTERS_MAX + "last"
    assert not harness.broker.dead_letters.is_congested  # those that die later are dead at once again
