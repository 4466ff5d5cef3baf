"""Expiry, limits and the other queue settings: the rows of address-settings page 8.6.

E14 (BLOCK) is face to face only, as a client that waits for its confirm would wait for ever; with sockets it is in
tests/server/test_full_addresses.py.
"""

from typing import Any

import pytest
from desk import Desk, Make, Refused, VirtualDesk
from toml_text import settings


def lives_for(desk: Desk, ms: int) -> None:
    """The one message of q expires after so long."""
    if ms > 20:
        desk.advance_ms(ms - 20)
        assert desk.counts() == (1, 0, 0)
    desk.advance_ms(min(ms, 20))
    assert (desk.counts(), desk.counter("expired")) == ((0, 0, 0), 1)


def test_e01_without_expiration(at: Make) -> None:
    """The address gives one; the copy tells when and where it expired."""
    desk = at(settings(q={"expiry_delay": 200, "expiry_address": "X"}))
    desk.declare("X")
    desk.publish("A")
    lives_for(desk, 200)
    dead = desk.must_get("X")
    assert (dead.body, dead.headers["_AMQ_ORIG_QUEUE"]) == ("A", "q")
    assert abs(dead.headers["_AMQ_ACTUAL_EXPIRY"] - desk.wall_ms) < 200
    assert dead.headers["x-death"][0]["reason"] == "expired"


def test_e02_with_expiration(at: Make) -> None:
    """It keeps its own."""
    desk = at(settings(q={"expiry_delay": 200}))
    desk.publish("A", expiration="60000")
    desk.advance_ms(1000)
    got = desk.must_get()
    assert got.properties.expiration == "60000"


BOUNDS = {"min_expiry_delay": 300, "max_expiry_delay": 600}


@pytest.mark.parametrize("published, lives", [(None, 600), ("100", 300), ("5000", 600), ("400", 400)])
@pytest.mark.parametrize("exchange", ["", "amq.fanout"], ids=["by its own address", "by the queue's"])
def test_e03_bounds(at: Make, published: str | None, lives: int, exchange: str) -> None:
    """To the minimum, to the maximum; also for queues that an exchange feeds (address-settings page 1.3, step 4)."""
    desk = at(settings(q=BOUNDS))
    desk.bind("q", "amq.fanout")
    desk.publish("A", exchange=exchange, **({} if published is None else {"expiration": published}))
    lives_for(desk, lives)


def test_e04_the_messages_address_comes_first(at: Make) -> None:
    """The exchange's policy has decided: the queue's own has no say."""
    desk = at(settings(**{"amq.fanout": {"expiry_delay": 400}, "q": {"expiry_delay": 100}}))
    desk.bind("q", "amq.fanout")
    desk.publish("A", exchange="amq.fanout")
    lives_for(desk, 400)


@pytest.mark.parametrize("reason", ["rejected", "expired", "maxlen", "delivery_limit"])
@pytest.mark.parametrize(
    "of_exchange, of_queue, lives",
    [
        ({"expiry_delay": 400}, {}, 400),
        ({"expiry_delay": 400}, {"expiry_delay": 100}, 400),
        ({}, {"expiry_delay": 100}, 100),
    ],
)
def test_e04_dead_letters_have_an_address_too(
    at: Make, reason: str, of_exchange: dict[str, int], of_queue: dict[str, int], lives: int
) -> None:
    """Whatever it died of: the expiry of the exchange that it is published to, else that of its new queue."""
    desk = at(settings(F=of_exchange, q=of_queue))
    desk.exchange("F")
    desk.bind("q", "F")
    limits: dict[str, Any] = {"maxlen": {"x_max_length": 1}, "delivery_limit": {"x_max_delivery_attempts": 1}}
    desk.declare("dying", x_dead_letter_exchange="F", **limits.get(reason, {}))
    desk.publish("A", key="dying", **({"expiration": "50"} if reason == "expired" else {}))
    if reason == "rejected":
        desk.reject(desk.must_get("dying"), requeue=False)
    elif reason == "expired":
        desk.advance_ms(50)
    elif reason == "maxlen":
        desk.publish("B", key="dying")
    else:
        desk.nack(desk.must_get("dying"))
    assert desk.counts() == (1, 0, 0)
    lives_for(desk, lives)


def test_e05_no_expiry(at: Make) -> None:
    """The property has no effect, and is passed on as published."""
    desk = at(settings(q={"no_expiry": True}))
    desk.publish("A", expiration="50")
    desk.advance_ms(200)
    got = desk.must_get()
    assert (got.body, got.properties.expiration) == ("A", "50")


def test_e06_no_expiry_is_stronger_than_a_delay(at: Make) -> None:
    """Never expires."""
    desk = at(settings(q={"no_expiry": True, "expiry_delay": 10}))
    desk.publish("A")
    desk.advance_ms(1000)
    assert desk.counts() == (1, 0, 0)


def test_e06_a_queue_argument_is_stronger_than_no_expiry(at: Make) -> None:
    """Address-settings page 6.7: explicit beats inherited."""
    desk = at(settings(q={"no_expiry": True}), x_message_ttl=200)
    desk.publish("A", expiration="50")
    lives_for(desk, 200)


def test_e07_the_expired_do_not_expire_again(at: Make) -> None:
    """X has a policy of its own."""
    desk = at(
        settings(
            **{
                "#": {"expiry_address": "X", "expiry_delay": 100},
                "X": {"expiry_address": "", "expiry_delay": -1},
            }
        )
    )
    desk.declare("X")
    desk.publish("A")
    desk.advance_ms(1000)
    assert (desk.counts(), desk.counts("X")) == ((0, 0, 0), (1, 0, 0))


def test_e08_a_broad_policy_takes_the_copies_too(at: Make) -> None:
    """Address-settings page 3.2: they are routed normally."""
    desk = at(settings(**{"#": {"expiry_delay": 100}, "q": {"expiry_address": "X"}}))
    desk.declare("X")
    desk.publish("A")
    desk.advance_ms(150)
    assert desk.counts("X") == (1, 0, 0)
    desk.advance_ms(100)
    assert (desk.counts("X"), desk.counter("expired", "X")) == ((0, 0, 0), 1)


@pytest.mark.parametrize(
    "names, queue", [({}, "EXP.A"), ({"expiry_queue_prefix": "", "expiry_queue_suffix": ".x"}, "A.x")]
)
def test_e09_each_address_has_a_queue_for_its_expired(at: Make, names: dict[str, str], queue: str) -> None:
    """Made when the first message expires."""
    desk = at(settings(**{"#": {"expiry_address": "X", "auto_create_expiry_resources": True, **names}}), q=False)
    desk.declare("A")
    desk.publish("a", key="A", expiration="100")
    assert not desk.exists(queue)
    desk.advance_ms(200)
    assert desk.all(queue) == "a"


def test_operators_find_the_queue_of_each_address(at: Make) -> None:
    """Beside the queue that all expired messages go to, among the queues of dead letters."""
    desk = at(settings(**{"#": {"expiry_address": "X", "auto_create_expiry_resources": True}}), q=False)
    for queue in "AX":
        desk.declare(queue)
    desk.publish("a", key="A", expiration="100")
    desk.advance_ms(200)
    found = {row["queue"]: row["messages"] for row in desk.command("dead-letters", vhost="/")["items"]}
    assert found == {"X": 1, "EXP.A": 1}


def test_e10_the_nearest_entry_counts(at: Make) -> None:
    """S only."""
    desk = at(settings(**{"prefix.*": {"expiry_address": "D"}, "prefix.address": {"expiry_address": "S"}}), q=False)
    for queue in ("prefix.address", "D", "S"):
        desk.declare(queue)
    desk.publish("A", key="prefix.address", expiration="50")
    desk.advance_ms(100)
    assert (desk.all("D"), desk.all("S")) == ("", "A")


def test_e11_a_maximum_of_nothing(at: Make) -> None:
    """Expires at once; a waiting consumer gets it all the same."""
    desk = at(settings(q={"max_expiry_delay": 0}))
    desk.publish("A")
    assert (desk.counts(), desk.counter("expired")) == ((0, 0, 0), 1)
    desk.consume()
    desk.publish("B")
    assert [got.body for got in desk.taken()] == ["B"]


@pytest.mark.parametrize(
    "policy, outcomes, kept",
    [
        ("DROP", ["ack", "ack", "ack", "ack"], "12"),
        ("FAIL", ["ack", "ack", "nack", "nack"], "12"),
        ("PAGE", ["ack", "ack", "ack", "ack"], "1234"),
        (None, ["ack", "ack", "ack", "ack"], "1234"),
    ],
    ids=["e12", "e13", "page", "unset"],
)
@pytest.mark.parametrize("limit", [{"max_size_messages": 2}, {"max_size_bytes": 2000}], ids=["messages", "bytes"])
def test_e12_e13_a_full_address(
    at: Make, policy: str | None, outcomes: list[str], kept: str, limit: dict[str, int]
) -> None:
    """Full is what holds the limit; what is out counts; room is there again as soon as less is held."""
    entry: dict[str, Any] = dict(limit)
    if policy is not None:
        entry["address_full_policy"] = policy
    desk = at(settings(q=entry))
    bodies = [number * 1000 for number in "1234"]
    assert desk.publish(*bodies) == outcomes
    assert desk.counter("dropped") == 4 - len(kept)
    if policy in ("DROP", "FAIL"):
        got = desk.must_get()  # out, but still held
        assert desk.publish("5" * 1000) == outcomes[2:3]
        desk.ack(got)
        assert desk.publish("6" * 1000) == ["ack"]
        kept = "26"
    assert desk.all() == "".join(number * 1000 for number in kept)
    if policy is not None:
        assert desk.publish(*bodies[:2]) == ["ack", "ack"]


@pytest.mark.parametrize("limit", [{"max_size_messages": 2}, {"max_size_bytes": 2000}], ids=["messages", "bytes"])
def test_e14_a_full_address_that_blocks(limit: dict[str, int]) -> None:
    """What is too much is held and has no confirm; what is out counts; acknowledgements let it in."""
    desk = VirtualDesk(settings(q={**limit, "address_full_policy": "BLOCK"}))
    desk.declare()
    assert desk.publish(*(number * 1000 for number in "1234")) == ["ack", "ack", "", ""]
    first, second = desk.must_get(), desk.must_get()
    assert desk.counts() == (0, 2, 0)
    desk.ack(first)
    desk.ack(second)
    assert desk.counts() == (2, 0, 0)
    assert desk.all() == "3" * 1000 + "4" * 1000


def test_a_full_address_that_lost_its_limit(at: Make) -> None:
    """Limits are live, also when they come while messages are there."""
    desk = at()
    desk.publish(*(number * 1000 for number in "123"))
    got = desk.must_get()
    desk.reload(settings(q={"max_size_bytes": 3000, "address_full_policy": "FAIL"}))
    assert desk.publish("4") == ["nack"]
    desk.ack(got)
    assert desk.publish("5") == ["ack"]
    desk.reload("")
    assert desk.publish("6") == ["ack"]


def test_e15_consumers_are_limited(at: Make) -> None:
    """403, and the first one goes on."""
    desk = at(settings(q={"default_max_consumers": 1}))
    desk.consume()
    other = desk.other()
    with pytest.raises(Refused) as refused:
        other.consume()
    assert refused.value.code == 403
    desk.publish("A")
    assert [got.body for got in desk.taken()] == ["A"]


def test_e16_enough_consumers(at: Make) -> None:
    """Dispatch begins with the second, and goes on with one."""
    desk = at(x_consumers_before_dispatch=2)
    desk.consume(tag="one")
    desk.publish("A")
    assert desk.taken() == []
    desk.consume(tag="two")
    assert [got.body for got in desk.taken()] == ["A"]
    desk.cancel("two")
    desk.publish("B")
    got = desk.taken()
    assert [one.body for one in got] == ["B"]
    desk.cancel("one")
    desk.nack(0, multiple=True, requeue=False)
    desk.consume(tag="one")  # nobody was there, nothing was out: it waits again
    desk.publish("C")
    assert desk.taken() == []


def test_e17_or_long_enough(at: Make) -> None:
    """After delay-before-dispatch one consumer will do."""
    desk = at(settings(q={"default_consumers_before_dispatch": 2, "default_delay_before_dispatch": 300}))
    desk.publish("A")
    desk.consume()
    desk.advance_ms(250)
    assert desk.taken() == []
    desk.advance_ms(50)
    assert [got.body for got in desk.taken()] == ["A"]


def test_e18_purge_on_no_consumers(at: Make) -> None:
    """Nothing is stored without a consumer; what is there goes with the last one, and leaves no dead letter."""
    desk = at(x_purge_on_no_consumers=True, x_dead_letter_address="D")
    desk.declare("D")
    assert desk.publish("A") == ["ack"]
    assert desk.publish("B", mandatory=True) == ["returned"]
    assert desk.counts() == (0, 0, 0)
    desk.consume(prefetch=1)
    assert desk.publish("C", "D", mandatory=True) == ["ack", "ack"]
    (got,) = desk.taken()
    desk.cancel()
    assert (desk.counts(), desk.counter("purged")) == ((0, 1, 0), 1)
    desk.nack(got)
    assert (desk.counts(), desk.counter("purged"), desk.all("D")) == ((0, 0, 0), 2, "")


def test_e19_last_value(at: Make) -> None:
    """Of each key the newest; messages without the key are left alone."""
    desk = at(settings(q={"default_last_value_key": "sym"}))
    desk.publish("v1", "v2", headers={"sym": "A"})
    desk.publish("v3", "v4")
    desk.publish("w", headers={"sym": "B"})
    desk.publish("v5", headers={"sym": "A"})
    assert [desk.must_get().body for _ in range(4)] == ["v5", "v3", "v4", "w"]
    assert desk.counter("replaced") == 2
    desk.publish("v6", headers={"sym": "A"})  # what is out is not replaced
    assert desk.must_get().body == "v6"


def test_e20_last_value_and_rollback(at: Make) -> None:
    """testMultipleRollback: a newer value that came meanwhile takes the place of the one that comes back."""
    desk = at(x_last_value=True, x_redelivery_delay=10)
    desk.publish("old", headers={"_AMQ_LVQ_NAME": "k"})
    for _ in range(5):
        desk.nack(desk.must_get())
        desk.advance_ms(20)
    got = desk.must_get()
    desk.publish("new", headers={"_AMQ_LVQ_NAME": "k"})
    desk.nack(got)
    desk.advance_ms(20)
    assert (desk.all(), desk.counter("replaced")) == ("new", 1)


def test_e21_ingress_timestamp(at: Make) -> None:
    """A header of the broker's; the property timestamp is left alone."""
    desk = at(settings(q={"enable_ingress_timestamp": True}))
    desk.publish("A", headers={"mine": 1})
    got = desk.must_get()
    assert abs(got.headers["_AMQ_INGRESS_TIMESTAMP"] - desk.wall_ms) < 1000
    assert (got.headers["mine"], got.properties.timestamp) == (1, None)


def test_e22_exclusive_means_one_active_consumer(at: Make) -> None:
    """The first one gets everything; the next one takes over when it leaves."""
    desk = at(settings(q={"default_exclusive_queue": True}))
    desk.consume(tag="one")
    desk.consume(tag="two")
    other = desk.other()
    other.consume()
    desk.publish(*"ABC")
    assert [got.body for got in desk.taken()] == ["A", "B", "C"]
    desk.cancel("one")
    desk.cancel("two")
    desk.publish("D")
    assert [got.body for got in other.taken()] == ["D"]


def test_e23_non_destructive_consumers_see_everything(at: Make) -> None:
    """Each consumer reads from the head; acknowledgements remove nothing, expiry does."""
    desk = at(x_non_destructive=True)
    desk.publish(*"ABC")
    other = desk.other()
    for one in (desk, other):
        one.consume(prefetch=2)
        first = one.taken()
        assert [got.body for got in first] == ["A", "B"]
        one.nack(first[0])
        assert [(got.body, got.redelivered) for got in one.taken()] == [("A", True)]
        one.ack(first[1])
        assert [got.body for got in one.taken()] == ["C"]
    assert (desk.counts()[0], desk.counter("acknowledged")) == (3, 2)
    desk.publish("D", expiration="100")
    desk.reopen_channel()
    other.drop()
    assert desk.counts() == (4, 0, 0)
    desk.consume(no_ack=True)
    assert [got.body for got in desk.taken()] == ["A", "B", "C", "D"]
    desk.advance_ms(200)
    assert desk.counts() == (4, 0, 0)  # behind others that live: as in RabbitMQ, seen when it is at the head
    assert desk.purge() == 4


def test_e23_failing_for_good_removes(at: Make) -> None:
    """A message that used its attempts up is dead for everybody."""
    desk = at(x_non_destructive=True, x_max_delivery_attempts=2, x_dead_letter_address="D")
    desk.declare("D")
    desk.publish("A", "B")
    desk.consume(prefetch=1)
    for _ in range(2):
        (got,) = desk.taken()
        desk.nack(got)
    assert (desk.all("D"), desk.counter("killed")) == ("A", 1)
    (got,) = desk.taken()
    assert got.body == "B"
    desk.nack(got, requeue=False)
    assert (desk.all("D"), desk.counts()) == ("B", (0, 0, 0))


def test_e23_non_destructive_last_value(at: Make) -> None:
    """Consumers that saw the old value are shown the new one."""
    desk = at(x_non_destructive=True, x_last_value_key="sym")
    desk.publish("v1", headers={"sym": "A"})
    desk.publish("w1", headers={"sym": "B"})
    desk.consume()
    desk.publish("v2", headers={"sym": "A"})
    assert [got.body for got in desk.taken()] == ["v1", "w1", "v2"]
    late = desk.other()
    late.consume()
    assert [got.body for got in late.taken()] == ["w1", "v2"]
    assert desk.counter("replaced") == 1


def test_a_limit_on_all_addresses(at: Make) -> None:
    """[broker] global-max-messages and global-max-size are live; each address follows its own policy."""
    policies = settings(fails={"address_full_policy": "FAIL"}, drops={"address_full_policy": "DROP"})
    desk = at(policies)
    for name in ("fails", "drops"):
        desk.declare(name)
    assert desk.publish(*"123") == ["ack"] * 3
    for limit in ("global-max-messages = 3", 'global-max-size = "3"'):
        desk.reload(f"[broker]\n{limit}\n{policies}")
        assert desk.publish("4", key="fails") == ["nack"]
        assert desk.publish("4", key="drops") == ["ack"]
        assert desk.publish("4") == ["ack"]
    assert (desk.counts("fails"), desk.counts("drops"), desk.counts()) == ((0, 0, 0), (0, 0, 0), (5, 0, 0))
    desk.reload(policies)
    assert desk.publish("5", key="fails") == ["ack"]
    desk.reload(f"[broker]\nglobal-max-messages = 0\n{policies}")
    assert desk.publish("6", key="fails") == ["nack"]
