"""Lists are made in steps, whatever changes in between. Source: management page 12.3, 20."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from all_routes import ROUTES
from api_client import basic

from leveret.console import steps
from leveret.console.api import Api
from leveret.console.encoding import SHORT_LIST_MAX, encoded, encoded_in_steps
from leveret.console.http_messages import Answer, Peer, Request, query_of
from leveret.console.metrics import objects, sums
from leveret.console.metrics.buckets import DELAYS, Buckets
from leveret.console.metrics.facts import MetricsFacts, ProcessFigures
from leveret.console.metrics.requests import Metrics
from leveret.console.node_facts import HostFacts
from leveret.console.sampler import Sampler
from leveret.console.static_pages import StaticPages
from leveret.engine import Broker, Client, FieldTable, ManualClock, User, VirtualHost, table_of_json
from leveret.operator.definitions import import_steps
from leveret.operator.steps import finished
from leveret.serving.composition import build_broker
from leveret.serving.console import console_options
from leveret.settings import Configuration

#: Of each kind of object.
COUNT = SHORT_LIST_MAX + 10
NAMES = [f"n{number:02}" for number in range(COUNT)]
QUEUES = [f"queue{number:02}" for number in range(COUNT)]
NO_ARGUMENTS: FieldTable = {}
MACHINE = HostFacts(1, 2, 3, 4, 5, 6, 7, 8)
#: What a list cannot be made in more steps of: known at once, or ended after so many entries by whoever made it.
AT_ONCE = {"leveret/search"}


DOCUMENT = {
    "users": [{"name": name, "password_hash": "", "tags": "", "limits": {"max-connections": 5}} for name in NAMES],
    "vhosts": [{"name": name} for name in NAMES],
    "permissions": [{"user": name, "vhost": "/", "configure": "", "write": "", "read": ""} for name in NAMES],
    "topic_permissions": [
        {"user": name, "vhost": "/", "exchange": "amq.topic", "write": "", "read": ""} for name in NAMES
    ],
    "policies": [{"vhost": "/", "name": name, "pattern": "^none$", "definition": {"max-length": 5}} for name in NAMES],
    "parameters": [
        *({"vhost": "/", "component": "c", "name": name, "value": {}} for name in NAMES),
        *({"vhost": name, "component": "vhost-limits", "name": "limits", "value": {"max-queues": 5}} for name in NAMES),
        *(
            {
                "vhost": "/",
                "component": "operator_policy",
                "name": name,
                "value": {"pattern": "^none$", "definition": {"max-length": 5}},
            }
            for name in NAMES
        ),
    ],
    "global_parameters": [{"name": name, "value": {}} for name in NAMES],
}


@dataclass
class Console:
    """An API without sockets, as the administrator guest."""

    api: Api
    broker: Broker
    vhost: VirtualHost

    def call(
        self, target: str, between: Callable[[], object] = lambda: None, method: str = "GET"
    ) -> tuple[int, int, Any]:
        """Status, steps and the value of an answer; `between`: done between any two of its steps."""
        path, _, query = target.partition("?")
        headers = {"host": "localhost", "authorization": basic("guest", "guest")}
        request = Request(method, f"/api/{path}", query_of(query), headers, Peer("127.0.0.1", True))
        count, steps = 1, self.api.open(request).steps(b"")
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value.status, count, json.loads(_body(end.value))
            count += 1
            between()


def _body(answer: Answer) -> bytes:
    return b"".join(answer.body) if isinstance(answer.body, list) else answer.body or encoded(answer.value)


@pytest.fixture
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each object is a step of its own."""
    monkeypatch.setattr(steps, "STEP_S", -1.0)
    monkeypatch.setattr(steps, "FREED_AT_ONCE", 1)
    monkeypatch.setattr(steps, "SORTED_AT_ONCE", 4)
    monkeypatch.setattr(steps, "COMPARED_AT_ONCE", 4)
    monkeypatch.setattr(steps, "MERGED_AT_ONCE", 8)


@pytest.fixture
def console(short_steps: None) -> Console:
    """With some of everything."""
    configuration = Configuration()
    built = build_broker(configuration, ManualClock(), random.Random(1).random, None)
    broker = built.broker
    vhost = broker.virtual_hosts["/"]
    for name, queue in zip(NAMES, QUEUES):
        vhost.queues.declare(queue, client=None, durable=True)
        vhost.exchanges.declare(name, "topic", durable=True)
        vhost.bindings.add("queue", QUEUES[0], "amq.topic", name, {})
        vhost.bindings.add("queue", queue, "amq.topic", "", {})
        vhost.bindings.add("exchange", name, "amq.topic", "", {})
        client = broker.connections.open(
            "/", User("guest"), name=f"127.0.0.1:1{name[1:]} -> 127.0.0.1:2", flush=lambda: None
        )
        assert isinstance(client, Client)
        session = client.open_session(1)
        session.consume(vhost.queues[QUEUES[0]], name, no_ack=False, exclusive=False, arguments={})
    finished(import_steps(built.control.broker, DOCUMENT))
    options = replace(console_options(built.control, configuration, 0, None, list), host_facts=lambda: MACHINE)
    api = Api(lambda: broker, lambda: options, ROUTES, StaticPages(), Sampler(lambda: broker))
    return Console(api, broker, vhost)


PLACES = {
    "V": "%2F",
    "SOURCE": "amq.topic",
    "X": "amq.topic",
    "D": QUEUES[0],
    "Q": QUEUES[0],
    "U": "guest",
    "N": "rabbit@localhost",
}


def _target(pattern: str) -> str | None:
    """A path of a route; None: it is about one object that has no list."""
    words = [PLACES.get(word, word) for word in pattern.split("/")]
    return None if any(word.isupper() for word in words) else "/".join(words)


TARGETS = sorted({path for route in ROUTES if "GET" in route.actions and (path := _target(route.pattern))} - AT_ONCE)


def _longest(value: Any) -> int:
    """Entries of the longest list."""
    if isinstance(value, list):
        return max([len(value), *map(_longest, value)])
    return max(map(_longest, value.values()), default=0) if isinstance(value, dict) else 0


def test_no_list_is_made_in_one_piece(console: Console) -> None:
    """Of every route that lists: it has as many steps as entries."""
    found = {path: console.call(path) for path in TARGETS if not path.startswith("leveret/")}
    lists = {path: (steps, _longest(value)) for path, (_, steps, value) in found.items()}
    assert {path: status for path, (status, _, _) in found.items() if status not in (200, 503)} == {}
    assert {path for path, (steps, entries) in lists.items() if entries > SHORT_LIST_MAX and steps < entries} == set()
    assert sum(entries > SHORT_LIST_MAX for _, entries in lists.values()) > 20  # else this looked at nothing


@pytest.mark.parametrize(
    "path, key",
    [
        ("queues", lambda row: row["name"]),
        ("queues?sort=arguments", lambda row: row["name"]),
        ("queues?page=1&page_size=500&name=queue&use_regex=true", lambda row: row["name"]),
        ("bindings", lambda row: (row["source"], row["destination"], row["routing_key"])),
        ("bindings/%2F/e/amq.topic/q/queue00", lambda row: row["routing_key"]),
        ("exchanges/%2F/amq.topic/bindings/source", lambda row: (row["destination"], row["routing_key"])),
        ("exchanges?page=1&page_size=500", lambda row: row["name"]),
        ("connections", lambda row: row["name"]),
        ("channels", lambda row: row["name"]),
        ("consumers", lambda row: row["consumer_tag"]),
        ("vhosts", lambda row: row["name"]),
    ],
)
def test_what_comes_and_goes_meanwhile(console: Console, path: str, key: Callable[[Any], Any]) -> None:
    """What is there all the time is listed once, whatever is declared, deleted, opened and closed between two steps."""
    before = _rows(console.call(path)[2])
    numbers = iter(range(100_000))
    broker, vhost = console.broker, console.vhost
    passing: list[Callable[[], object]] = []

    def change() -> None:
        while passing:
            passing.pop()()
        name = f"passing{next(numbers)}"
        vhost.queues.declare(name, client=None)
        vhost.exchanges.declare(name, "topic")
        vhost.bindings.add("queue", name, "amq.topic", name, {})
        broker.virtual_hosts.create(name)
        client = broker.connections.open("/", User("guest"), name=f"{name} -> 127.0.0.1:2", flush=lambda: None)
        client.open_session(1).consume(vhost.queues[name], name, no_ack=False, exclusive=False, arguments={})
        passing.extend(
            [
                client.close,
                lambda: broker.virtual_hosts.delete(name),
                lambda: vhost.exchanges.delete(name),
                lambda: vhost.queues.delete(name, client=None),
            ]
        )

    status, _, value = console.call(path, change)
    found = [key(row) for row in _rows(value)]
    assert status == 200 and next(numbers) > COUNT
    assert sorted(one for one in found if one in set(map(key, before))) == sorted(map(key, before))


def _rows(value: Any) -> list[Any]:
    rows: list[Any] = value["items"] if isinstance(value, dict) else value
    return rows


def test_definitions_are_those_of_one_moment(console: Console) -> None:
    """A binding without its queue could not be imported again."""
    numbers = iter(range(100_000))

    def change() -> None:
        name = f"new{next(numbers)}"
        console.vhost.queues.declare(name, client=None, durable=True)
        console.vhost.bindings.add("queue", name, "amq.topic", name, {})

    for path in ("definitions", "definitions/%2F"):
        before = console.call(path)[2]
        assert console.call(path, change)[2] == before
        assert next(numbers) > COUNT
        for name in [name for name in console.vhost.queues if name.startswith("new")]:
            console.vhost.queues.delete(name, client=None)


@pytest.mark.parametrize("path", ["/metrics", "/metrics/per-object", "/metrics/detailed?family=queue_coarse_metrics"])
def test_metrics_of_what_comes_and_goes(console: Console, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """The page is made all the same, and has what is there all the time."""
    monkeypatch.setattr(objects, "OBJECTS_A_STEP", 1)
    monkeypatch.setattr(sums, "QUEUES_A_STEP", 1)
    figures = ProcessFigures(1, 2, 3, 4, 5, 6, 7.0, 8, 9)
    facts = MetricsFacts(lambda: figures, lambda: None, Buckets(DELAYS), lambda: True)
    metrics = Metrics(lambda: console.broker, lambda: console.api.options, facts, lambda request: None)
    path, _, query = path.partition("?")
    peer = Peer("127.0.0.1", True)
    steps = metrics.open(Request("GET", path, query_of(query), {"host": "localhost"}, peer, raw_query=query)).steps(b"")
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            text = _body(end.value).decode()
            break
        console.vhost.queues.declare(f"passing{count}", client=None)
        console.vhost.queues.delete(f"passing{count - 1}", client=None) if count else None
        count += 1
    assert count > COUNT
    if path == "/metrics":
        assert "rabbitmq_queues 3" in text
    else:
        assert all(text.count(f'messages_ready{{vhost="/",queue="{name}"}} 0') == 1 for name in QUEUES)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("count", [0, 1, 4, 5, 16, 17, 200])
def test_order(short_steps: None, seed: int, count: int) -> None:
    """As Python sorts, also those with the same key."""
    chance = random.Random(seed)
    items = [(chance.randrange(20), number) for number in range(count)]
    found = finished(steps.sort_in_steps(lambda item: item[0], items))
    assert found == sorted(items, key=lambda item: item[0])


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("wanted", [1, 3, 20, 300])
@pytest.mark.parametrize("count", [0, 1, 5, 17, 200])
def test_the_first_of_an_order(short_steps: None, count: int, wanted: int, is_reversed: bool) -> None:
    """As if all were sorted, and then reversed: also those with the same key, with another key for them or without."""
    chance = random.Random(count)
    items = [(chance.randrange(9), chance.randrange(9), number) for number in range(count)]
    found = finished(steps.first_in_steps(lambda item: item[0], items, wanted, is_reversed=is_reversed))
    whole = sorted(items, key=lambda item: item[0])
    assert found == (whole[::-1] if is_reversed else whole)[:wanted]
    first_two = finished(
        steps.first_in_steps(lambda item: item[0], items, wanted, tie=lambda item: item[1], is_reversed=is_reversed)
    )
    whole = sorted(items, key=lambda item: item[:2])
    assert first_two == (whole[::-1] if is_reversed else whole)[:wanted]


class Counted(int):
    """A key that counts how often one of them is compared."""

    times = 0

    def __lt__(self, other: int) -> bool:
        Counted.times += 1
        return int(self) < int(other)

    def __gt__(self, other: int) -> bool:
        Counted.times += 1
        return int(self) > int(other)


def test_few_are_sorted_for_a_page() -> None:
    """A page of 20,000 compares each with the last one of it, and sorts the few that come before."""
    chance = random.Random(7)
    items = [Counted(number) for number in range(20_000)]
    chance.shuffle(items)
    Counted.times = 0
    assert finished(steps.first_in_steps(lambda item: item, items, 100)) == list(range(100))
    assert Counted.times < 3 * len(items)  # a sort takes 13 times as many


@pytest.mark.parametrize(
    "query", ["sort=messages", "sort=message_bytes", "sort=name", "sort=consumers", "sort=messages_details.rate", ""]
)
@pytest.mark.parametrize("reverse", ["true", "false"])
@pytest.mark.parametrize("page", [1, 2, 4])
def test_pages_are_parts_of_the_whole_list(console: Console, page: int, reverse: str, query: str) -> None:
    """Whether all rows were sorted for a page, or only those up to its end."""
    target = f"queues?sort_reverse={reverse}&{query}"
    whole = [one["name"] for one in console.call(target)[2]]
    _, _, shown = console.call(f"{target}&page={page}&page_size=3")
    assert [one["name"] for one in shown["items"]] == whole[(page - 1) * 3 : page * 3]
    assert (shown["filtered_count"], shown["total_count"]) == (len(whole), len(whole))


@pytest.mark.parametrize("count", [0, 1, SHORT_LIST_MAX, SHORT_LIST_MAX + 1, 99, 100, 101, 250])
def test_json_in_parts(short_steps: None, count: int) -> None:
    """The same as in one piece."""
    rows = [{"name": "\u00e4" * number} for number in range(count)]
    for value in (rows, {"a": rows, "b": [], "c": 1}, {}, [], None, {"rows": {"inner": rows}}):
        assert json.loads(b"".join(finished(encoded_in_steps(value)))) == value
    assert len(rows) == count  # somebody else's list is as it was
    assert b"".join(finished(encoded_in_steps(rows, is_own=True))) == encoded(
        [{"name": "\u00e4" * n} for n in range(count)]
    )
    assert not rows or count <= SHORT_LIST_MAX


def test_the_reverse_of_what_is_in_order_is_not_sorted() -> None:
    """Queues that were declared in the order of their names, by messages, the most first: each is compared once."""
    items = [Counted(number) for number in range(20_000)]
    Counted.times = 0
    found = finished(steps.first_in_steps(lambda item: item, items, 100, is_reversed=True))
    assert found == list(range(19_999, 19_899, -1))
    assert Counted.times < 1.1 * len(items)


def _leased(console: Console, name: str) -> None:
    arguments = {"x-queue-type": "amps"}
    finished(console.api.run("declare-queue", queue=name, durable=True, arguments=arguments))


def _scheduled(console: Console, name: str) -> None:
    """A queue with a scheduled message."""
    made = {"exchange": f"to-{name}", "type": "x-delayed-message", "arguments": {"x-delayed-type": "fanout"}}
    finished(console.api.run("declare-exchange", **made))
    console.vhost.queues.declare(name, client=None)
    console.vhost.bindings.add("queue", name, f"to-{name}", "", {})
    properties = {"headers": {"x-delay": 3_600_000}}
    finished(console.api.run("publish", exchange=f"to-{name}", routing_key="", payload="a", properties=properties))


@pytest.mark.parametrize("kind, make", [("scheduled", _scheduled), ("leases", _leased)])
def test_a_queue_that_is_deleted_between_two_steps_is_left_out(
    console: Console, kind: str, make: Callable[[Console, str], None]
) -> None:
    """The list has the other ones. It was a 404."""
    for name in ("first", "second"):
        make(console, name)

    def delete() -> None:
        if "second" in console.vhost.queues:
            console.vhost.queues.delete("second", client=None)

    status, _, value = console.call(f"leveret/{kind}", delete)
    assert (status, [one["queue"] for one in value["items"]]) == (200, ["first"])


def test_a_virtual_host_that_is_deleted_between_two_steps_is_left_out(console: Console) -> None:
    """Of the list of dead letters."""

    def delete() -> None:
        for name in set(NAMES) & set(console.broker.virtual_hosts):
            console.broker.virtual_hosts.delete(name)

    assert console.call("leveret/dead-letters", delete)[0] == 200


@pytest.mark.parametrize("path", ["queues/%2F/queue01", "queues/%2F/queue01/contents", "exchanges/%2F/n01"])
@pytest.mark.parametrize("gone", ["the object", "the virtual host"])
def test_what_is_deleted_by_two_at_once_is_not_found_by_the_second(console: Console, path: str, gone: str) -> None:
    """Clients take a 404 for done, and retry nothing. It was a 400."""

    def delete() -> None:
        if "/" not in console.broker.virtual_hosts:
            return
        if gone == "the virtual host":
            console.broker.virtual_hosts.delete("/")
        else:
            console.vhost.queues.delete("queue01", client=None)
            console.vhost.exchanges.delete("n01")

    status, count, value = console.call(path, delete, "DELETE")
    assert (status, value) == (404, {"error": "Object Not Found", "reason": "Not Found"})
    assert count > 1


def test_all_connections_of_a_user_are_closed_though_one_ends_meanwhile(console: Console) -> None:
    """The others do not stay open. It was a 400 with a part of them closed."""
    headers = {"host": "localhost", "authorization": basic("guest", "guest")}
    request = Request("DELETE", "/api/connections/username/guest", {}, headers, Peer("127.0.0.1", True))
    steps, last = console.api.open(request).steps(b""), list(console.broker.connections)[-1]
    for _ in range(2):
        next(steps)
    last.close()
    assert finished(steps).status == 204
    while console.broker.end_turn():
        pass
    assert list(console.broker.connections) == []


def test_a_name_that_a_client_gave_itself_hides_no_other_connection(console: Console) -> None:
    """The broker's name of a connection means that one, as when it is closed."""
    first, *_, last = console.broker.connections
    first.properties = table_of_json({"connection_name": last.name})
    quoted = last.name.replace(" ", "%20").replace(">", "%3E")
    assert console.call(f"leveret/connections/{quoted}")[2]["name"] == last.name
