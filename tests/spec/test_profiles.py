"""docs/profiles.md, cell by cell: each row is asked of a broker that runs with the column's profile.

With LEVERET_SPEC_PEER=rabbitmq the column of RabbitMQ 3.10 is asked of RabbitMQ itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from rawclient import Client
from spec_broker import SpecBroker, spec_broker

PAGE = Path(__file__).resolve().parents[2] / "docs" / "profiles.md"
PEER = "rabbitmq-3.10"
Q, D = "p.profile", "p.profile.dead"


def table() -> tuple[list[str], dict[str, list[str]]]:
    """The profiles, and the cells of each row."""
    first = PAGE.read_text().partition("\n## ")[0]
    lines = [line for line in first.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return rows[0][1:], {row[0]: row[1:] for row in rows[2:]}


PROFILES, ROWS = table()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], SpecBroker]]:
    """A broker for each profile, started when it is first asked for."""
    with ExitStack() as stack:
        brokers: dict[str, SpecBroker] = {}

        def broker_of(profile: str) -> SpecBroker:
            if profile not in brokers:
                context = spec_broker(tmp_path_factory.mktemp("profile"), f'profile = "{profile}"\n')
                brokers[profile] = stack.enter_context(context)
            return brokers[profile]

        yield broker_of


def declare(client: Client, name: str = Q, **arguments: Any) -> None:
    """A durable queue; underscores of the arguments' names stand for dashes."""
    named = {key.replace("_", "-"): value for key, value in arguments.items()}
    client.call("queue.declare", queue=name, durable=True, arguments=named)


def refusal(client: Client) -> str:
    """The code with which the broker closes channel or connection."""
    while True:
        method = client.read()
        if method.name == "channel.close":
            client.send("channel.close-ok")
            return str(method["reply_code"])
        if method.name == "connection.close":
            client.running = False
            client.send("connection.close-ok", channel=0)
            return str(method["reply_code"])


def returned_once_with_limit_0(client: Client, method: str) -> str:
    """A limit of 0: the first return that counts is the last."""
    declare(client, x_queue_type="quorum", x_delivery_limit=0, x_dead_letter_exchange="", x_dead_letter_routing_key=D)
    declare(client, D)
    client.publish("", Q, b"poison")
    client.wait_for_ready(Q, 1)
    client.send(f"basic.{method}", delivery_tag=client.take(Q)["delivery_tag"], requeue=True)
    while True:
        if client.count(D)[0]:
            return "counts"
        if client.count(Q)[0]:
            return "does not count"


def default_limit(client: Client) -> str:
    """Rejected until it is gone, or far beyond."""
    declare(client, x_queue_type="quorum", x_dead_letter_exchange="", x_dead_letter_routing_key=D)
    declare(client, D)
    client.publish("", Q, b"poison")
    for count in range(30):
        while not client.count(Q)[0]:
            if client.count(D)[0]:
                return str(count - 1)  # N + 1 deliveries
        client.send("basic.reject", delivery_tag=client.take(Q)["delivery_tag"], requeue=True)
    return "none"


def dead_letter(client: Client) -> dict[str, Any]:
    """Its headers."""
    client.wait_for_ready(D, 1)
    content = client.take(D, no_ack=True).content
    assert content is not None
    return content.headers


def count_of(headers: dict[str, Any]) -> int:
    """Of the newest death."""
    return int(headers["x-death"][1][0][1]["count"][1])


def reject(client: Client) -> None:
    """The head of the queue dies."""
    client.wait_for_ready(Q, 1)
    client.send("basic.reject", delivery_tag=client.take(Q)["delivery_tag"], requeue=False)


def death_of_a_client(client: Client) -> str:
    """Published again with the headers that it came with."""
    declare(client, x_dead_letter_exchange="", x_dead_letter_routing_key=D)
    declare(client, D)
    client.publish("", Q, b"x")
    reject(client)
    death = dead_letter(client)["x-death"]
    client.publish("", Q, b"x", headers={"x-death": death})
    reject(client)
    headers = dead_letter(client)
    assert len(headers["x-death"][1]) == 1
    return {1: "restarted", 2: "continued"}[count_of(headers)]


def death_in_the_broker(client: Client) -> str:
    """Round by the broker alone: out by a time-out, back by a rejection."""
    declare(client, x_dead_letter_exchange="", x_dead_letter_routing_key="p.profile.back")
    declare(client, "p.profile.back", x_message_ttl=1, x_dead_letter_exchange="", x_dead_letter_routing_key=Q)
    client.publish("", Q, b"x")
    for _ in range(2):
        reject(client)
    client.wait_for_ready(Q, 1)
    content = client.take(Q, no_ack=True).content
    assert content is not None
    deaths = [death for _, death in content.headers["x-death"][1]]
    counts = {death["reason"][1]: death["count"][1] for death in deaths}
    assert counts.keys() == {b"rejected", b"expired"}
    return {1: "restarted", 2: "continued"}[counts[b"rejected"]]


def last_death(client: Client) -> str:
    """Beside x-first-death-reason."""
    declare(client, x_dead_letter_exchange="", x_dead_letter_routing_key=D)
    declare(client, D)
    client.publish("", Q, b"x")
    reject(client)
    headers = dead_letter(client)
    assert headers["x-first-death-reason"] == ("S", b"rejected")
    if "x-last-death-reason" not in headers:
        assert not [name for name in headers if name.startswith("x-last-death")]
        return "absent"
    last = {name: headers[f"x-last-death-{name}"] for name in ("reason", "queue", "exchange")}
    assert last == {"reason": ("S", b"rejected"), "queue": ("S", Q.encode()), "exchange": ("S", b"")}
    return "present"


def transient(client: Client) -> str:
    """Durable ones and exclusive ones are declared everywhere."""
    declare(client)
    client.call("queue.declare", queue="p.profile.exclusive", exclusive=True)
    client.send("queue.declare", queue="p.profile.transient")
    answer = client.read()
    if answer.name == "queue.declare-ok":
        client.call("queue.declare", queue="p.profile.transient", passive=True)
        return "declared"
    assert answer["reply_text"].startswith("INTERNAL_ERROR - Feature `transient_nonexcl_queues` is deprecated.\n")
    client.running = False
    client.send("connection.close-ok", channel=0)
    return str(answer["reply_code"])


def shared_prefetch(client: Client) -> str:
    """Two consumers, a limit of one."""
    declare(client)
    client.call("basic.qos", prefetch_count=1, global_=True)
    for tag in ("a", "b"):
        client.call("basic.consume", queue=Q, consumer_tag=tag)
    for _ in range(3):
        client.publish("", Q, b"x")
    got = len(client.collect(Q)) + len(client.collect(Q))
    return {1: "for the channel", 2: "for each consumer"}[got]


def shared_prefetch_on_quorum(client: Client) -> str:
    """A quorum queue has none."""
    declare(client, x_queue_type="quorum")
    client.call("basic.qos", prefetch_count=1, global_=True)
    client.send("basic.consume", queue=Q, consumer_tag="a")
    answer = client.read()
    if answer.name == "connection.close":
        client.running = False
        client.send("connection.close-ok", channel=0)
        return str(answer["reply_code"])
    client.publish("", Q, b"x")
    client.publish("", Q, b"x")
    client.deliveries(1)
    client.wait_for_ready(Q, 1)
    return "for each consumer"


def flow(client: Client) -> str:
    """Deliveries stop and go on."""
    declare(client)
    client.send("channel.flow", active=False)
    answer = client.read()
    if answer.name == "connection.close":
        client.running = False
        client.send("connection.close-ok", channel=0)
        return str(answer["reply_code"])
    client.call("basic.consume", queue=Q, consumer_tag="a")
    client.publish("", Q, b"x")
    client.wait_for_ready(Q, 1)
    client.call("channel.flow", active=True)
    client.deliveries(1)
    return "honoured"


def classic_count(client: Client) -> str:
    """At its second delivery."""
    declare(client, x_max_delivery_attempts=5)
    client.publish("", Q, b"x")
    for _ in range(2):
        client.wait_for_ready(Q, 1)
        got = client.take(Q)
        client.send("basic.nack", delivery_tag=got["delivery_tag"], requeue=True)
    assert got["redelivered"] and got.content is not None
    return "present" if "x-delivery-count" in got.content.headers else "absent"


def delay(client: Client) -> str:
    """The default exchange is one."""
    declare(client)
    client.call("confirm.select")
    client.publish("", Q, b"x", headers={"x-delay": 3_600_000})
    client.expect("basic.ack")
    return "ignored" if client.count(Q)[0] else "waits"


def consumer_filter(client: Client) -> str:
    """One that is no expression is refused where it would mean something."""
    declare(client)
    client.send("basic.consume", queue=Q, arguments={"x-filter": "/kind = ", "x-selector": ""})
    answer = client.read()
    if answer.name == "basic.consume-ok":
        return "ignored"
    assert answer.name == "channel.close" and answer["reply_code"] == 406
    client.send("channel.close-ok")
    return "filter"


def large(client: Client) -> str:
    """Confirmed, or refused."""
    declare(client)
    client.call("confirm.select")
    client.publish("", Q, bytes(16 * 1024**2 + 1))
    answer = client.read()
    if answer.name == "basic.ack":
        return "taken"
    assert answer.name == "channel.close"
    client.send("channel.close-ok")
    return str(answer["reply_code"])


def quorum_priorities(client: Client) -> str:
    """In which order priorities come, one of them unsaid."""
    declare(client, x_queue_type="quorum")
    for body, priority in ((b"a", {"priority": 1}), (b"b", {"priority": 5}), (b"c", {}), (b"d", {"priority": 9})):
        client.publish("", Q, body, **priority)
    client.wait_for_ready(Q, 4)
    order = b""
    for _ in range(4):
        content = client.take(Q, no_ack=True).content
        assert content is not None
        order += content.body
    return {b"abcd": "none", b"bdac": "two classes", b"dbca": "32 levels"}[order]


def single_active_and_priority(client: Client) -> str:
    """Whether the active consumer makes room for one of higher priority, when it has nothing out any more."""
    declare(client, x_queue_type="quorum", x_single_active_consumer=True)
    client.call("basic.consume", queue=Q, consumer_tag="first")
    client.publish("", Q, b"a")
    (held,) = client.deliveries(1)
    client.call("basic.consume", queue=Q, consumer_tag="higher", arguments={"x-priority": 5})
    client.publish("", Q, b"b")
    client.send("basic.ack", delivery_tag=held["delivery_tag"])
    (following,) = client.deliveries(1)
    return {"first": "stays", "higher": "yields"}[following["consumer_tag"]]


PROBES: dict[str, Callable[[Client], str]] = {
    "nack(requeue) and the delivery limit": lambda client: returned_once_with_limit_0(client, "nack"),
    "reject(requeue) and the delivery limit": lambda client: returned_once_with_limit_0(client, "reject"),
    "delivery limit of a quorum queue that declares none": default_limit,
    "priorities of a quorum queue": quorum_priorities,
    "single active consumer of a quorum queue, when one of higher priority comes": single_active_and_priority,
    "x-death that a client publishes": death_of_a_client,
    "x-death of a second death in the broker": death_in_the_broker,
    "x-last-death-reason": last_death,
    "queue that is neither durable nor exclusive": transient,
    "qos(global)": shared_prefetch,
    "qos(global) on a quorum queue": shared_prefetch_on_quorum,
    "channel.flow(active=false)": flow,
    "x-delivery-count on a classic queue with x-max-delivery-attempts": classic_count,
    "x-delay on an ordinary exchange": delay,
    "x-filter and x-selector of a consumer": consumer_filter,
    "message of 16 MiB and one octet": large,
}
VERSION = "version shown to clients"


def test_every_row_is_asked() -> None:
    """And nothing is asked that is in no row; the columns are the profiles that there are."""
    from leveret.settings.profiles import PROFILES as THERE

    assert [*PROBES, VERSION] == list(ROWS)
    assert list(THERE) == PROFILES
    assert all(len(cells) == len(PROFILES) and all(cells) for cells in ROWS.values())


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("row", ROWS)
def test_cell(row: str, profile: str, running: Callable[[str], SpecBroker]) -> None:
    """What the page says is what the broker does."""
    if os.environ.get("LEVERET_SPEC_PEER") == "rabbitmq" and profile != PEER:
        pytest.skip("the peer is a RabbitMQ 3.10")
    broker = running(profile)
    cell = ROWS[row][PROFILES.index(profile)]
    try:
        if row == VERSION:
            properties = broker.connect().start()["server_properties"]
            assert properties["version"][1].decode().startswith(cell + ".")
        else:
            assert PROBES[row](broker.open()) == cell
    finally:
        broker.clean_up()


def test_local_random_exchange(running: Callable[[str], SpecBroker]) -> None:
    """RabbitMQ 4.0's: each message to one of the bound queues, all of which are local here."""
    if os.environ.get("LEVERET_SPEC_PEER") == "rabbitmq":
        pytest.skip("RabbitMQ 3.10 has no x-local-random")
    client = running("rabbitmq-4.0").open()
    client.call("exchange.declare", exchange="p.local", type="x-local-random", durable=True)
    names = ("p.local.a", "p.local.b")
    for name in names:
        declare(client, name)
        client.call("queue.bind", queue=name, exchange="p.local", routing_key="")
    for _ in range(100):
        client.publish("p.local", "any", b"x")
    counts = [client.count(name)[0] for name in names]
    assert sum(counts) == 100 and min(counts) > 10
