"""`get`, `publish`, `where` by `leveret ctl` and HTTP: what becomes of messages, what is shown, what is refused."""

from typing import Any

import pytest

from leveret.engine import Broker, Grant, ManualClock, Permissions, User, Users
from leveret.operator.command_error import CommandError
from leveret.operator.control import ControlTable

LETTERS = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters"}


class Desk:
    """A broker with the queues `q` and `letters`, which gets what is rejected there; and its control table."""

    def __init__(self) -> None:
        self.broker = Broker(ManualClock(), Users([User("guest", tags=("administrator",)), User("other")]))
        self.table = ControlTable()
        self.table.operator.attach(self.broker)
        self("declare-queue", queue="letters")
        self("declare-queue", queue="q", arguments=LETTERS)

    def __call__(self, command: str, **arguments: Any) -> Any:
        """Arguments have underscores for dashes."""
        answer = self.table.run(command, {name.replace("_", "-"): value for name, value in arguments.items()})
        while self.broker.end_turn():
            pass
        return answer

    def publish(self, payload: str = "x", key: str = "q", **more: Any) -> bool:
        answer = self("publish", exchange="", routing_key=key, payload=payload, **more)
        return bool(answer["routed"])

    def ready(self, *names: str) -> list[int]:
        queues = self.broker.virtual_hosts["/"].queues
        return [queues[name].ready_count for name in names]


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.mark.parametrize(
    "ackmode, left, letters, next_one",
    [
        ("ack_requeue_true", 2, 0, ("a", True)),
        ("reject_requeue_true", 2, 0, ("a", True)),
        ("ack_requeue_false", 1, 0, ("b", False)),
        ("reject_requeue_false", 1, 1, ("b", False)),
    ],
)
def test_what_becomes_of_a_message(
    desk: Desk, ackmode: str, left: int, letters: int, next_one: tuple[str, bool]
) -> None:
    """It is where it was, gone, or a dead letter."""
    desk.publish("a")
    desk.publish("b")
    (got,) = desk("get", queue="q", ackmode=ackmode)
    assert (got["payload"], got["redelivered"], got["message_count"]) == ("a", False, 1)
    assert desk.ready("q", "letters") == [left, letters]
    (got,) = desk("get", queue="q")
    assert (got["payload"], got["redelivered"]) == next_one


def test_only_the_shown_part_of_a_body_is_cut(desk: Desk) -> None:
    """Its length is told; what is no text is base64."""
    desk.publish("abcdef")
    desk.publish("/w==", payload_encoding="base64")
    first, second = desk("get", queue="q", count=5, truncate=3)
    assert (first["payload"], first["payload_bytes"], first["payload_encoding"]) == ("abc", 6, "string")
    assert (second["payload"], second["payload_bytes"], second["payload_encoding"]) == ("/w==", 1, "base64")
    (empty, _) = desk("get", queue="q", count=2, truncate=0)
    assert (empty["payload"], empty["payload_bytes"]) == ("", 6)


def test_a_publish_tells_whether_a_queue_got_it(desk: Desk) -> None:
    """Nobody is told otherwise where there is none."""
    assert desk.publish() and not desk.publish(key="nowhere")
    assert desk.ready("q") == [1]


def test_a_full_queue_takes_no_publish(desk: Desk) -> None:
    """As RabbitMQ says it."""
    desk("declare-queue", queue="full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    assert desk.publish(key="full")
    with pytest.raises(CommandError, match="Unable to publish message. Check queue limits."):
        desk.publish(key="full")
    assert desk.ready("full") == [1]


def test_a_blocked_broker_takes_no_publish(desk: Desk) -> None:
    """An operator's neither: the reason is named."""
    desk.broker.flow.raise_alarm("low on disk")
    with pytest.raises(CommandError, match="publishers are blocked: low on disk"):
        desk.publish()
    assert desk.ready("q") == [0]


@pytest.mark.parametrize("tags, is_taken", [((), False), (("administrator",), False), (("impersonator",), True)])
def test_who_may_publish_in_the_name_of_others(desk: Desk, tags: tuple[str, ...], *, is_taken: bool) -> None:
    """As over AMQP: impersonators; each user in its own name."""
    desk.broker.connections.replace_user(User("other", tags=tags))
    assert desk.publish(as_user="other", properties={"user_id": "other"})
    if is_taken:
        assert desk.publish(as_user="other", properties={"user_id": "guest"})
    else:
        with pytest.raises(CommandError, match="user_id property set to 'guest' but authenticated user was 'other'"):
            desk.publish(as_user="other", properties={"user_id": "guest"})


@pytest.mark.parametrize(
    "given, why",
    [
        ({"properties": {"expiration": "soon"}}, "expiration"),
        ({"properties": {"priority": 256}}, "priority: expected a number from 0 to 255"),
        ({"properties": {"priority": True}}, "priority: expected a number from 0 to 255"),
        ({"properties": {"message_id": "é" * 128}}, "message_id: expected text of at most 255 octets"),
        ({"key": "é" * 128}, "longer than 255 octets"),
        ({"payload": "?", "payload_encoding": "base64"}, "payload: is not base64"),
    ],
)
def test_what_no_client_could_send(desk: Desk, given: dict[str, Any], why: str) -> None:
    """Refused with the reason, and nothing is published."""
    with pytest.raises(CommandError, match=why):
        desk.publish(**given)
    assert desk.ready("q") == [0]


def places(desk: Desk, id_: str, **more: Any) -> list[tuple[str, str]]:
    return [(row["vhost"], row["queue"]) for row in desk("where", message_id=id_, **more)]


def test_where_a_message_is(desk: Desk) -> None:
    """By its id; where no message has this one, by the id of what it answers."""
    desk.publish(properties={"message_id": "7"})
    desk.publish(key="letters", properties={"correlation_id": "7"})
    desk.publish(key="letters", properties={"correlation_id": "8"})
    assert places(desk, "7") == [("/", "q")]
    assert places(desk, "8") == [("/", "letters")]
    assert places(desk, "9") == []
    report = desk("where", message_id="7", report=True)
    assert (report["looked_at"], report["queues"], report["of_queues"], report["stopped"]) == (3, 2, 2, "")


def test_where_shows_a_user_what_it_may_read(desk: Desk) -> None:
    """In the virtual host that is asked for, or in all."""
    desk("vhosts", action="add", name="v")
    desk("declare-queue", queue="q", vhost="v")
    for vhost in ("/", "v"):
        for key in ("q", "letters") if vhost == "/" else ("q",):
            desk.publish(key=key, vhost=vhost, properties={"message_id": "7"})
    every = {("/", "q"), ("/", "letters"), ("v", "q")}
    assert set(places(desk, "7")) == every and places(desk, "7", vhost="v") == [("v", "q")]
    permissions = {vhost: Permissions(Grant(read="^q$"), user="other", vhost=vhost) for vhost in ("/", "v")}
    desk.broker.connections.replace_user(User("other", permissions=permissions))
    assert places(desk, "7", as_user="other") == [("/", "q"), ("v", "q")]
    assert places(desk, "7", as_user="other", vhost="/") == [("/", "q")]
