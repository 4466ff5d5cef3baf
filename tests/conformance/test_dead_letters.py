"""Dead letters: the rows of address-settings page 8.5."""

from typing import Any

import pytest
from desk import Desk, Make, Refused
from toml_text import settings


def fail(desk: Desk, queue: str = "q", times: int = 1) -> None:
    """A message is tried so often, and given back each time."""
    for _ in range(times):
        desk.nack(desk.must_get(queue))


@pytest.mark.parametrize("is_argument", [True, False], ids=["by argument", "by setting"])
def test_l01_attempts_exhausted(at: Make, is_argument: bool) -> None:
    """The copy tells where it came from and why it died."""
    if is_argument:
        desk = at(x_max_delivery_attempts=1, x_dead_letter_address="D")
    else:
        desk = at(settings(**{"q.#": {"max_delivery_attempts": 1, "dead_letter_address": "D"}}))
    desk.declare("D")
    desk.publish("heyho")
    fail(desk)
    assert desk.counts() == (0, 0, 0)
    dead = desk.must_get("D")
    assert (dead.body, dead.redelivered) == ("heyho", False)
    assert (dead.headers["_AMQ_ORIG_QUEUE"], dead.headers["_AMQ_ORIG_ADDRESS"]) == ("q", "q")
    assert isinstance(dead.headers["_AMQ_ORIG_MESSAGE_ID"], int)
    assert "_HQ_ORIG_QUEUE" not in dead.headers
    assert dead.headers["x-death"][0]["reason"] == "delivery_limit"
    assert (desk.counter("killed"), desk.counter("enqueued", "D")) == (1, 1)


def test_l02_the_count_is_told(at: Make) -> None:
    """x-delivery-count is absent, 1, 2; then the message is dead, and its copy starts anew."""
    desk = at(x_max_delivery_attempts=3, x_dead_letter_address="D")
    desk.declare("D")
    desk.publish("A")
    for count in (None, 1, 2):
        got = desk.must_get()
        assert got.headers.get("x-delivery-count") == count
        desk.nack(got)
    assert "x-delivery-count" not in desk.must_get("D").headers


def test_l03_order_is_kept_each_round(at: Make) -> None:
    """16 rounds of five messages, all nacked: in order each time, and in the end."""
    desk = at(settings(q={"max_delivery_attempts": 16, "dead_letter_address": "D"}))
    desk.declare("D")
    desk.publish(*"01234")
    for _ in range(16):
        assert "".join(desk.must_get().body for _ in range(5)) == "01234"
        desk.nack(0, multiple=True)
    assert desk.all("D") == "01234"


@pytest.mark.parametrize("address", [None, "", "nobody"], ids=["l05: none", "empty", "not bound"])
def test_l05_without_an_address_it_is_gone(at: Make, address: str | None) -> None:
    """Counted as killed."""
    entry: dict[str, Any] = {"max_delivery_attempts": 1}
    desk = at(settings(q=entry if address is None else {**entry, "dead_letter_address": address}))
    desk.publish("A")
    fail(desk)
    assert (desk.counts(), desk.counter("killed")) == ((0, 0, 0), 1)


@pytest.mark.parametrize("address", ["letters", "exchange:letters", "exchange:letters/key"])
def test_l06_an_exchange_as_address(at: Make, address: str) -> None:
    """An exchange of that name comes before a queue of that name; each queue bound to it has a copy."""
    desk = at(x_max_delivery_attempts=1, x_dead_letter_address=address)
    desk.exchange("letters")
    for queue in ("letters", "other"):
        desk.declare(queue)
        desk.bind(queue, "letters")
    desk.publish("A")
    fail(desk)
    copy = desk.must_get("letters")
    assert (copy.body, copy.exchange, copy.routing_key) == (
        "A",
        "letters",
        "key" if address.endswith("key") else "q",
    )
    assert desk.all("other") == "A"


def test_l07_properties_are_kept_but_expiration(at: Make) -> None:
    """Headers, priority and delivery mode stay; the expiration is in the history."""
    desk = at(x_max_delivery_attempts=1, x_dead_letter_address="queue:D")
    desk.declare("D")
    desk.publish("A", expiration="60000", headers={"a": 1}, priority=4, delivery_mode=2)
    fail(desk)
    dead = desk.must_get("D")
    properties = dead.properties
    assert (properties.expiration, properties.priority, properties.delivery_mode) == (None, 4, 2)
    assert dead.headers["a"] == 1
    assert dead.headers["x-death"][0]["original-expiration"] == "60000"


def test_l09_the_nearest_entry_counts(at: Make) -> None:
    """`*` does not match two words; `p.a` has four attempts."""
    desk = at(
        settings(
            **{
                "*": {"max_delivery_attempts": 3, "dead_letter_address": "X"},
                "p.a": {"max_delivery_attempts": 4, "dead_letter_address": "Y"},
            }
        ),
        q=False,
    )
    for queue in ("p.a", "X", "Y"):
        desk.declare(queue)
    desk.publish("A", key="p.a")
    fail(desk, "p.a", 3)
    assert (desk.counts("X"), desk.counts("Y")) == ((0, 0, 0), (0, 0, 0))
    fail(desk, "p.a")
    assert (desk.all("X"), desk.all("Y")) == ("", "A")


AUTO = {"max_delivery_attempts": 1, "dead_letter_address": "D", "auto_create_dead_letter_resources": True}


def test_l10_each_address_has_a_queue_for_its_dead(at: Make) -> None:
    """`DLQ.A`, `DLQ.B`, each with exactly its own message; D is a direct exchange made for them."""
    desk = at(settings(**{"#": AUTO}), q=False)
    for queue in "AB":
        desk.declare(queue)
        desk.publish(queue.lower(), key=queue)
        fail(desk, queue)
    assert (desk.all("DLQ.A"), desk.all("DLQ.B")) == ("a", "b")
    assert desk.declare("DLQ.A") == 0  # durable, without arguments: anybody may declare it
    with pytest.raises(Refused):
        desk.exchange("D", "fanout")  # it is there, and direct


def test_l10_beside_a_queue_or_an_exchange_that_is_there(at: Make) -> None:
    """A queue D gets a copy, too; an exchange D is used as it is."""
    desk = at(settings(**{"#": AUTO}), q=False)
    desk.declare("A")
    desk.declare("D")
    desk.publish("a", key="A")
    fail(desk, "A")
    assert (desk.all("D"), desk.all("DLQ.A")) == ("a", "a")
    desk = at(settings(**{"#": AUTO}), q=False)
    desk.declare("A")
    desk.declare("all")
    desk.exchange("D", "topic")
    desk.bind("all", "D", "#")
    desk.publish("a", key="A")
    fail(desk, "A")
    assert (desk.all("all"), desk.all("DLQ.A")) == ("a", "a")


@pytest.mark.parametrize(
    "names, queue",
    [
        ({"dead_letter_queue_prefix": "", "dead_letter_queue_suffix": ".DLQ"}, "A.DLQ"),
        ({"dead_letter_queue_prefix": "x.", "dead_letter_queue_suffix": ".y"}, "x.A.y"),
    ],
    ids=["l11", "both"],
)
def test_l11_prefix_and_suffix(at: Make, names: dict[str, str], queue: str) -> None:
    """The name is made of the queue's address."""
    desk = at(settings(**{"#": {**AUTO, **names}}), q=False)
    desk.declare("A")
    desk.publish("a", key="A")
    fail(desk, "A")
    assert desk.all(queue) == "a"


def test_l12_the_dead_do_not_chain(at: Make) -> None:
    """A `#` rule holds for the made queue too: its address is D, so nothing goes on to DLQ.DLQ.A."""
    desk = at(settings(**{"#": AUTO}), q=False)
    desk.declare("A")
    desk.publish("a", key="A")
    fail(desk, "A")
    fail(desk, "DLQ.A", 20)
    assert (desk.all("DLQ.A"), desk.exists("DLQ.DLQ.A"), desk.exists("DLQ.D")) == ("a", False, False)


def test_l13_unused_ones_go_and_come_again(at: Make) -> None:
    """Drained and idle for two scans: removed; the next failure makes it again."""
    desk = at(settings(broker={"address_queue_scan_period": 200}, **{"#": AUTO}), q=False)
    desk.declare("A")
    desk.publish("a", key="A")
    fail(desk, "A")
    desk.advance_ms(1000)
    assert desk.exists("DLQ.A")  # not empty
    assert desk.all("DLQ.A") == "a"
    desk.advance_ms(1000)
    assert not desk.exists("DLQ.A")
    assert desk.exists("A")
    desk.publish("b", key="A")
    fail(desk, "A")
    assert desk.all("DLQ.A") == "b"


@pytest.mark.parametrize("address", ["q", "queue:q"])
def test_l14_a_queue_that_is_its_own_target_keeps_its_messages(at: Make, address: str) -> None:
    """No loop and no duplicate: attempts are unlimited there."""
    desk = at(settings(**{"#": {"max_delivery_attempts": 1, "dead_letter_address": address}}))
    desk.publish("A")
    fail(desk, times=5)
    assert desk.all() == "A"


def test_what_only_expires_goes_round_once(at: Make) -> None:
    """No client had it, so nobody would end the cycle."""
    desk = at(x_message_ttl=1000, x_expiry_address="later")
    desk.declare("later", x_message_ttl=1000, x_expiry_address="q")
    desk.publish("A")
    desk.advance_ms(1001)
    assert desk.counts("later") == (1, 0, 0)
    desk.advance_ms(1001)
    assert desk.counts() == (0, 0, 0)


def test_attempts_send_a_message_round_as_long_as_clients_fail(at: Make) -> None:
    """Two queues are each other's dead-letter address: each round needs a client, so nothing goes round by itself."""
    desk = at(
        settings(
            a={"max_delivery_attempts": 1, "dead_letter_address": "b"},
            b={"max_delivery_attempts": 1, "dead_letter_address": "a"},
        ),
        q=False,
    )
    for queue in ("a", "b"):
        desk.declare(queue)
    desk.publish("A", key="a")
    for queue in "abab":
        fail(desk, queue)
    deaths = desk.must_get("a").headers["x-death"]
    assert [(death["queue"], death["count"], death["reason"]) for death in deaths] == [
        ("b", 2, "delivery_limit"),
        ("a", 2, "delivery_limit"),
    ]


def test_a_limit_of_deliveries_ends_a_cycle_of_exchanges(at: Make) -> None:
    """As in RabbitMQ, where a dead-letter exchange, and not an address, leads back to the queue."""
    desk = at(x_max_delivery_attempts=1, x_dead_letter_exchange="", x_dead_letter_routing_key="b")
    desk.declare("b", x_max_delivery_attempts=1, x_dead_letter_exchange="", x_dead_letter_routing_key="q")
    desk.publish("A")
    fail(desk)
    fail(desk, "b")
    assert (desk.counts(), desk.counts("b")) == ((0, 0, 0), (0, 0, 0))


@pytest.mark.parametrize("what", ["dead_letter", "expiry"])
def test_resources_with_the_name_of_the_queue_are_not_created(at: Make, what: str) -> None:
    """Without prefix and suffix they would be the queue itself: its dead go to the address, as without resources."""
    resources = {f"auto_create_{what}_resources": True, f"{what}_queue_prefix": "", f"{what}_address": "D"}
    desk = at(settings(q={"max_delivery_attempts": 1, "expiry_delay": 100, **resources}))
    desk.publish("A")
    if what == "expiry":
        desk.advance_ms(100)
    else:
        fail(desk)
    assert (desk.counts(), desk.all("D")) == ((0, 0, 0), "A")


def test_l15_refused_for_good_is_dead_at_once(at: Make) -> None:
    """requeue=false on the first delivery."""
    desk = at(x_max_delivery_attempts=9, x_redelivery_delay=1000, x_dead_letter_address="D")
    desk.declare("D")
    desk.publish("A", "B")
    desk.nack(desk.must_get(), requeue=False)
    desk.reject(desk.must_get(), requeue=False)
    assert desk.must_get("D").headers["x-death"][0]["reason"] == "rejected"
    assert desk.must_get("D").headers["x-death"][0]["reason"] == "rejected"


def test_l16_an_exchange_of_the_clients_wins(at: Make) -> None:
    """x-dead-letter-exchange over an inherited address, for all reasons, all headers (address-settings page 6.7)."""
    desk = at(
        settings(q={"dead_letter_address": "D", "expiry_address": "E", "max_delivery_attempts": 1}),
        x_dead_letter_exchange="amq.fanout",
    )
    for queue in ("D", "E", "X"):
        desk.declare(queue)
    desk.bind("X", "amq.fanout")
    desk.publish("A")
    fail(desk)
    desk.publish("B", expiration="50")
    desk.advance_ms(100)
    first, second = desk.must_get("X"), desk.must_get("X")
    assert [one.headers["x-death"][0]["reason"] for one in (first, second)] == ["delivery_limit", "expired"]
    assert first.headers["_AMQ_ORIG_QUEUE"] == "q"
    assert (desk.all("D"), desk.all("E")) == ("", "")


@pytest.mark.parametrize("inherited", [{"dead_letter_address": "D"}, {"expiry_address": "E"}, None])
def test_either_inherited_address_adds_the_origin(at: Make, inherited: dict[str, str] | None) -> None:
    """Beside an exchange of the client's; without one the message has RabbitMQ's headers alone (6.7)."""
    desk = at("" if inherited is None else settings(q=inherited), x_dead_letter_exchange="amq.fanout")
    desk.declare("X")
    desk.bind("X", "amq.fanout")
    desk.publish("A")
    desk.reject(desk.must_get(), requeue=False)
    headers = desk.must_get("X").headers
    assert "x-death" in headers and ("_AMQ_ORIG_QUEUE" in headers) is (inherited is not None)


@pytest.mark.parametrize("limit, deliveries", [(0, 1), (2, 3), (19, 20)])
def test_l17_a_delivery_limit_is_one_delivery_more(at: Make, limit: int, deliveries: int) -> None:
    """x-delivery-limit N of a quorum queue: N + 1 deliveries, then a dead letter with x-death only (DLX, 6.7)."""
    desk = at(
        x_queue_type="quorum",
        x_delivery_limit=limit,
        x_dead_letter_exchange="",
        x_dead_letter_routing_key="D",
    )
    desk.declare("D")
    desk.publish("A")
    for attempt in range(deliveries):
        got = desk.must_get()
        assert got.headers.get("x-delivery-count") == (attempt or None)
        desk.nack(got)
    assert desk.counts() == (0, 0, 0)
    dead = desk.must_get("D")
    assert [(one["reason"], one["count"], one["queue"]) for one in dead.headers["x-death"]] == [
        ("delivery_limit", 1, "q")
    ]
    assert "x-delivery-count" not in dead.headers


def test_l17_with_a_dead_letter_address(at: Make) -> None:
    """A delivery limit is a limit of attempts like any other."""
    desk = at(settings(q={"dead_letter_address": "D"}), x_queue_type="quorum", x_delivery_limit=1)
    desk.declare("D")
    desk.publish("A")
    fail(desk, times=2)
    assert desk.must_get("D").headers["x-death"][0]["reason"] == "delivery_limit"


@pytest.mark.parametrize(
    "profile, arguments, deliveries",
    [
        ("leveret", {}, None),
        ("rabbitmq-3.10", {}, None),
        ("rabbitmq-3.13", {}, None),
        ("rabbitmq-4.0", {}, 21),
        ("rabbitmq-4.3", {}, 21),
        ("rabbitmq-4.0", {"x_delivery_limit": 2}, 3),
        ("rabbitmq-4.0", {"x_delivery_limit": -1}, None),
        ("rabbitmq-4.0", {"x_max_delivery_attempts": 5}, 5),
    ],
)
def test_delivery_limit_of_the_profile(
    profile: str, arguments: dict[str, Any], deliveries: int | None, at: Make
) -> None:
    """Quorum queues have one of 20 in 4.x; a limit of their own, or none, counts instead."""
    desk = at(settings(broker={"profile": profile}), x_queue_type="quorum", **arguments)
    desk.publish("A")
    for _ in range(deliveries or 30):
        desk.reject(desk.must_get())
    assert desk.counts()[0] == (0 if deliveries else 1)


def test_the_profiles_limit_survives_a_reload(at: Make) -> None:
    """Settings that change do not take it away."""
    broker = {"profile": "rabbitmq-4.0"}
    desk = at(settings(broker=broker), x_queue_type="quorum")
    desk.publish("A")
    desk.reload(settings(broker=broker, q={"default_ring_size": 5}))
    for _ in range(21):
        desk.reject(desk.must_get())
    assert desk.counts() == (0, 0, 0)


@pytest.mark.parametrize("profile, told", [("leveret", True), ("rabbitmq-3.10", False), ("rabbitmq-4.3", False)])
def test_classic_queues_tell_counts_in_our_profile(profile: str, told: bool, at: Make) -> None:
    """x-delivery-count of a queue with redelivery settings; RabbitMQ's classic queues have none (ruling 14)."""
    desk = at(settings(broker={"profile": profile}), x_max_delivery_attempts=5)
    desk.publish("A")
    desk.reject(desk.must_get())
    assert ("x-delivery-count" in desk.must_get().headers) is told


def test_l18_two_limits_contradict_each_other(at: Make) -> None:
    """406."""
    desk = at()
    with pytest.raises(Refused) as refused:
        desk.declare("r", x_queue_type="quorum", x_delivery_limit=2, x_max_delivery_attempts=2)
    assert refused.value.code == 406


def test_l19_a_full_target_loses_nothing(at: Make) -> None:
    """The dead-letter queue refuses: the message stays, without an attempt more, after the delay."""
    desk = at(
        settings(
            q={"max_delivery_attempts": 2, "dead_letter_address": "D", "redelivery_delay": 200},
            D={"max_size_messages": 1, "address_full_policy": "FAIL"},
        )
    )
    desk.declare("D")
    desk.publish("full", key="D")
    desk.publish("A")
    fail(desk)
    desk.advance_ms(200)
    fail(desk)
    assert (desk.counts(), desk.counter("killed")) == ((0, 0, 1), 0)
    desk.advance_ms(200)
    got = desk.must_get()
    assert (got.body, got.headers["x-delivery-count"]) == ("A", 1)
    assert desk.all("D") == "full"
    desk.nack(got)
    assert (desk.all("D"), desk.counts()) == ("A", (0, 0, 0))


@pytest.mark.parametrize("queues, makes_missing", [("DE", False), ("DEF", True)])
def test_queues_of_a_dead_letter_address_get_letters_in_turn(queues: str, makes_missing: bool, at: Make) -> None:
    """The checks whether the address is full, and whether it has a queue, take no queue's turn."""
    desk = at(settings(q={"dead_letter_address": "dead", "auto_create_missing_queues": makes_missing}))
    for name in queues:
        desk.declare(name, x_address="dead")
    bodies = "ABCDEF"
    desk.publish(*bodies)
    for _ in bodies:
        desk.nack(desk.must_get(), requeue=False)
    count = len(queues)
    assert [desk.all(name) for name in queues] == [bodies[at::count] for at in range(count)]


def test_a_dead_letter_by_name_is_no_turn_at_a_shared_address(at: Make) -> None:
    """It reaches the queue E as such, and the next message to the address is the turn of D."""
    desk = at(settings(q={"dead_letter_address": "queue:E"}))
    for name in "DE":
        desk.declare(name, x_address="shared")
    desk.publish("A")
    desk.nack(desk.must_get(), requeue=False)
    desk.publish("B", "C", key="shared")
    assert (desk.all("D"), desk.all("E")) == ("B", "AC")


def test_l19_a_full_target_loses_nothing_of_a_non_destructive_queue(at: Make) -> None:
    """The message stays for all consumers, and is dead as soon as its address has room."""
    desk = at(
        settings(
            q={"max_delivery_attempts": 1, "dead_letter_address": "D"},
            D={"max_size_messages": 1, "address_full_policy": "FAIL"},
        ),
        x_non_destructive=True,
    )
    desk.declare("D")
    desk.publish("full", key="D")
    desk.publish("A")
    desk.consume(prefetch=1)
    (got,) = desk.taken()
    desk.nack(got)
    (again,) = desk.taken()
    assert (again.body, desk.counts()[0], desk.counter("killed")) == ("A", 1, 0)
    assert desk.all("D") == "full"
    desk.nack(again)
    assert (desk.all("D"), desk.counts()[0], desk.taken()) == ("A", 0, [])


def test_l19_refused_for_good_stays_too(at: Make) -> None:
    """The same for requeue=false."""
    desk = at(settings(q={"dead_letter_address": "D"}, D={"max_size_messages": 1, "address_full_policy": "FAIL"}))
    desk.declare("D")
    desk.publish("full", key="D")
    desk.publish("A")
    desk.nack(desk.must_get(), requeue=False)
    assert desk.counts() == (1, 0, 0)
    assert desk.all("D") == "full"
    desk.nack(desk.must_get(), requeue=False)
    assert desk.all("D") == "A"


def test_l21_attempts_come_before_the_purge(at: Make) -> None:
    """A goes to the dead-letter address, what is left is purged with the last consumer."""
    desk = at(x_max_delivery_attempts=1, x_purge_on_no_consumers=True, x_dead_letter_address="D")
    desk.declare("D")
    other = desk.other()
    other.consume(prefetch=1)
    desk.publish("A", "B")
    assert [got.body for got in other.taken()] == ["A"]
    other.drop()
    assert desk.all("D") == "A"
    assert (desk.counts(), desk.counter("purged")) == ((0, 0, 0), 1)


def test_l22_no_route(at: Make) -> None:
    """An exchange's own dead-letter address takes what nobody took, unless its publisher wants it back."""
    desk = at(settings(E={"send_to_dla_on_no_route": True, "dead_letter_address": "D"}))
    desk.exchange("E", "direct")
    desk.declare("D")
    assert desk.publish("A", exchange="E", key="nowhere") == ["ack"]
    dead = desk.must_get("D")
    assert (dead.body, dead.headers["_AMQ_ORIG_ADDRESS"]) == ("A", "E")
    assert "_AMQ_ORIG_QUEUE" not in dead.headers
    assert desk.publish("B", exchange="E", key="nowhere", mandatory=True) == ["returned"]
    assert desk.all("D") == ""


def test_l23_the_names_of_hornetq(at: Make) -> None:
    """Both kinds of headers where the operator wants them."""
    desk = at(settings(broker={"legacy_hornetq_headers": True}), x_max_delivery_attempts=1, x_dead_letter_address="D")
    desk.declare("D")
    desk.publish("A")
    fail(desk)
    headers = desk.must_get("D").headers
    for name in ("ORIG_ADDRESS", "ORIG_QUEUE", "ORIG_MESSAGE_ID"):
        assert headers[f"_HQ_{name}"] == headers[f"_AMQ_{name}"]


@pytest.mark.parametrize(
    "choice, address", [("exchange", "amq.topic"), ("exchange-and-key", "amq.topic.a.b"), ("key", "a.b")]
)
def test_the_address_of_a_message_is_the_operators_choice(at: Make, choice: str, address: str) -> None:
    """`message-address` (address-settings page 1.3)."""
    desk = at(settings(broker={"message_address": choice}), x_max_delivery_attempts=1, x_dead_letter_address="D")
    desk.declare("D")
    desk.bind("q", "amq.topic", "#")
    desk.publish("A", exchange="amq.topic", key="a.b")
    fail(desk)
    assert desk.must_get("D").headers["_AMQ_ORIG_ADDRESS"] == address
