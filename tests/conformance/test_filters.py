"""Consumers with filters: x-filter and x-selector on every kind of queue. Source: queues page A.4, B.2, F.6, G.A, G.B.

The expressions themselves, row by row: tests/expressions. What it costs: tests/engine/test_filter_costs.py.
"""

import pytest
from desk import Desk, Got, Make, Refused


def told(deliveries: list[Got]) -> list[tuple[str, str]]:
    """Who got what."""
    return [(got.consumer, got.body) for got in deliveries]


def bodies(deliveries: list[Got]) -> str:
    """What came, joined."""
    return "".join(got.body for got in deliveries)


def of_kind(desk: Desk, *kinds: str) -> None:
    """Messages whose header and body say which kind they are, numbered by their place."""
    for number, kind in enumerate(kinds):
        desk.publish(f'{{"t": "{kind}", "n": {number}}}', headers={"t": kind, "n": number})


def numbers(deliveries: list[Got]) -> list[int]:
    """The numbers of what came."""
    return [got.headers["n"] for got in deliveries]


# -- the arguments ----------------------------------------------------------------------------------------------------


def test_a50_a_filter_takes_what_it_says(at: Make) -> None:
    """b, a, a: the consumer gets both a in order, b stays."""
    desk = at()
    desk.consume(x_filter="/t = 'a'")
    of_kind(desk, "b", "a", "a")
    assert numbers(desk.taken()) == [1, 2]
    assert desk.counts() == (1, 2, 0)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"x_filter": "/t = "}, "'x-filter' for queue 'q' in vhost '/': \"column 6: "),
        ({"x_filter": ""}, "'x-filter' for queue 'q' in vhost '/': \"column 1: "),
        ({"x_selector": "/t = 1"}, "'x-selector' for queue 'q' in vhost '/': \"column 1: "),
        ({"x_filter": "UNIX_TIMESTAMP() > 1"}, "column 1: "),
        ({"x_filter": 7}, "'x-filter' for queue 'q' in vhost '/': {unacceptable_type,"),
        ({"x_selector": True}, "'x-selector' for queue 'q' in vhost '/': {unacceptable_type,bool}"),
        ({"x_filter": "a = '" + "x" * 9000 + "'"}, "8192"),
        ({"x_filter": "(" * 100 + "a" + ")" * 100}, "column "),
        ({"x_filter": "a", "x_selector": "a"}, "only one of x-filter and x-selector"),
    ],
    ids=["cut", "empty", "dialect", "volatile", "number", "boolean", "long", "deep", "both"],
)
def test_a51_what_is_no_filter_is_refused(at: Make, arguments: dict[str, object], text: str) -> None:
    """406 on the channel, and the text says where the fault is. Nothing has changed."""
    desk = at()
    desk.publish("x")
    with pytest.raises(Refused) as refused:
        desk.consume(**arguments)
    assert refused.value.code == 406
    assert refused.value.text.startswith("PRECONDITION_FAILED - invalid arg 'x-")
    assert text in refused.value.text
    assert desk.all() == "x"


def test_b03_a_selector_sees_headers_and_properties(at: Make) -> None:
    """JMS' dialect: the body is nothing to it."""
    desk = at()
    desk.consume(x_selector="JMSPriority > 4 AND t LIKE 'a%'")
    desk.publish("1", headers={"t": "abc"}, priority=5)
    desk.publish("2", headers={"t": "abc"}, priority=4)
    desk.publish("3", headers={"t": "xyz"}, priority=9)
    desk.publish("4", headers={"t": "abc"})
    assert bodies(desk.taken()) == "1"
    assert desk.all() == "234"


def test_b05_a_body_that_is_no_json(at: Make) -> None:
    """Paths are NULL, the rest is as it is."""
    desk = at()
    desk.consume(tag="paths", x_filter="/t = 1")
    desk.consume(tag="key", x_filter="ROUTING_KEY() = 'q'")
    desk.publish("{", "", "[]", "x")
    assert told(desk.taken()) == [("key", "{"), ("key", ""), ("key", "[]"), ("key", "x")]


def test_b04_a_pattern_that_would_take_for_ever(at: Make) -> None:
    """Is searched in linear time: the message is not taken, and the broker goes on."""
    desk = at()
    desk.consume(tag="slow", x_filter="/s LIKE '(a+)+$'")
    desk.consume(tag="fast", x_filter="/s LIKE 'b$'")
    desk.publish('{"s": "' + "a" * 40 + 'b"}')
    assert [one.consumer for one in desk.taken()] == ["fast"]


def test_a_filter_knows_whose_it_is(at: Make) -> None:
    """USER() is the consumer's."""
    desk = at()
    desk.consume(x_filter="HEADER('for') = USER()")
    desk.publish("1", headers={"for": "guest"})
    desk.publish("2", headers={"for": "somebody"})
    assert bodies(desk.taken()) == "1"


# -- who gets what ----------------------------------------------------------------------------------------------------


def test_a_consumer_begins_at_the_head(at: Make) -> None:
    """What was there before it came is looked through, the oldest first."""
    desk = at()
    of_kind(desk, *"abcabcab")
    desk.consume(x_filter="/t = 'b'", prefetch=2)
    got = desk.taken()
    assert numbers(got) == [1, 4]
    desk.ack(got[0])
    assert numbers(desk.taken()) == [7]


def test_those_with_one_filter_have_turns(at: Make) -> None:
    """However it is written: round robin, each with its own prefetch."""
    desk = at()
    desk.consume(tag="one", x_filter="/t='a'", prefetch=3)
    desk.consume(tag="two", x_filter="(/t  =  'a')", prefetch=3)
    of_kind(desk, *"ababababab")
    assert [(got.consumer, got.headers["n"]) for got in desk.taken()] == [
        ("one", 0),
        ("two", 2),
        ("one", 4),
        ("two", 6),
        ("one", 8),
    ]


def test_one_without_a_filter_has_turns_with_the_others(at: Make) -> None:
    """It takes all that nobody else had."""
    desk = at()
    desk.consume(tag="all")
    desk.consume(tag="a", x_filter="/t = 'a'")
    of_kind(desk, *"aaba")
    assert [(got.consumer, got.headers["n"]) for got in desk.taken()] == [("all", 0), ("a", 1), ("all", 2), ("a", 3)]


def test_a_backlog_is_dealt_in_the_same_way(at: Make) -> None:
    """To consumers that come to a queue that is full, in order of the queue."""
    desk = at()
    of_kind(desk, *"abcd" * 50)
    desk.consume(tag="b", x_filter="/t = 'b'")
    desk.consume(tag="cd", x_filter="/t IN ('c', 'd')")
    got = desk.taken()
    assert numbers([one for one in got if one.consumer == "b"]) == list(range(1, 200, 4))
    assert numbers([one for one in got if one.consumer == "cd"]) == [n for n in range(200) if n % 4 > 1]
    desk.consume(tag="rest")
    assert numbers(desk.taken()) == list(range(0, 200, 4))
    assert desk.counts() == (0, 200, 0)


def test_a_full_consumer_keeps_nobody_waiting(at: Make) -> None:
    """What it cannot take now is passed over by those that do not take it."""
    desk = at()
    desk.consume(tag="a", x_filter="/t = 'a'", prefetch=1)
    desk.consume(tag="b", x_filter="/t = 'b'")
    of_kind(desk, *"aaabb")
    got = desk.taken()
    assert [(one.consumer, one.headers["n"]) for one in got] == [("a", 0), ("b", 3), ("b", 4)]
    desk.ack(got[0])
    assert numbers(desk.taken()) == [1]


def test_what_comes_back_is_the_oldest_again(at: Make) -> None:
    """A group has looked further already: it looks again, before it goes on."""
    desk = at()
    desk.consume(tag="a", x_filter="/t = 'a'", prefetch=2)
    of_kind(desk, *"baaaa")
    first, second = desk.taken()
    desk.nack(second)
    (again,) = desk.taken()
    assert (again.headers["n"], again.redelivered) == (2, True)
    desk.nack(first)
    assert numbers(desk.taken()) == [1]
    desk.ack(again)
    assert numbers(desk.taken()) == [3]


def test_what_comes_back_may_be_for_another(at: Make) -> None:
    """Of another filter, that had looked past it while it was out."""
    desk = at()
    desk.consume(tag="first", x_filter="/n < 3", prefetch=3)
    desk.consume(tag="second", x_filter="/n >= 1")
    of_kind(desk, *"xxxxx")
    got = desk.taken()
    assert [(one.consumer, one.headers["n"]) for one in got] == [
        ("first", 0),
        ("second", 1),
        ("first", 2),
        ("second", 3),
        ("second", 4),
    ]
    other = desk.other()
    desk.cancel("first")
    desk.reopen_channel()
    assert desk.counts() == (5, 0, 0)
    other.consume(tag="second", x_filter="/n >= 1")
    assert numbers(other.taken()) == [1, 2, 3, 4]
    assert desk.all() == '{"t": "x", "n": 0}'


def test_the_last_filter_goes(at: Make) -> None:
    """What nobody took is for whoever is left; the queue is an ordinary one again."""
    desk = at()
    desk.consume(tag="all", prefetch=2)
    desk.consume(tag="a", x_filter="/t = 'a'", prefetch=1)
    of_kind(desk, *"bbbab")
    assert [(one.consumer, one.headers["n"]) for one in desk.taken()] == [("all", 0), ("all", 1), ("a", 3)]
    desk.cancel("a")
    desk.ack(2)
    assert numbers(desk.taken()) == [2]
    desk.ack(1)
    assert numbers(desk.taken()) == [4]


def test_consumers_of_high_priority_come_first(at: Make) -> None:
    """Of those that take a message and have room."""
    desk = at()
    desk.consume(tag="low", x_filter="/n >= 0")
    desk.consume(tag="high", x_filter="/t = 'a'", x_priority=5, prefetch=2)
    of_kind(desk, *"abaa")
    assert [one.consumer for one in desk.taken()] == ["high", "low", "high", "low"]


def test_a_get_sees_the_head(at: Make) -> None:
    """basic.get takes what is first, whatever consumers take."""
    desk = at()
    desk.consume(x_filter="/t = 'a'", prefetch=1)
    of_kind(desk, *"baca")
    assert numbers(desk.taken()) == [1]
    got = desk.must_get()
    assert got.headers["n"] == 0
    assert desk.must_get().headers["n"] == 2
    assert desk.must_get().headers["n"] == 3
    desk.nack(got)
    desk.purge()
    of_kind(desk, *"a")
    desk.ack(1)
    assert numbers(desk.taken()) == [0]


def test_automatic_acknowledgement(at: Make) -> None:
    """What a consumer takes is gone."""
    desk = at()
    desk.consume(x_filter="/t = 'a'", no_ack=True)
    of_kind(desk, *"ababa")
    assert numbers(desk.taken()) == [0, 2, 4]
    assert desk.counts() == (2, 0, 0)


# -- every kind of queue ----------------------------------------------------------------------------------------------


def test_f09_only_the_last_of_many_matches(at: Make) -> None:
    """No page-in limit starves it."""
    desk = at()
    desk.publish(*["{}"] * 300)
    of_kind(desk, "a")
    desk.consume(x_filter="/t = 'a'")
    assert numbers(desk.taken()) == [0]
    assert desk.counts() == (300, 1, 0)


def test_quorum(at: Make) -> None:
    """With the count of deliveries."""
    desk = at(x_queue_type="quorum")
    desk.consume(x_filter="/t = 'a'", prefetch=1)
    of_kind(desk, *"baa")
    (got,) = desk.taken()
    desk.nack(got)
    (again,) = desk.taken()
    assert (again.headers["n"], again.headers["x-delivery-count"]) == (1, 1)


def test_priorities(at: Make) -> None:
    """The highest level first, in each the oldest; what comes later may stand before what was looked at."""
    desk = at(x_max_priority=3)
    desk.consume(tag="a", x_filter="HEADER('t') = 'a'", prefetch=1)
    for number, (kind, priority) in enumerate([("a", 0), ("b", 3), ("a", 1), ("a", 0), ("a", 3), ("b", 0), ("a", 3)]):
        desk.publish(str(number), headers={"t": kind, "n": number}, priority=priority)
    order = []
    while got := desk.taken():
        order += numbers(got)
        desk.ack(got[-1])
    assert order == [0, 4, 6, 2, 3]
    assert desk.all() == "15"


def test_ring(at: Make) -> None:
    """What a waiting consumer takes never counts; what it does not take does."""
    desk = at(x_ring_size=2)
    desk.consume(x_filter="HEADER('t') = 'a'", prefetch=2)
    for number, kind in enumerate("baabababb"):
        desk.publish(str(number), headers={"t": kind, "n": number})
    assert numbers(desk.taken()) == [1, 2]
    assert desk.counter("replaced") == 5
    desk.ack(2)
    assert numbers(desk.taken()) == []
    assert desk.all() == "78"


def test_a_limit_of_the_length(at: Make) -> None:
    """x-max-length counts what nobody takes."""
    desk = at(x_max_length=1)
    desk.consume(x_filter="HEADER('t') = 'a'")
    for number, kind in enumerate("abab"):
        desk.publish(str(number), headers={"t": kind, "n": number})
    assert numbers(desk.taken()) == [0, 2]
    assert desk.all() == "3"


def test_messages_that_may_not_wait(at: Make) -> None:
    """A time to live of 0: taken at once, or gone."""
    desk = at(x_message_ttl=0)
    desk.consume(x_filter="HEADER('t') = 'a'")
    of_kind(desk, *"abab")
    assert numbers(desk.taken()) == [0, 2]
    assert desk.counter("expired") == 2


def test_what_has_expired_is_not_handed_out(at: Make) -> None:
    """Also behind a message that lives, where it would wait for its turn to go."""
    desk = at(x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    desk.declare("dead")
    desk.consume(x_filter="HEADER('t') = 'a'", prefetch=1)
    desk.publish("0", headers={"t": "a"})
    desk.publish("1", headers={"t": "b"})
    desk.publish("2", headers={"t": "a"}, expiration="1000")
    desk.publish("3", headers={"t": "a"})
    (got,) = desk.taken()
    desk.advance_ms(2000)
    assert desk.counts() == (3, 1, 0)
    desk.ack(got)
    assert bodies(desk.taken()) == "3"
    assert desk.all("dead") == "2"
    assert desk.counts() == (1, 1, 0)


def test_last_values(at: Make) -> None:
    """A newer value of a key that nobody took may be one that somebody takes, and the other way round."""
    desk = at(x_last_value_key="key")
    desk.consume(x_filter="/t = 'a'", prefetch=1)
    for number, (key, kind) in enumerate([("x", "b"), ("y", "a"), ("z", "a"), ("x", "a"), ("z", "b"), ("x", "b")]):
        desk.publish(f'{{"t": "{kind}"}}', headers={"key": key, "n": number})
    (got,) = desk.taken()
    assert got.headers["n"] == 1
    desk.ack(got)
    assert desk.taken() == []
    desk.publish('{"t": "a"}', headers={"key": "x", "n": 6})
    assert numbers(desk.taken()) == [6]
    assert desk.all() == '{"t": "b"}'


def test_non_destructive(at: Make) -> None:
    """Each consumer sees all that it takes; nothing goes."""
    desk = at(x_non_destructive=True)
    of_kind(desk, *"aab")
    desk.consume(tag="a", x_filter="/t = 'a'")
    desk.consume(tag="odd", x_filter="/n % 2 = 1")
    desk.consume(tag="all")
    of_kind(desk, *"aaab")
    got = desk.taken()
    assert numbers([one for one in got if one.consumer == "a"]) == [0, 1, 0, 1, 2]
    assert numbers([one for one in got if one.consumer == "odd"]) == [1, 1, 3]
    assert len([one for one in got if one.consumer == "all"]) == 7
    assert desk.counts()[0] == 7


def test_streams(at: Make) -> None:
    """From where the consumer begins; what it does not take is no credit spent, and offsets stay what they are."""
    desk = at(x_queue_type="stream")
    of_kind(desk, *"abab" * 100)
    desk.consume(tag="b", prefetch=5, x_stream_offset=100, x_filter="/t = 'b'")
    desk.consume(tag="late", prefetch=10, x_stream_offset="next", x_filter="/n = 0")
    desk.consume(tag="all", prefetch=1000, x_stream_offset=390)
    of_kind(desk, *"ab")
    got = desk.taken()
    assert [one.headers["n"] for one in got if one.consumer == "b"] == [101, 103, 105, 107, 109]
    assert [one.headers["x-stream-offset"] for one in got if one.consumer == "late"] == [400]
    assert [one.headers["n"] for one in got if one.consumer == "all"] == [*range(390, 400), 0, 1]
    for one in got:
        if one.consumer == "b":
            desk.ack(one)
    assert numbers(desk.taken()) == [111, 113, 115, 117, 119]


def test_single_active_consumer(at: Make) -> None:
    """Only the active one's filter counts; the next one begins at the head."""
    desk = at(x_single_active_consumer=True)
    desk.consume(tag="a", x_filter="/t = 'a'")
    desk.consume(tag="b", x_filter="/t = 'b'")
    of_kind(desk, *"abab")
    assert [(one.consumer, one.headers["n"]) for one in desk.taken()] == [("a", 0), ("a", 2)]
    desk.cancel("a")
    assert [(one.consumer, one.headers["n"]) for one in desk.taken()] == [("b", 1), ("b", 3)]


def test_message_groups(at: Make) -> None:
    """A group is its consumer's; what that does not take waits for it to leave, and others go on."""
    desk = at()
    desk.consume(tag="small", x_filter="HEADER('n') < 4")
    desk.consume(tag="all", x_filter="HEADER('n') >= 0")
    for number, group in enumerate(["g", "h", "g", "h", "g", "h", None]):
        headers = {"n": number} if group is None else {"n": number, "_AMQ_GROUP_ID": group}
        desk.publish(str(number), headers=headers)
    got = desk.taken()
    assert [(one.consumer, one.headers["n"]) for one in got if one.headers.get("_AMQ_GROUP_ID") == "g"] == [
        ("small", 0),
        ("small", 2),
    ]
    assert [(one.consumer, one.headers["n"]) for one in got if one.headers.get("_AMQ_GROUP_ID") == "h"] == [
        ("all", 1),
        ("all", 3),
        ("all", 5),
    ]
    desk.cancel("small")
    assert numbers(desk.taken()) == [4]


def test_a_prefetch_shared_by_consumers(at: Make) -> None:
    """Those of one channel with one limit: one message after the other."""
    desk = at()
    desk.consume(tag="a", x_filter="/t = 'a'", prefetch=1)
    desk.consume(tag="b", x_filter="/t = 'b'", prefetch=1)
    of_kind(desk, *"abab")
    got = desk.taken()
    assert [(one.consumer, one.headers["n"]) for one in got] == [("a", 0), ("b", 1)]


def test_delayed_messages_come_to_places_that_were_looked_at(at: Make) -> None:
    """They are found when they are due."""
    desk = at()
    desk.consume(x_filter="/t = 'a'", prefetch=1)
    desk.publish('{"t": "a"}', headers={"n": 0, "x-delay": 1000})
    of_kind(desk, *"baa")
    (got,) = desk.taken()
    assert got.headers["n"] == 1
    desk.advance_ms(1500)
    desk.ack(got)
    assert numbers(desk.taken()) == [0]


def test_in_rabbitmqs_profiles_the_arguments_mean_nothing(at: Make) -> None:
    """As with RabbitMQ, which knows none of them."""
    desk = at('[broker]\nprofile = "rabbitmq-3.13"')
    desk.consume(x_filter="/t = ", x_selector="also no expression")
    of_kind(desk, *"ab")
    assert numbers(desk.taken()) == [0, 1]


def test_consumers_are_listed_with_their_filters(at: Make) -> None:
    """As they were written, and in their normal form."""
    desk = at()
    desk.consume(tag="a", x_filter="( /t='a' )")
    desk.consume(tag="s", x_selector="t = 'a'")
    desk.consume(tag="x")
    rows = {row["tag"]: row for row in desk.command("consumers")}
    assert [rows[tag]["filter"] for tag in "asx"] == ["/t = 'a'", "t = 'a'", ""]
