"""Address-settings rule queues that nobody declared anything special about, and change live.

The ids are rows of address-settings page 8.
"""

import pytest

from leveret.engine import Broker, ManualClock, User, Users
from leveret.engine.clients.session import Session
from leveret.engine.messages.content import PLAIN, encode_header
from leveret.engine.messages.field_table import Field, FieldTable
from leveret.engine.messages.message import Envelope
from leveret.settings import SettingsRepository, entry

GUEST = User("guest")


def broker_with(*entries: object) -> tuple[Broker, Session]:
    """A broker with these settings and a session on vhost `/`."""
    broker = Broker(ManualClock(), Users([GUEST]), settings=SettingsRepository(entries))  # type: ignore[arg-type]
    return broker, broker.connections.open("/", GUEST, name="test", flush=lambda: None).open_session()


def publish(broker: Broker, session: Session, queue: str, *bodies: str) -> None:
    """To the queue, through the default exchange."""
    vhost = session.client.vhost
    contents = [PLAIN.join(encode_header(len(body)), body.encode()) for body in bodies]
    session.publish(vhost.router.route("", queue, GUEST), Envelope("", queue), contents, mandatory=False)
    broker.end_turn()


def declare(session: Session, name: str, **arguments: Field) -> None:
    """A plain queue, or one with arguments (underscores for dashes)."""
    table: FieldTable = {key.replace("_", "-"): field for key, field in arguments.items()}
    session.client.vhost.queues.declare(name, client=session.client, arguments=table)


def bodies(session: Session, queue: str) -> str:
    """All ready bodies; they are gone then."""
    taken = ""
    while (got := session.get(session.client.vhost.queues.named(queue), no_ack=True)) is not None:
        taken += got[1].body.decode()
    return taken


def test_a_ring_by_wildcard() -> None:
    """`default-ring-size` reaches the queues that match, at creation, and no others."""
    broker, session = broker_with(entry("quotes.#", default_ring_size=3))
    for queue in ("quotes.eu", "orders"):
        declare(session, queue)
        publish(broker, session, queue, *"ABCDE")
    assert (bodies(session, "quotes.eu"), bodies(session, "orders")) == ("CDE", "ABCDE")


def test_an_argument_is_stronger_and_a_length_limit_cancels_the_ring() -> None:
    """R31: x-max-length instead of the inherited ring; x-ring-size over it."""
    broker, session = broker_with(entry("#", default_ring_size=2))
    declare(session, "limited", x_max_length=Field("I", 5))
    declare(session, "ring", x_ring_size=Field("I", 3))
    for queue in ("limited", "ring"):
        publish(broker, session, queue, *"123456")
    assert (bodies(session, "limited"), bodies(session, "ring")) == ("23456", "456")


def test_the_most_specific_entry_counts() -> None:
    """L09: three attempts for `p.*`, four for `p.a`; the dead go where the nearest entry says."""
    broker, session = broker_with(
        entry("p.*", max_delivery_attempts=3, dead_letter_address="X"),
        entry("p.a", max_delivery_attempts=4, dead_letter_address="Y"),
    )
    for queue in ("p.a", "X", "Y"):
        declare(session, queue)
    publish(broker, session, "p.a", "m")
    for attempt in range(1, 5):
        got = session.get(session.client.vhost.queues.named("p.a"), no_ack=False)
        assert got is not None
        session.reject(got[0], requeue=True)
        broker.end_turn()
        assert session.client.vhost.queues.named("Y").store.in_memory == (attempt == 4)
    assert (bodies(session, "X"), bodies(session, "Y")) == ("", "m")


@pytest.mark.parametrize("is_live", [False, True], ids=["at start", "replaced live"])
def test_redelivery_by_settings(is_live: bool) -> None:
    """A nack waits 1 s, 2 s, 4 s; with settings that came after the queue just the same."""
    rule = entry("jobs.#", redelivery_delay_ms=1000, redelivery_delay_multiplier=2.0)
    broker, session = broker_with(*() if is_live else (rule,))
    declare(session, "jobs.slow")
    publish(broker, session, "jobs.slow", "m")
    if is_live:
        broker.reloading.replace_settings(SettingsRepository([rule]))
    queue = session.client.vhost.queues.named("jobs.slow")
    clock = broker.context.clock
    assert isinstance(clock, ManualClock)
    for wait_ms in (1000, 2000, 4000):
        got = session.get(queue, no_ack=False)
        assert got is not None
        session.reject(got[0], requeue=True)
        clock.advance_ns((wait_ms - 1) * 1_000_000)
        broker.advance()
        assert len(queue.scheduled) == 1
        clock.advance_ns(1_000_000)
        broker.advance()
        assert queue.store.in_memory == 1
    broker.reloading.replace_settings(SettingsRepository())
    got = session.get(queue, no_ack=False)
    assert got is not None
    session.reject(got[0], requeue=True)
    assert queue.store.in_memory == 1  # no delay any more


def test_without_settings_a_queue_has_no_rules() -> None:
    """Nothing is paid for what nobody asked for."""
    from leveret.engine.rules.queue_rules import NO_RULES

    broker, session = broker_with(entry("other.#", default_ring_size=3))
    declare(session, "q")
    assert session.client.vhost.queues.named("q").rules is NO_RULES
