"""Moving, replaying and discarding messages as jobs: what is asked, refused, dry-run, done at a rate, cancelled."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from api_client import ApiClient

from leveret.engine import Moving, Unreadable
from leveret.operator.jobs import RUNNING_MAX
from leveret.testing import RunningBroker, start_broker


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """On virtual time: rates wait for the test."""
    with start_broker(management=True, clock="virtual") as running:
        yield running


@pytest.fixture(autouse=True)
def queues(broker: RunningBroker, api: ApiClient) -> None:
    """`orders`, whose dead letters go to `dead`; `other`."""
    for name in ("orders", "dead", "other"):
        api.ask("DELETE", f"queues/%2F/{name}")
    api.ask("PUT", "queues/%2F/dead", {"durable": True})
    api.ask("PUT", "queues/%2F/other", {"durable": True})
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    api.ask("PUT", "queues/%2F/orders", {"durable": True, "arguments": arguments})
    api.ask("POST", "bindings/%2F/e/amq.topic/q/orders", {"routing_key": "order.#"})


def publish(broker: RunningBroker, queue: str, count: int, **headers: Any) -> None:
    """Bodies 0, 1, ..., the number as header n."""
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(count):
            properties = pika.BasicProperties(delivery_mode=2, headers={"n": number, **headers})
            channel.basic_publish("", queue, b'{"number": %d}' % number, properties)


def let_die(broker: RunningBroker, count: int) -> None:
    """So many messages to order.new are rejected."""
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(count):
            channel.basic_publish("amq.topic", f"order.{number % 2}", b"%d" % number)
            method, _, _ = channel.basic_get("orders")
            channel.basic_reject(method.delivery_tag, requeue=False)


def quiet(broker: RunningBroker) -> None:
    """All that is due by now is done."""
    broker.clock.advance(seconds=0)


def ready(broker: RunningBroker, *names: str) -> list[int]:
    """How many each has; what was asked for is done."""
    quiet(broker)
    return [len(broker.queue(name, vhost="/").ready) for name in names]


def started(api: ApiClient, queue: str, what: str, body: dict[str, Any]) -> int:
    """The id of the job."""
    answer = api.ask("POST", f"leveret/queues/%2F/{queue}/{what}", body)
    assert answer.status == 202, answer.body
    return int(answer.json["job"])


def ended(broker: RunningBroker, api: ApiClient, job: int) -> dict[str, Any]:
    """The job, as it ended."""
    quiet(broker)
    found: dict[str, Any] = api.get(f"leveret/jobs/{job}")
    assert found["ended"] is not None, found
    return found


def test_move(broker: RunningBroker, api: ApiClient) -> None:
    """Those that are chosen, and the first so many of them; what is left stays in its order."""
    publish(broker, "orders", 10)
    found = ended(broker, api, started(api, "orders", "move", {"to": {"queue": "other"}, "filter": "/number >= 4"}))
    assert (found["state"], found["done"], found["total"], found["looked_at"]) == ("done", 6, 10, 10)
    assert (found["by"], found["command"], found["to"], found["queue"]) == ("guest", "move", "to queue other", "orders")
    assert ready(broker, "orders", "other") == [4, 6]
    to = {"exchange": "amq.topic", "routing_key": "order.again"}
    found = ended(broker, api, started(api, "other", "move", {"to": to, "count": 2}))
    assert (found["done"], found["total"], ready(broker, "orders", "other")) == (2, 2, [6, 4])
    seen = api.ask("POST", "leveret/queues/%2F/orders/browse", {}).json["items"]
    assert [one["payload"] for one in seen][-2:] == ['{"number": 4}', '{"number": 5}']
    assert (seen[-1]["exchange"], seen[-1]["routing_key"]) == ("amq.topic", "order.again")


@pytest.mark.parametrize(
    "choice, done",
    [
        ({"header": {"n": 3}}, 1),
        ({"header": {"n": "3", "tenant": "acme"}}, 1),
        ({"header": {"m": 3}}, 0),
        ({"text": '": 4'}, 1),
        ({"routing_key": "orders"}, 5),
        ({"routing_key": "order"}, 0),
        ({"positions": [2**61, 2**62]}, 0),
        ({"cause": "rejected"}, 0),
        ({"limit": 2, "filter": "n > 0"}, 2),
    ],
)
def test_what_is_chosen(broker: RunningBroker, api: ApiClient, choice: dict[str, Any], done: int) -> None:
    """By each word, and by several at once; a dry run finds as many."""
    publish(broker, "orders", 5, tenant="acme")
    dry = api.ask("POST", "leveret/queues/%2F/orders/discard", {**choice, "dry": True})
    assert (dry.status, dry.json["matched"], dry.json["is_complete"]) == (200, done, True)
    assert ended(broker, api, started(api, "orders", "discard", choice))["done"] == done
    assert ready(broker, "orders") == [5 - done]


def test_replay_at_a_rate(broker: RunningBroker, api: ApiClient) -> None:
    """Ten a second: the first at once, the last of 37 after 3.6 s; then it is done."""
    let_die(broker, 40)
    body = {"limit": 37, "rate": 10, "cause": "rejected", "origin": "orders"}
    dry = api.ask("POST", "leveret/queues/%2F/dead/replay", {**body, "dry": True}).json
    assert (dry["matched"], dry["targets"]) == (
        37,
        [
            {"to": "exchange amq.topic, key order.0", "count": 19},
            {"to": "exchange amq.topic, key order.1", "count": 18},
        ],
    )
    assert len(dry["sample"]) == 10 and ready(broker, "dead", "orders") == [40, 0]
    job = started(api, "dead", "replay", body)
    quiet(broker)
    assert (api.get(f"leveret/jobs/{job}")["state"], ready(broker, "orders")) == ("running", [1])
    broker.clock.advance(seconds=2)
    assert ready(broker, "dead", "orders") == [19, 21]
    broker.clock.advance(seconds=1.6)
    found = ended(broker, api, job)
    assert (found["state"], found["done"], found["rate"], found["per_second"]) == ("done", 37, 10, 10.3)
    assert ready(broker, "dead", "orders") == [3, 37]


def test_cancel(broker: RunningBroker, api: ApiClient) -> None:
    """What went stays where it went; an ended one can be cancelled again, and is as it was."""
    publish(broker, "orders", 10)
    job = started(api, "orders", "move", {"to": {"queue": "other"}, "rate": 1})
    broker.clock.advance(seconds=2)
    assert api.ask("DELETE", f"leveret/jobs/{job}").json["state"] == "cancelled"
    broker.clock.advance(seconds=60)
    assert ready(broker, "orders", "other") == [7, 3]
    assert api.ask("DELETE", f"leveret/jobs/{job}").json["done"] == 3
    assert [row["id"] for row in api.get("leveret/jobs")][0] == job


def test_jobs_of_others(broker: RunningBroker, api: ApiClient) -> None:
    """A user who monitors sees them, and cancels none; another user does not see them."""
    for name, tags in (("watches", "monitoring"), ("works", "management")):
        assert api.ask("PUT", f"users/{name}", {"password": name, "tags": tags}).status in (201, 204)
        assert api.ask("PUT", f"permissions/%2F/{name}", {"configure": "", "write": "", "read": ""}).status == 201
    publish(broker, "orders", 3)
    job = started(api, "orders", "move", {"to": {"queue": "other"}, "rate": 1})
    assert api.get(f"leveret/jobs/{job}", user="watches")["state"] == "running"
    assert api.ask("DELETE", f"leveret/jobs/{job}", user="watches").status == 401
    assert api.ask("GET", f"leveret/jobs/{job}", user="works").status == 401
    assert job not in [row["id"] for row in api.get("leveret/jobs", user="works")]
    assert api.get(f"leveret/jobs/{job}")["state"] == "running"
    assert api.ask("DELETE", f"leveret/jobs/{job}").json["state"] == "cancelled"


def test_no_room(broker: RunningBroker, api: ApiClient) -> None:
    """It waits, says for what, and goes on by itself."""
    api.ask("PUT", "queues/%2F/small", {"arguments": {"x-max-length": 2}})
    publish(broker, "orders", 3)
    job = started(api, "orders", "move", {"to": {"queue": "small"}})
    quiet(broker)
    found = api.get(f"leveret/jobs/{job}")
    assert (found["state"], found["waits_for"], found["done"]) == ("waiting", "room in queue 'small'", 2)
    api.ask("DELETE", "queues/%2F/small/contents")
    broker.clock.advance(seconds=10)
    assert ended(broker, api, job)["state"] == "done"
    api.ask("DELETE", "queues/%2F/small")


def test_one_job_a_queue(broker: RunningBroker, api: ApiClient) -> None:
    """Another one is refused while one is at work; a queue that goes ends its job."""
    publish(broker, "orders", 3)
    job = started(api, "orders", "move", {"to": {"queue": "other"}, "rate": 1})
    answer = api.ask("POST", "leveret/queues/%2F/orders/discard", {})
    assert (answer.status, answer.reason) == (
        400,
        f"job {job} is at work in queue 'orders': wait for it, or cancel it",
    )
    api.ask("DELETE", "queues/%2F/orders")
    broker.clock.advance(seconds=5)
    found = ended(broker, api, job)
    assert (found["state"], found["error"]) == ("failed", "the queue was deleted")


def test_jobs_at_once(broker: RunningBroker, api: ApiClient) -> None:
    """One more is refused until another one ends; meanwhile others are answered."""
    jobs = []
    for name in [f"many.{number}" for number in range(RUNNING_MAX + 1)]:
        api.ask("PUT", f"queues/%2F/{name}", {"durable": True})
        publish(broker, name, 3)
        if len(jobs) < RUNNING_MAX:
            jobs.append(started(api, name, "move", {"to": {"queue": "other"}, "rate": 1}))
    answer = api.ask("POST", f"leveret/queues/%2F/{name}/discard", {})
    assert (answer.status, answer.reason) == (
        400,
        f"{RUNNING_MAX} jobs are under way: wait for one, or cancel one",
    )
    assert api.ask("POST", f"leveret/queues/%2F/{name}/discard", {"dry": True}).status == 200
    api.ask("DELETE", f"leveret/jobs/{jobs[0]}")
    ended(broker, api, started(api, name, "discard", {}))
    broker.clock.advance(seconds=5)
    assert [ended(broker, api, job)["state"] for job in jobs[1:]] == ["done"] * (RUNNING_MAX - 1)


def test_what_cannot_go(broker: RunningBroker, api: ApiClient) -> None:
    """Stays, and is counted by its reason."""
    publish(broker, "orders", 2)
    found = ended(broker, api, started(api, "orders", "replay", {}))
    assert (found["done"], found["kept"]) == (0, [{"reason": "no header says where it came from", "count": 2}])
    api.ask("DELETE", "queues/%2F/orders/contents")
    let_die(broker, 1)
    api.ask("DELETE", "bindings/%2F/e/amq.topic/q/orders/order.%2523")
    dry = api.ask("POST", "leveret/queues/%2F/dead/replay", {"dry": True}).json
    assert dry["kept"] == [{"reason": "no queue takes it: exchange amq.topic, key order.0", "count": 1}]
    assert ended(broker, api, started(api, "dead", "replay", {"to": "queue", "strip": True}))["done"] == 1
    assert api.ask("POST", "leveret/queues/%2F/orders/browse", {}).json["items"][-1]["properties"] == {"headers": {}}


def test_what_may_not_go(broker: RunningBroker, api: ApiClient) -> None:
    """The reason is the text that a publisher would get. It was the name of a class, and its fields."""
    let_die(broker, 1)
    api.ask("PUT", "users/reader", {"password": "reader", "tags": "management"})
    api.ask("PUT", "permissions/%2F/reader", {"configure": "", "write": "", "read": ".*"})
    why = "refused: write access to exchange 'amq.topic' in vhost '/' refused for user 'reader'"
    dry = api.ask("POST", "leveret/queues/%2F/dead/replay", {"dry": True}, user="reader").json
    assert dry["kept"] == [{"reason": why, "count": 1}] and dry["sample"][0]["stays"] == why
    answer = api.ask("POST", "leveret/queues/%2F/dead/replay", {}, user="reader")
    assert ended(broker, api, answer.json["job"])["kept"] == [{"reason": why, "count": 1}]


@pytest.mark.parametrize(
    "fault, error",
    [
        (Unreadable("the journal's file is gone"), "the journal's file is gone"),
        (KeyError(7), "an error of the broker: see its log"),
    ],
)
def test_a_job_that_fails_says_so_in_words(
    broker: RunningBroker, api: ApiClient, monkeypatch: pytest.MonkeyPatch, fault: Exception, error: str
) -> None:
    """And not in those of a traceback, which is in the log."""

    def fail(moving: Moving, wanted: int) -> None:
        raise fault

    monkeypatch.setattr(Moving, "work", fail)
    publish(broker, "orders", 1)
    found = ended(broker, api, started(api, "orders", "discard", {}))
    assert (found["state"], found["error"]) == ("failed", error)


def test_dead_letters(broker: RunningBroker, api: ApiClient) -> None:
    """Queues that others' dead letters go to; what is in them by cause and origin."""
    let_die(broker, 3)
    publish(broker, "dead", 1)
    (row,) = api.get("leveret/dead-letters")["items"]
    assert (row["queue"], row["messages"], row["looked_at"]) == ("dead", 4, 4)
    assert [(one["cause"], one["origin"], one["exchange"], one["count"]) for one in row["causes"]] == [
        ("rejected", "orders", "amq.topic", 3),
        ("", "", "", 1),
    ]
    assert row["oldest"] > 0


def test_a_queue_that_is_not_durable(broker: RunningBroker, api: ApiClient) -> None:
    """A dry run warns that a restart would lose them."""
    api.ask("PUT", "queues/%2F/fleeting", {})
    publish(broker, "orders", 1)
    dry = api.ask("POST", "leveret/queues/%2F/orders/move", {"to": {"queue": "fleeting"}, "dry": True}).json
    assert dry["warnings"] == ["queue 'fleeting' is not durable: a restart loses what is moved there"]
    api.ask("DELETE", "queues/%2F/fleeting")


@pytest.mark.parametrize(
    "what, body, reason",
    [
        ("move", {}, "[{key_missing,to}]"),
        ("move", {"to": {}}, "move: expected to-queue, or to-exchange with or without to-key"),
        ("move", {"to": {"queue": "other", "exchange": "amq.topic"}}, "move: expected to-queue"),
        ("move", {"to": "other"}, "to: expected"),
        ("move", {"to": {"queue": "orders"}}, "move: to-queue is the queue itself"),
        ("move", {"to": {"queue": "nope"}}, "no queue 'nope' in virtual host '/'"),
        ("move", {"to": {"exchange": "nope"}}, "no exchange 'nope' in virtual host '/'"),
        ("move", {"to": {"queue": 5}}, "move: expected to-queue=NAME"),
        ("discard", {"filtr": "a = 1"}, "filtr: unknown"),
        ("discard", {"filter": "a ="}, "discard: filter: column 4"),
        ("discard", {"header": 5}, "discard: header: expected an object"),
        ("discard", {"positions": ["a"]}, "discard: positions: expected a list of at most 10000 numbers"),
        ("discard", {"positions": [1] * 10_001}, "discard: positions: expected a list of at most 10000 numbers"),
        ("discard", {"limit": 0}, "discard: limit and rate are numbers from 1 on"),
        ("discard", {"limit": 1, "count": 1}, "count and limit mean the same: expected one of them"),
        ("discard", {"rate": -1}, "discard: rate must be a number"),
        ("discard", {"dry": "perhaps"}, "discard: dry-run must be true or false"),
        ("discard", {"bookmark": "1|1|"}, "queue 'orders' takes no bookmark, no option"),
        ("replay", {"to": "moon"}, "replay: to must be exchange or queue, not 'moon'"),
    ],
)
def test_what_is_refused(api: ApiClient, what: str, body: dict[str, Any], reason: str) -> None:
    """With a sentence; nothing is begun."""
    before = len(api.get("leveret/jobs"))
    answer = api.ask("POST", f"leveret/queues/%2F/orders/{what}", body)
    assert answer.status == 400 and answer.reason.startswith(reason), answer.body
    assert len(api.get("leveret/jobs")) == before


@pytest.mark.parametrize("kind", ["stream", "amps"])
def test_queues_that_keep_messages(api: ApiClient, kind: str) -> None:
    """Their messages are not moved; why is said."""
    api.ask("PUT", f"queues/%2F/of-{kind}", {"durable": True, "arguments": {"x-queue-type": kind}})
    answer = api.ask("POST", f"leveret/queues/%2F/of-{kind}/move", {"to": {"queue": "other"}})
    assert answer.status == 400 and answer.reason.startswith(f"move: queue 'of-{kind}': a "), answer.body
    assert api.ask("POST", "leveret/queues/%2F/nope/move", {"to": {"queue": "other"}}).status == 404


def test_who_may(broker: RunningBroker, api: ApiClient) -> None:
    """Read what is moved, write where it goes; others' jobs are seen by monitors, ended by administrators."""
    publish(broker, "orders", 3)
    api.ask("PUT", "users/clerk", {"password": "clerk", "tags": "management"})
    api.ask("PUT", "permissions/%2F/clerk", {"configure": "", "write": "^amq.topic$", "read": "^orders$"})
    clerk: dict[str, Any] = {"user": "clerk", "password": "clerk"}
    bodies = [
        ("dead", {"to": {"exchange": "amq.topic"}}),
        ("orders", {"to": {"queue": "other"}}),
        ("orders", {"to": {"exchange": "amq.direct"}}),
    ]
    for queue, body in bodies:
        answer = api.ask("POST", f"leveret/queues/%2F/{queue}/move", body, **clerk)
        assert (answer.status, answer.reason) == (401, "Access refused.")
    job = started(api, "orders", "move", {"to": {"queue": "other"}, "rate": 1})
    assert api.ask("GET", f"leveret/jobs/{job}", **clerk).reason == "Not monitor user"
    assert api.ask("DELETE", f"leveret/jobs/{job}", **clerk).status == 401
    assert api.ask("GET", "leveret/jobs", **clerk).json == []
    api.ask("DELETE", f"leveret/jobs/{job}")
    own = api.ask("POST", "leveret/queues/%2F/orders/discard", {"rate": 1}, **clerk).json["job"]
    assert api.ask("GET", f"leveret/jobs/{own}", **clerk).json["by"] == "clerk"
    api.ask("DELETE", "users/clerk")
    broker.clock.advance(seconds=5)
    assert ended(broker, api, own)["error"] == "the user 'clerk' was deleted"
    for method in ("GET", "DELETE"):
        assert api.ask(method, "leveret/jobs/999999").status == 404


@pytest.mark.parametrize("to", [{"queue": "other"}, {"exchange": "amq.direct", "routing_key": "other"}])
@pytest.mark.parametrize("lost", ["read", "write"])
def test_a_job_whose_user_may_no_longer(broker: RunningBroker, api: ApiClient, lost: str, to: dict[str, str]) -> None:
    """It moves nothing more, wherever to: a job at a low rate takes hours."""
    publish(broker, "orders", 9)
    api.ask("POST", "bindings/%2F/e/amq.direct/q/other", {"routing_key": "other"})
    clerk: dict[str, Any] = {"user": "clerk", "password": "clerk"}
    api.ask("PUT", "users/clerk", {"password": "clerk", "tags": "management"})
    grant = {"configure": "", "write": "^(other|amq.direct)$", "read": "^orders$"}
    api.ask("PUT", "permissions/%2F/clerk", grant)
    job = api.ask("POST", "leveret/queues/%2F/orders/move", {"to": to, "rate": 1}, **clerk).json["job"]
    broker.clock.advance(seconds=2)
    before = api.get(f"leveret/jobs/{job}")["done"]
    assert 0 < before < 9
    api.ask("PUT", "permissions/%2F/clerk", {**grant, lost: ""})
    broker.clock.advance(seconds=20)
    found = ended(broker, api, job)
    assert found["done"] == before
    if lost == "read":
        assert (found["state"], found["error"]) == ("failed", "the user 'clerk' may no longer read from the queue")
    else:
        assert [one["count"] for one in found["kept"]] == [9 - before]


def test_pause_and_resume(broker: RunningBroker, api: ApiClient) -> None:
    """For administrators; seen in the queue's object and in the metrics."""
    place = "leveret/queues/%2F/orders/state"
    for wrong in ({}, {"paused": "perhaps"}):
        assert api.ask("PUT", place, wrong).status == 400
    assert api.ask("PUT", "leveret/queues/%2F/nope/state", {"paused": True}).status == 404
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        got: list[bytes] = []
        channel.basic_consume("orders", lambda *delivery: got.append(delivery[3]))
        assert api.ask("PUT", place, {"paused": True}).status == 204
        assert api.get("queues/%2F/orders")["leveret"]["paused"] is True
        publish(broker, "orders", 2)
        connection.process_data_events(0)
        assert (got, ready(broker, "orders")) == ([], [2])
        assert api.ask("PUT", place, {"paused": False}).status == 204
        quiet(broker)
        while len(got) < 2:
            connection.process_data_events(30)
    api.ask("PUT", "users/clerk", {"password": "clerk", "tags": "policymaker"})
    api.ask("PUT", "permissions/%2F/clerk", {"configure": ".*", "write": ".*", "read": ".*"})
    answer = api.ask("PUT", place, {"paused": True}, user="clerk", password="clerk")
    assert (answer.status, answer.reason) == (401, "Not administrator user")


def test_discarded_from_a_leased_queue(broker: RunningBroker, api: ApiClient) -> None:
    """At once, by filter; what only jobs know is refused."""
    api.ask("PUT", "queues/%2F/lent", {"durable": True, "arguments": {"x-queue-type": "amps"}})
    publish(broker, "lent", 4)
    place = "leveret/queues/%2F/lent/discard"
    assert api.ask("POST", place, {"filter": "/number > 1"}).json == {
        "queue": "lent",
        "vhost": "/",
        "matches": 2,
        "deleted": 2,
        "deferred": 0,
    }
    answer = api.ask("POST", place, {"filter": "/number > 0", "rate": 5})
    assert answer.reason == "discard: of a leased queue by bookmark or filter alone, and without a rate"
    assert ready(broker, "lent") == [2]
    api.ask("DELETE", "queues/%2F/lent")


def test_a_restart_ends_jobs(tmp_path: Path) -> None:
    """What they have moved stays moved; nothing more is."""
    with start_broker(management=True, clock="virtual", data=tmp_path) as broker:
        api = ApiClient(broker.management_url)
        for name in ("orders", "other"):
            api.ask("PUT", f"queues/%2F/{name}", {"durable": True})
        publish(broker, "orders", 5)
        started(api, "orders", "move", {"to": {"queue": "other"}, "rate": 1})
        broker.clock.advance(seconds=1)
        broker.restart()
        assert api.get("leveret/jobs") == []
        broker.clock.advance(seconds=60)
        assert ready(broker, "orders", "other") == [3, 2]
