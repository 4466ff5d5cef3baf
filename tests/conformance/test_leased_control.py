"""Leased queues, in virtual time: acknowledging what one does not hold. Source: queues page A.6, G.A."""

from __future__ import annotations

import json
from types import MappingProxyType

import pytest
from desk import GETS, C, Refused
from leased_desk import BARRIER, DLX, SYNC, LeasedDesk, ask, numbered, one

from leveret.engine import NATIVE, Envelope, Field, User, encode_header, scan_properties
from leveret.engine.errors import AccessRefused, PermissionRefused
from leveret.engine.leases.control import DISCARD_SLICE, discarding
from leveret.engine.users.permissions import Grant, Permissions, TopicPermission
from leveret.operator.command_error import CommandError


def test_a63(desk: LeasedDesk) -> None:
    """Queues page, row A63: a message that another client holds is gone, and its place in the backlog is free."""
    desk.queue(x_max_backlog_per_consumer=1)
    holder = desk.other().subscribe()
    desk.publish("a", "b")
    got = one(holder)
    answer = ask(desk, queue="q", bookmark=got.headers["x-bookmark"])
    assert answer == {"status": "success", "matches": 1, "topic_matches": 1, "records_deleted": 1}
    assert holder.bodies() == "b"
    holder.ack(got)
    assert desk.counts() == (0, 1, 0)
    assert ask(desk, queue="q", bookmark=got.headers["x-bookmark"])["matches"] == 0


def test_a65(desk: LeasedDesk) -> None:
    """Queues page, row A65: by filter, with dead letters."""
    desk.queue(**DLX)
    desk.publish('{"id": 7, "n": 1}', '{"id": 8}', '{"id": 7, "n": 2}')
    got = desk.must_get()
    answer = ask(desk, queue="q", filter="/id = 7", options="expire")
    assert answer["records_deleted"] == 2 and desk.reasons() == ["forced_expire"] * 2
    desk.ack(got)
    assert desk.all() == '{"id": 8}'


def test_a_barrier_behind_what_is_discarded(desk: LeasedDesk) -> None:
    """It is first then, and goes to those who subscribe (queues page A.9)."""
    desk.queue(**BARRIER)
    desk.subscribe(x_max_backlog=0)
    desk.publish("a", SYNC)
    assert desk.bodies() == ""
    assert desk.command("discard", queue="q", filter="/sync IS NULL")["deleted"] == 1
    assert desk.bodies() == SYNC


def test_a66_and_other_bad_requests(desk: LeasedDesk) -> None:
    """Queues page, row A66: nothing is removed."""
    desk.queue()
    desk.publish("a")
    for headers in (
        {"queue": "q", "bookmark": "1|1|", "filter": "1 = 1"},
        {"queue": "q"},
        {"bookmark": "1|1|"},
        {"queue": "nowhere", "bookmark": "1|1|"},
        {"queue": "q", "filter": "/a = "},
        {"queue": "q", "filter": "1 = 1", "options": "keep"},
        {"queue": "q", "bookmark": "no bookmark"},
        {"queue": "q", "bookmark": "1|0|"},
        {"queue": "q", "bookmark": "2|1|"},
        {"queue": "q", "bookmark": "1|" + "9" * 5000 + "|"},
        {"queue": "q", "bookmark": "1|1|,"},
        {"queue": "q", "filter": "1 = 1", "x-client": "somebody else"},
    ):
        assert ask(desk, **headers)["status"] == "failure"
    assert ask(desk, key="sow", queue="q", filter="1 = 1")["status"] == "failure"
    assert desk.counts() == (1, 0, 0)


def test_a86(desk: LeasedDesk) -> None:
    """Queues page, row A86: strict; the holder, and anybody for what is ready. What is leased stays."""
    desk.queue(x_leasing="strict")
    desk.publish("a", "b", "c")
    got = desk.must_get()
    second = desk.must_get()
    bookmark = second.headers["x-bookmark"]
    assert ask(desk, queue="q", bookmark=bookmark)["matches"] == 0
    assert ask(desk, queue="q", filter="1 = 1")["records_deleted"] == 1
    desk.ack(got)
    desk.ack(second)
    assert desk.counts() == (0, 0, 0) and desk.counter("acknowledged") == 3


def test_what_one_holds_oneself(desk: LeasedDesk) -> None:
    """Strict: by the name of the own connection; what others hold stays theirs (queues page A.6)."""
    desk.queue(x_leasing="strict", **DLX)
    desk.publish("a", "b", "c", "d")
    mine = [desk.must_get(), desk.must_get(), desk.must_get()]
    name, other = next(iter(desk.vhost.context.broker.connections)).name, desk.other()
    other.must_get()
    assert ask(other, queue="q", filter="1 = 1", x_client=name)["status"] == "failure"
    first = ask(desk, queue="q", bookmark=mine[0].headers["x-bookmark"], x_client=name)
    assert (first["matches"], first["records_deleted"]) == (1, 1)
    assert ask(desk, queue="q", bookmark=mine[1].headers["x-bookmark"], options="cancel", x_client=name)["matches"] == 1
    again = desk.must_get()
    assert again.body == "b" and again.headers["x-cancel-count"] == 1
    assert ask(desk, queue="q", filter="1 = 1", options="expire", x_client=name)["records_deleted"] == 2
    assert desk.reasons() == ["forced_expire"] * 2 and desk.counts() == (0, 1, 0)
    for got in mine:
        desk.ack(got)
    assert desk.counts() == (0, 1, 0)


def test_cancels_of_operators(desk: LeasedDesk) -> None:
    """A lease is broken, and that counts as a cancel (queues page A.6)."""
    desk.queue(x_cancel_limit=2, **DLX)
    desk.publish("a", "b")
    got = desk.must_get()
    answer = ask(desk, queue="q", bookmark=got.headers["x-bookmark"], options="cancel")
    assert (answer["matches"], answer["records_deleted"]) == (1, 0)
    again = desk.must_get()
    assert again.body == "a" and again.headers["x-cancel-count"] == 1
    ask(desk, queue="q", filter="1 = 1", options="cancel")
    assert desk.reasons() == ["max_cancels"]
    desk.ack(got)
    desk.ack(again)
    assert desk.all() == "b"


def test_only_what_is_leased_is_cancelled(desk: LeasedDesk) -> None:
    """By bookmark, too: a message that is ready stays as it is (queues page A.6)."""
    desk.queue()
    desk.publish("a")
    got = desk.must_get()
    desk.nack(got)
    answer = ask(desk, queue="q", bookmark=got.headers["x-bookmark"], options="cancel")
    assert (answer["matches"], answer["records_deleted"]) == (0, 0)
    assert desk.must_get().headers.get("x-cancel-count") == 1  # the nack's


@pytest.mark.parametrize("option, deleted", [("", 2), ("expire", 2), ("cancel", 0)])
def test_a_bookmark_that_is_given_twice_counts_once(desk: LeasedDesk, option: str, deleted: int) -> None:
    """Of what is leased and of what is ready."""
    desk.queue(x_cancel_limit=2, **DLX)
    desk.publish("a", "b")
    leased, ready = desk.must_get(), desk.must_get()
    desk.nack(ready)
    bookmarks = ",".join(one.headers["x-bookmark"] for one in (leased, ready, leased, ready))
    answer = ask(desk, queue="q", bookmark=bookmarks, options=option)
    assert (answer["matches"], answer["records_deleted"]) == (deleted or 1, deleted)
    assert desk.counts()[:2] == ((0, 0) if deleted else (2, 0)), "a cancel makes it ready"
    assert desk.reasons() == ["forced_expire"] * 2 * (option == "expire")


def test_the_exchange_of_requests(desk: LeasedDesk) -> None:
    """It is there from the first leased queue on, for all; it cannot be deleted (queues page A.6)."""
    assert "amps.control" not in desk.vhost.exchanges
    desk.queue()
    assert desk.vhost.exchanges["amps.control"].type == "direct"
    with pytest.raises(Refused, match="403"):
        desk._call(GETS, C.Exchange.Delete, exchange="amps.control")


def test_many_are_discarded_in_steps(desk: LeasedDesk) -> None:
    """More than a step looks at; those that come meanwhile stay (queues page A.6)."""
    desk.queue()
    for number in range(1300):
        desk.publish(numbered(number))
    assert ask(desk, queue="q", filter="/n % 2 = 0")["records_deleted"] == 650
    assert desk.counts()[0] == 650


@pytest.mark.parametrize("option", ["", "expire"])
def test_a_message_that_comes_between_the_steps_of_a_request_stays(desk: LeasedDesk, option: str) -> None:
    """It takes what is there when it begins (queues page A.6)."""
    desk.queue()
    desk.publish(*"a" * (DISCARD_SLICE + 1))
    steps = discarding(desk.vhost.queues["q"], None, "1 = 1", option)
    next(steps)
    desk.publish("late")
    with pytest.raises(StopIteration) as ended:
        while True:
            next(steps)
    assert (ended.value.value.deleted, desk.all()) == (DISCARD_SLICE + 1, "late")


def test_commands_of_operators(desk: LeasedDesk) -> None:
    """Who has what; and the same request as to amps.control (queues page A.6)."""
    desk.queue(x_lease_period=500, **DLX)
    desk.publish("a", "b")
    got = desk.must_get()
    (lease,) = desk.command("leases", queue="q")
    assert (lease["bookmark"], lease["ends_in_ms"], lease["deliveries"]) == (got.headers["x-bookmark"], 500, 1)
    done = desk.command("discard", queue="q", bookmark=lease["bookmark"], option="expire")
    assert (done["matches"], done["deleted"]) == (1, 1) and desk.reasons() == ["forced_expire"]
    assert desk.command("discard", queue="q", filter="1 = 1")["deleted"] == 1
    for name, arguments in (
        ("discard", {"queue": "q"}),
        ("discard", {"queue": "q", "filter": "/a ="}),
        ("discard", {"queue": "dead", "option": "expire"}),  # of other queues it is a job: tests/console/test_moving.py
        ("leases", {"queue": "dead"}),
    ):
        with pytest.raises(CommandError):
            desk.command(name, **arguments)


def who_may(*, configure: str, write: str = ".*") -> User:
    """A user."""
    permissions = Permissions(Grant(configure, write, ".*"), user="u", vhost="/")
    return User("u", permissions=MappingProxyType({"/": permissions}))


@pytest.mark.parametrize(
    "read, write, arguments, refused",
    [
        ("^q$", "^$", {}, None),
        ("^q$", "^$", {"x_underlying_topic": "Orders"}, ("read", "Orders")),
        ("^Orders$", "^$", {"x_underlying_topic": "Orders"}, None),
        ("^Orders$", "^$", {"x_underlying_topic": "Orders/eu"}, ("read", "Orders/eu")),
        ("^Orders", "^$", {"x_underlying_topic": "Orders/eu"}, None),
        ("^O$", "^$", {"x_underlying_topic": "O", "x_default_publish_target": "O"}, ("write", "O")),
        ("^O$", "^O$", {"x_underlying_topic": "O", "x_default_publish_target": "O"}, None),
        ("^O", "^O$", {"x_underlying_topic": "^O", "x_default_publish_target": "O"}, ("read", "^O")),
        (".*", "^O$", {"x_underlying_topic": "^O", "x_default_publish_target": "O"}, None),
    ],
)
def test_what_a_queue_captures_needs_the_permission_to_read_it(
    desk: LeasedDesk, read: str, write: str, arguments: dict[str, str], refused: tuple[str, str] | None
) -> None:
    """As a binding would; a pattern needs it for everything, and a publish target the permission to write."""
    permissions = Permissions(Grant("^q$", write, read), user="u", vhost="/")
    user = User("u", permissions=MappingProxyType({"/": permissions}))
    broker = desk.pair.broker
    broker.connections.replace_user(user)
    client = broker.connections.open("/", user, name="c", flush=lambda: None)
    table = {key.replace("_", "-"): Field("S", value.encode()) for key, value in arguments.items()}
    table["x-queue-type"] = Field("S", b"amps")
    if refused is None:
        client.vhost.queues.declare("q", client=client, durable=True, arguments=table)
        assert "q" in client.vhost.queues
        return
    with pytest.raises(PermissionRefused) as found:
        client.vhost.queues.declare("q", client=client, durable=True, arguments=table)
    assert tuple(vars(found.value)[fact] for fact in ("action", "name")) == refused
    assert "q" not in client.vhost.queues


def test_keys_of_a_topic_need_topic_permissions(desk: LeasedDesk) -> None:
    """A queue over a whole exchange takes all keys, as a binding with # does."""
    topics = {"Orders": TopicPermission(read="^eu$")}
    permissions = Permissions(Grant(".*", ".*", ".*", MappingProxyType(topics)), user="u", vhost="/")
    user = User("u", permissions=MappingProxyType({"/": permissions}))
    desk.pair.broker.connections.replace_user(user)
    client = desk.pair.broker.connections.open("/", user, name="c", flush=lambda: None)
    for topic, is_refused in ((b"Orders", True), (b"Orders/us", True), (b"^Orders$", True), (b"Orders/eu", False)):
        table = {"x-queue-type": Field("S", b"amps"), "x-underlying-topic": Field("S", topic)}
        table["x-default-publish-target"] = Field("S", b"Orders" if topic.startswith(b"^") else topic)
        if is_refused:
            with pytest.raises(AccessRefused):
                client.vhost.queues.declare("q", client=client, durable=True, arguments=table)
        else:
            client.vhost.queues.declare("q", client=client, durable=True, arguments=table)


def test_requests_need_the_permission_to_configure(desk: LeasedDesk) -> None:
    """Who may write to amps.control, and not configure the queue, is refused; and the other way round (A.6)."""
    desk.queue()
    desk.publish("a")
    for configure, status in (
        ("^$", "failure"),
        ("^other$", "failure"),
        ("^q$", "success"),
    ):
        broker = desk.pair.broker
        user = who_may(configure=configure)
        broker.connections.replace_user(user)
        client = broker.connections.open("/", user, name="c", flush=lambda: None)
        table = {"queue": Field("S", b"q"), "filter": Field("S", b"1 = 1")}
        header = encode_header(0, {"headers": table, "reply_to": b"answers"})
        desk.declare("answers", x_queue_type="classic")
        route = client.vhost.router.route("amps.control", "sow_delete", user)
        envelope = Envelope("amps.control", "sow_delete", scan_properties(header[12:]))
        client.open_session().publish(route, envelope, [NATIVE.join(header, b"")], mandatory=False)
        desk.pair.end_turn()
        answer = json.loads(desk.must_get("answers").body)
        assert answer["status"] == status and desk.counts()[0] == (status == "failure")
    stranger = who_may(configure="^q$", write="^q$")
    with pytest.raises(PermissionRefused):
        desk.vhost.router.route("amps.control", "sow_delete", stranger)


@pytest.mark.parametrize("option", ["", "expire"])
def test_a_filter_takes_what_is_active(desk: LeasedDesk, option: str) -> None:
    """And not what becomes active by it (queues page A.6)."""
    desk.queue(x_target_depth=1000)
    desk.publish(*map(numbered, range(1203)))
    desk.must_get()
    done = desk.command("discard", queue="q", filter="/n >= 0", option=option)
    assert (done["matches"], done["deleted"]) == (1000, 1000)
    assert desk.counts() == (203, 0, 0) and desk.must_get().body == numbered(1000)
