"""Moves, jobs and pauses over AMQP, as `leveret ctl` asks for them."""

from collections.abc import Iterator

import pika
import pytest
from desk import GETS, VirtualDesk
from pamqp import commands as C

from leveret.cli.control_client import ControlFailed, request
from leveret.engine import User
from leveret.operator.command_error import CommandError
from leveret.testing import RunningBroker, start_broker


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    """With queues `a`, of five messages, and `b`."""
    with start_broker(clock="virtual") as running:
        for name in ("a", "b"):
            request(running.url, "declare-queue", {"queue": name, "durable": True})
        with pika.BlockingConnection(pika.URLParameters(running.url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for number in range(5):
                channel.basic_publish("", "a", b"%d" % number)
        yield running


def test_a_job(broker: RunningBroker) -> None:
    """Begun, shown, cancelled; who asks is no user of the broker but its operator."""
    dry = request(broker.url, "move", {"queue": "a", "to-queue": "b", "dry-run": "true", "limit": "3"})
    assert (dry["matched"], dry["targets"]) == (3, [{"to": "queue b", "count": 3}])
    job = request(broker.url, "move", {"queue": "a", "to-queue": "b", "limit": "3", "rate": "1"})
    assert (job["state"], job["by"], job["total"]) == ("running", None, 3)
    broker.clock.advance(seconds=1)
    (row,) = request(broker.url, "jobs", {"action": "list"})
    assert (row["done"], row["id"]) == (2, job["id"])
    assert request(broker.url, "jobs", {"action": "cancel", "id": job["id"]})["state"] == "cancelled"
    assert request(broker.url, "jobs", {"action": "show", "id": job["id"]})["done"] == 2
    with pytest.raises(ControlFailed, match="no job 99"):
        request(broker.url, "jobs", {"action": "show", "id": 99})


def test_paused(broker: RunningBroker) -> None:
    assert request(broker.url, "pause", {"queue": "a"}) == {"queue": "a", "vhost": "/", "paused": True, "ready": 5}
    assert {row["name"]: row["paused"] for row in request(broker.url, "queues", {})} == {"a": True, "b": False}
    request(broker.url, "resume", {"queue": "a"})
    with pytest.raises(ControlFailed, match="no queue 'c'"):
        request(broker.url, "pause", {"queue": "c"})


def test_replay_takes_the_words_of_move(broker: RunningBroker) -> None:
    """to-queue, to-exchange and to-key are another place than where each came from."""
    dry = request(broker.url, "replay", {"queue": "a", "to-queue": "b", "dry-run": "true"})
    assert (dry["matched"], dry["targets"]) == (5, [{"to": "queue b", "count": 5}])
    job = request(broker.url, "replay", {"queue": "a", "to-exchange": "", "to-key": "b", "limit": "2"})
    assert job["to"] == "to exchange (default), key b"
    for words, said in (
        ({"to-key": "b"}, "replay: expected to-queue, or to-exchange"),
        ({"to-queue": "a"}, "replay: to-queue is the queue itself"),
        ({"to-queue": "b", "to": "queue"}, "where each message came from, not another place"),
        ({"to-queue": "b", "strip": "true"}, "where each message came from, not another place"),
        ({"to": "b"}, "to-queue and to-exchange name another place"),
    ):
        with pytest.raises(ControlFailed, match=said):
            request(broker.url, "replay", {"queue": "a", **words})


def test_a_connection_keeps_the_messages_of_its_own_queue() -> None:
    """An operator moves and discards nothing of an exclusive one."""
    desk = VirtualDesk()
    desk.declare()
    desk.peer.call(GETS, C.Queue.Declare, queue="own", exclusive=True)
    desk.publish("m", key="own")
    for name, words in (("move", {"to-queue": "q"}), ("discard", {})):
        with pytest.raises(CommandError, match="'own' is exclusive"):
            desk.command(name, **{"queue": "own", **words})
    assert desk.all("own") == "m"


def test_a_job_is_ended_by_its_user_or_an_administrator() -> None:
    """As users of the console ask; another user is refused."""
    desk = VirtualDesk()
    desk.declare()
    desk.declare("to")
    desk.publish(*"abc")
    for name, tags in (("owner", ("management",)), ("other", ("management",)), ("admin", ("administrator",))):
        desk.pair.broker.users.add(User(name, tags=tags))
    for by in ("owner", "admin"):
        job = desk.command("move", **{"queue": "q", "to-queue": "to", "rate": 1, "as-user": "owner"})["id"]
        with pytest.raises(CommandError, match=f"job {job} is another user's"):
            desk.command("jobs", **{"action": "cancel", "id": job, "as-user": "other"})
        assert desk.command("jobs", action="show", id=job)["state"] == "running"
        assert desk.command("jobs", **{"action": "cancel", "id": job, "as-user": by})["state"] == "cancelled"


@pytest.mark.parametrize("command", ["move", "replay"])
def test_a_dry_run_takes_no_turn_at_a_shared_address(command: str) -> None:
    """What is published next goes where it would have gone; queues that are named have no turn to get back."""
    desk = VirtualDesk()
    desk.declare("from")
    for name in ("one", "two", "three"):
        desk.declare(name, x_address="shared")
    desk.publish(*"abcd", key="from")
    words = {"queue": "from", "to-exchange": "", "to-key": "shared", "dry-run": "true"}
    turns = []
    for body in "123":
        dry = desk.command(command, **words)
        assert (dry["matched"], dry["targets"]) == (4, [{"to": "queue shared", "count": 4}])
        desk.publish(body, key="shared")
        desk.command(command, **{"queue": "from", "to-queue": "two", "dry-run": "true"})
        turns.append([name for name in ("one", "two", "three") if body in desk.all(name)])
    assert turns == [["one"], ["two"], ["three"]]
