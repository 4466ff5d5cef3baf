"""Scheduled delivery, groups, duplicates, retroactive messages, diverts, x-address, auto-created queues."""

from typing import Any

import pytest
from desk import Desk, Make, Refused
from toml_text import settings

# -- delays of publishers -------------------------------------------------------------------------------------------


def test_artemis_scheduled_delivery(at: Make) -> None:
    """At its time, at the head."""
    desk = at()
    desk.publish("late", headers={"_AMQ_SCHED_DELIVERY": desk.wall_ms + 500})
    desk.publish("past", headers={"_AMQ_SCHED_DELIVERY": desk.wall_ms - 500})
    desk.publish("now")
    assert desk.counts() == (2, 0, 1)
    assert [one["exchange"] for one in desk.command("scheduled", queue="q")] == [""]
    desk.advance_ms(480)
    assert desk.counts() == (2, 0, 1)
    desk.advance_ms(20)
    assert [desk.must_get().body for _ in range(3)] == ["late", "past", "now"]


@pytest.mark.parametrize("routes_as", ["direct", "topic", "fanout", "headers"])
def test_an_exchange_that_delays(at: Make, routes_as: str) -> None:
    """x-delayed-message: routed like its x-delayed-type; due messages arrive at the tail."""
    desk = at()
    desk.exchange("later", "x-delayed-message", x_delayed_type=routes_as)
    desk.bind("q", "later", "k")
    desk.publish("A", exchange="later", key="k", headers={"x-delay": 300})
    desk.publish("B", exchange="later", key="k", headers={"x-delay": 100})
    desk.publish("C", exchange="later", key="k")
    assert desk.counts() == (1, 0, 2)
    desk.advance_ms(100)
    assert desk.counts() == (2, 0, 1)
    desk.advance_ms(200)
    got = [desk.must_get() for _ in range(3)]
    assert [one.body for one in got] == ["C", "B", "A"]
    assert (got[2].headers["x-delay"], got[2].redelivered) == (-300, False)
    assert desk.publish("D", exchange="later", key="other", mandatory=True, headers={"x-delay": 100}) == [
        "ack" if routes_as in ("fanout", "headers") else "returned"
    ]


@pytest.mark.parametrize("delay", [0, -5, 2**32, "soon", None, True], ids=repr)
def test_what_is_no_delay(at: Make, delay: Any) -> None:
    """Routed at once."""
    desk = at()
    desk.exchange("later", "x-delayed-message", x_delayed_type="fanout")
    desk.bind("q", "later")
    desk.publish("A", exchange="later", headers={"x-delay": delay})
    assert desk.counts() == (1, 0, 0)


def test_a_delay_as_text(at: Make) -> None:
    """Some clients have only strings."""
    desk = at()
    desk.exchange("later", "x-delayed-message", x_delayed_type="fanout")
    desk.bind("q", "later")
    desk.publish("A", exchange="later", headers={"x-delay": "100"})
    assert desk.counts() == (0, 0, 1)


@pytest.mark.parametrize(
    "arguments", [{}, {"x_delayed_type": "none"}, {"x_delayed_type": "x-delayed-message"}], ids=str
)
def test_an_exchange_that_delays_needs_a_type(at: Make, arguments: dict[str, Any]) -> None:
    """406, as the plugin says it."""
    desk = at()
    with pytest.raises(Refused) as refused:
        desk.exchange("later", "x-delayed-message", **arguments)
    assert refused.value.code == 406
    assert "'x-delayed-type' must be an existing exchange type" in refused.value.text


@pytest.mark.parametrize("profile, counts", [("leveret", (0, 0, 1)), ("rabbitmq-3.10", (1, 0, 0))])
def test_x_delay_on_any_exchange(at: Make, profile: str, counts: tuple[int, int, int]) -> None:
    """Ours delays everywhere; RabbitMQ only where an exchange of the plugin's is."""
    desk = at(settings(broker={"profile": profile}))
    desk.publish("A", headers={"x-delay": 100})
    assert desk.counts() == counts


def test_where_a_delayed_message_is_when_it_is_due(at: Make) -> None:
    """Before all that is ready, and before what came due earlier; what is due at one time keeps its order."""
    desk = at()
    desk.publish("A", "B", headers={"x-delay": 500})
    desk.publish("C", headers={"x-delay": 300})
    desk.publish("D", "E")
    desk.advance_ms(300)
    assert desk.counts() == (3, 0, 2)
    desk.publish("F")
    desk.advance_ms(200)
    assert desk.all() == "ABCDEF"


def test_a_delayed_message_is_at_the_head_of_its_priority(at: Make) -> None:
    """Before what is ready at its level, behind higher ones."""
    desk = at(x_max_priority=5)
    desk.publish("C", headers={"x-delay": 500}, priority=3)
    desk.publish("D", priority=3)
    desk.publish("E", priority=1)
    desk.publish("A", "B", priority=4)
    desk.advance_ms(500)
    assert desk.all() == "ABCDE"


def test_a_delayed_message_that_is_given_back(at: Make) -> None:
    """What comes back is in the order of publishing, whenever it was due."""
    desk = at()
    desk.publish("A")
    desk.publish("C", headers={"x-delay": 100})
    desk.publish("B")
    desk.advance_ms(100)
    desk.nack(desk.must_get())
    assert desk.all() == "ACB"


def test_a_delayed_message_and_a_full_ring(at: Make) -> None:
    """It is the head, and the head goes (address-settings page 4.3)."""
    desk = at(x_ring_size=3)
    desk.publish("A", headers={"x-delay": 500})
    desk.publish(*"BCD")
    assert desk.counts() == (3, 0, 1)
    desk.advance_ms(500)
    assert desk.all() == "BCD"


def test_a_delayed_message_expires_while_it_waits(at: Make) -> None:
    """Its time to live begins with its publication."""
    desk = at(x_expiry_address="X")
    desk.declare("X")
    desk.publish("A", expiration="100", headers={"x-delay": 1000})
    desk.advance_ms(100)
    assert (desk.counts(), desk.all("X")) == ((0, 0, 0), "A")


def test_a_delayed_message_is_confirmed_and_purged(at: Make) -> None:
    """The confirm comes at once; purge takes and counts what waits."""
    desk = at()
    assert desk.publish("A", headers={"x-delay": 1000}) == ["ack"]
    assert desk.purge() == 1
    desk.advance_ms(2000)
    assert desk.counts() == (0, 0, 0)


# -- groups ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def pair_of(at: Make) -> Any:
    """Two consumers with prefetch 2 at q: `(desk, one, two)`."""

    def make(**arguments: Any) -> tuple[Desk, Desk, Desk]:
        desk = at(**arguments)
        one, two = desk.other(), desk.other()
        for consumer in (one, two):
            consumer.consume(prefetch=2)
        return desk, one, two

    return make


@pytest.mark.parametrize("header", ["_AMQ_GROUP_ID", "JMSXGroupID"])
def test_a_group_has_one_consumer(pair_of: Any, header: str) -> None:
    """Also when that one is busy: the others' messages go past."""
    desk, one, two = pair_of()
    for body, group in (("A1", "A"), ("B1", "B"), ("A2", "A"), ("A3", "A"), ("A4", "A"), ("B2", "B")):
        desk.publish(body, headers={header: group})
    first, second = one.taken(), two.taken()
    assert ([got.body for got in first], [got.body for got in second]) == (["A1", "A2"], ["B1", "B2"])
    assert desk.counts() == (2, 4, 0)
    one.ack(first[0])
    assert [got.body for got in one.taken()] == ["A3"]
    one.cancel()
    two.ack(second[0])
    assert [got.body for got in two.taken()] == ["A4"]  # the group is free again


def test_groups_can_be_switched_off(pair_of: Any) -> None:
    """Buckets 0: the consumer list alone."""
    desk, one, two = pair_of(x_group_buckets=0)
    for body in ("A1", "A2"):
        desk.publish(body, headers={"_AMQ_GROUP_ID": "A"})
    assert ([got.body for got in one.taken()], [got.body for got in two.taken()]) == (["A1"], ["A2"])


def test_groups_in_buckets(pair_of: Any) -> None:
    """One bucket: all groups are one."""
    desk, one, two = pair_of(x_group_buckets=1)
    for body in ("A", "B"):
        desk.publish(body, headers={"_AMQ_GROUP_ID": body})
    assert ([got.body for got in one.taken()], two.taken()) == (["A", "B"], [])


def test_a_group_that_ends(pair_of: Any) -> None:
    """Sequence -1: the next message of that name begins a new group."""
    desk, one, two = pair_of()
    desk.publish("A1", headers={"_AMQ_GROUP_ID": "A"})
    desk.publish("A2", headers={"_AMQ_GROUP_ID": "A", "_AMQ_GROUP_SEQUENCE": -1})
    desk.publish("A3", headers={"_AMQ_GROUP_ID": "A"})
    assert ([got.body for got in one.taken()], [got.body for got in two.taken()]) == (["A1", "A2"], ["A3"])


def test_the_first_of_a_group_says_so(pair_of: Any) -> None:
    """`x-group-first-key`."""
    desk, one, _ = pair_of(x_group_first_key="first")
    desk.publish("A1", "A2", headers={"_AMQ_GROUP_ID": "A"})
    assert [got.headers.get("first") for got in one.taken()] == [True, None]


@pytest.mark.parametrize("pauses", [False, True])
def test_groups_are_dealt_anew(pair_of: Any, pauses: bool) -> None:
    """When a consumer joins; with a pause, once nothing is out."""
    desk, one, two = pair_of(x_group_rebalance=True, x_group_rebalance_pause_dispatch=pauses)
    two.cancel()
    desk.publish("A1", headers={"_AMQ_GROUP_ID": "A"})
    desk.publish("B1", headers={"_AMQ_GROUP_ID": "B"})
    held = one.taken()
    assert [got.body for got in held] == ["A1", "B1"]
    two.consume(prefetch=2)
    desk.publish("A2", headers={"_AMQ_GROUP_ID": "A"})
    assert [got.body for got in two.taken()] == ([] if pauses else ["A2"])
    for got in held:
        one.ack(got)
    assert [got.body for got in [*one.taken(), *two.taken()]] == (["A2"] if pauses else [])


# -- duplicates -----------------------------------------------------------------------------------------------------


def test_duplicates_are_taken_once(at: Make) -> None:
    """Confirmed both times, routed once; other addresses have caches of their own."""
    desk = at()
    desk.declare("other")
    for key in ("q", "q", "other"):
        assert desk.publish("A", key=key, headers={"_AMQ_DUPL_ID": "one"}, mandatory=True) == ["ack"]
    desk.publish("B", headers={"_AMQ_DUPL_ID": "two"})
    assert (desk.all(), desk.all("other")) == ("AB", "A")


@pytest.mark.parametrize(
    "size, kept",
    [(None, "AA"), (2, "A"), (0, "AA")],
    ids=["nobody asked", "where it is asked for", "off"],
)
def test_the_plugins_header_counts_where_asked_for(at: Make, size: int | None, kept: str) -> None:
    """`x-deduplication-id` means nothing to a plain RabbitMQ."""
    desk = at(settings(q={} if size is None else {"id_cache_size": size}))
    desk.publish("A", "A", headers={"x-deduplication-id": "one"})
    assert desk.all() == kept


def test_the_plugins_header_counts_where_the_broker_has_a_cache(at: Make) -> None:
    """`id-cache-size` of all addresses asks for it, too."""
    desk = at("[broker]\nid-cache-size = 2\n")
    desk.publish("A", "A", headers={"x-deduplication-id": "one"})
    assert desk.all() == "A"


def test_the_cache_forgets_the_oldest(at: Make) -> None:
    """Two ids are remembered."""
    desk = at(settings(q={"id_cache_size": 2}))
    for id_ in "12312":
        desk.publish(id_, headers={"_AMQ_DUPL_ID": id_})
    assert desk.all() == "12312"
    desk.publish("2", headers={"_AMQ_DUPL_ID": "2"})
    assert desk.all() == ""


@pytest.mark.parametrize("before, now, again", [(3, 1, "3"), (1, 3, "")])
def test_another_size_of_the_cache(at: Make, before: int, now: int, again: str) -> None:
    """By a reload, from the next message on: fewer ids are remembered, or more."""
    desk = at(settings(q={"id_cache_size": before}))
    for id_ in "123":
        desk.publish(id_, headers={"_AMQ_DUPL_ID": id_})
    desk.reload(settings(q={"id_cache_size": now}))
    desk.publish("4", headers={"_AMQ_DUPL_ID": "4"})
    assert desk.all() == "1234"
    desk.publish("3", headers={"_AMQ_DUPL_ID": "3"})
    assert desk.all() == again


def test_a_cache_that_is_switched_off_forgets_its_ids(at: Make) -> None:
    """Switched on again, it begins anew. It kept its memory, and the journal stated the ids at each checkpoint."""
    desk = at(settings(q={"id_cache_size": 3}))
    desk.publish("1", headers={"_AMQ_DUPL_ID": "1"})
    desk.reload(settings(q={"id_cache_size": 0}))
    desk.reload(settings(q={"id_cache_size": 3}))
    desk.publish("1", "1", headers={"_AMQ_DUPL_ID": "1"})
    assert desk.all() == "11"


# -- retroactive messages -------------------------------------------------------------------------------------------


def test_queues_that_come_later_get_the_last_messages(at: Make) -> None:
    """Of an exchange, those that their binding takes; of the default exchange, those with their name as key."""
    desk = at(settings(**{"news": {"retroactive_message_count": 3}, "late": {"retroactive_message_count": 1}}), q=False)
    desk.exchange("news", "topic")
    for number, key in enumerate(("eu.a", "us.a", "eu.b", "us.b")):
        desk.publish(f"{number}", exchange="news", key=key)
    desk.publish("x", "y", key="late")
    desk.declare("late")
    assert desk.all("late") == "y"
    desk.declare("eu")
    desk.bind("eu", "news", "eu.#")
    desk.bind("eu", "news", "#.b")  # a second binding brings nothing twice
    assert desk.all("eu") == "2"
    desk.declare("all")
    desk.bind("all", "news", "#")
    assert desk.all("all") == "123"
    desk.publish("4", exchange="news", key="eu.a")
    assert (desk.all("all"), desk.all("eu")) == ("4", "4")


def test_another_number_of_last_messages(at: Make) -> None:
    """By a reload: with the next message fewer are kept, or more from then on."""

    def counting(count: int) -> str:
        return settings(**{"news": {"retroactive_message_count": count}})

    desk = at(counting(3), q=False)
    desk.exchange("news")
    desk.publish(*"1234", exchange="news")
    for count, more, expected in ((2, "5", "45"), (4, "67", "4567"), (1, "8", "8")):
        desk.reload(counting(count))
        desk.publish(*more, exchange="news")
        desk.declare(f"late{count}")
        desk.bind(f"late{count}", "news")
        assert desk.all(f"late{count}") == expected


# -- diverts --------------------------------------------------------------------------------------------------------


def divert(name: str, address: str, *targets: str, exclusive: bool = False) -> str:
    """A divert as TOML."""
    return (
        f'[[divert]]\nname = "{name}"\naddress = "{address}"\n'
        f'forwarding-address = "{",".join(targets)}"\nexclusive = {str(exclusive).lower()}\n'
    )


@pytest.mark.parametrize("is_exclusive", [False, True])
def test_diverts(at: Make, is_exclusive: bool) -> None:
    """Copies that tell where they come from; an exclusive one takes the message away."""
    desk = at(divert("d", "q", "copies", "amq.fanout", exclusive=is_exclusive))
    desk.declare("copies")
    desk.declare("bound")
    desk.bind("bound", "amq.fanout")
    assert desk.publish("A", mandatory=True) == ["ack"]
    assert desk.all() == ("" if is_exclusive else "A")
    copy = desk.must_get("copies")
    assert (copy.body, copy.headers["_AMQ_ORIG_ADDRESS"]) == ("A", "q")
    assert desk.all("bound") == "A"


def test_exclusive_diverts_come_first(at: Make) -> None:
    """The others are skipped."""
    desk = at(divert("one", "q", "a") + divert("two", "q", "b", exclusive=True))
    for queue in "ab":
        desk.declare(queue)
    desk.publish("A")
    assert (desk.all(), desk.all("a"), desk.all("b")) == ("", "", "A")


def test_a_diverted_copy_expires_by_the_rules_of_its_first_address(at: Make) -> None:
    """Once they gave it a time, those of the address that it is forwarded to give it no other."""
    rules = settings(q={"max_expiry_delay": 500}, copies={"min_expiry_delay": 60_000})
    desk = at(rules + divert("d", "q", "copies"))
    desk.declare("copies")
    desk.publish("A", expiration="10000")
    desk.advance_ms(499)
    assert desk.counts("copies")[0] == 1
    desk.advance_ms(1)
    assert desk.counts("copies")[0] == 0


def test_diverts_of_an_exchange_and_in_a_circle(at: Make) -> None:
    """A circle ends, whatever the configuration says; nothing is lost from the queues on the way."""
    desk = at(divert("there", "a", "b") + divert("back", "b", "a") + divert("x", "amq.topic", "a"))
    for queue in "ab":
        desk.declare(queue)
    desk.publish("A", exchange="amq.topic", key="any.key")
    assert 1 <= desk.counts("a")[0] <= 16
    assert 1 <= desk.counts("b")[0] <= 16


def test_diverts_follow_a_reload(at: Make) -> None:
    """One that vanished goes only where config-delete-diverts says so, as in Artemis; new ones work at once."""
    desk = at(divert("d", "q", "copies"))
    desk.declare("copies")
    desk.reload("")
    desk.publish("A")
    desk.reload(settings(**{"#": {"config_delete_diverts": "FORCE"}}))
    desk.publish("B")
    assert (desk.all(), desk.all("copies")) == ("AB", "A")
    desk.reload(divert("e", "q", "copies"))
    desk.publish("C")
    assert desk.all("copies") == "C"


# -- addresses ------------------------------------------------------------------------------------------------------


def test_queues_of_an_address(at: Make) -> None:
    """`x-address`: settings by it; the default exchange reaches them by it, one after the other."""
    desk = at(settings(**{"A": {"default_ring_size": 2}}), q=False)
    for queue in ("one", "two"):
        desk.declare(queue, x_address="A")
    desk.publish(*"1234", key="A")
    assert (desk.all("one"), desk.all("two")) == ("13", "24")
    desk.publish(*"567", key="one")
    assert desk.all("one") == "67"
    desk.declare("A")
    desk.publish("8", key="A")
    assert (desk.all("A"), desk.all("one"), desk.all("two")) == ("8", "", "")


def test_auto_created_queues(at: Make) -> None:
    """Only where the operator says so: by publishing to the default exchange, or by consuming."""
    desk = at(settings(**{"auto.#": {"auto_create_queues": True}}), q=False)
    assert desk.publish("A", key="auto.a", mandatory=True) == ["ack"]
    assert desk.all("auto.a") == "A"
    desk.consume("auto.b")
    desk.publish("B", key="auto.b")
    assert [got.body for got in desk.taken()] == ["B"]
    assert desk.publish("C", key="other", mandatory=True) == ["returned"]
    with pytest.raises(Refused) as refused:
        desk.get("other")
    assert refused.value.code == 404
    with pytest.raises(Refused):
        desk.declare("auto.c", passive=True)


@pytest.mark.parametrize(
    "entry, is_gone",
    [
        ({}, True),
        ({"auto_delete_queues": False}, False),
        ({"auto_delete_queues_delay": 10_000}, False),
    ],
    ids=["gone", "kept", "later"],
)
def test_auto_created_queues_go_when_unused(at: Make, entry: dict[str, Any], is_gone: bool) -> None:
    """After two scans, once they were used and are empty."""
    desk = at(
        settings(broker={"address_queue_scan_period": 100}, **{"auto.#": {"auto_create_queues": True, **entry}}),
        q=False,
    )
    desk.publish("A", key="auto.a")
    desk.publish("B", key="auto.never")
    desk.consume("auto.a", no_ack=True)
    desk.advance_ms(500)
    assert desk.exists("auto.a")  # has a consumer
    desk.cancel()
    desk.advance_ms(500)
    assert desk.exists("auto.a") is not is_gone
    assert desk.exists("auto.never")  # never used, and not empty


def test_an_auto_created_queue_whose_consumer_got_nothing_was_used(at: Make) -> None:
    """`auto-delete-queues-delay` begins when the last consumer leaves (address-settings page 3.5)."""
    desk = at(settings(broker={"address_queue_scan_period": 100}, **{"auto.#": {"auto_create_queues": True}}), q=False)
    desk.consume("auto.a", no_ack=True)
    desk.cancel()
    desk.advance_ms(500)
    assert not desk.exists("auto.a")


@pytest.mark.parametrize(
    "entry, is_gone",
    [
        ({"auto_delete_created_queues": True}, True),
        ({"auto_delete_created_queues": True, "auto_delete_queues_delay": 10_000}, False),
        ({"auto_delete_queues": True}, False),
    ],
    ids=["gone", "later", "for auto-created ones alone"],
)
def test_queues_of_clients_go_when_unused_where_settings_say_so(at: Make, entry: dict[str, Any], is_gone: bool) -> None:
    """`auto-delete-created-queues` (address-settings page 3.5): used before, empty and without consumers."""
    desk = at(settings(broker={"address_queue_scan_period": 100}, **{"shop.#": entry}), q=False)
    for name in ("shop.a", "shop.never", "shop.full", "other"):
        desk.declare(name)
    desk.publish("A", key="shop.full")
    for name in ("shop.a", "other"):
        desk.publish("A", key=name)
        desk.consume(name, tag=name, no_ack=True)
    desk.advance_ms(500)
    assert desk.exists("shop.a")  # has a consumer
    for name in ("shop.a", "other"):
        desk.cancel(name)
    desk.advance_ms(500)
    assert desk.exists("shop.a") is not is_gone
    assert all(desk.exists(name) for name in ("shop.never", "shop.full", "other"))
