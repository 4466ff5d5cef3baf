"""Every endpoint that the reference lists has its route, with its methods; what has none is listed.

Source: management page 2, 3.
"""

import re
from pathlib import Path
from unittest.mock import Mock

import pytest
from all_routes import ROUTES
from api_client import ApiClient

from leveret.console.dispatcher import Dispatcher
from leveret.console.http_messages import Answer
from leveret.engine import Broker, ManualClock

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "management.md"
#: Path -> why there is no route. Each is a line of docs/DEVIATIONS.md.
LEFT_OUT = {
    "auth/hash_password/P": "a password in a path ends in logs",
    "config/effective": "`leveret explain` says what is in force, and which line gave it",
    "users/U/queues": "who declared a queue is not kept",
    "vhosts/V/deletion/protection": "not there yet",
}
QUORUM_LEADERS = "health/checks/quorum-queues-without-elected-leaders"
#: What a cell of the table writes short -> the paths that it means, and their methods.
SHORT = {
    "nodes/N/memory, /memory/relative": {"nodes/N/memory": "GET", "nodes/N/memory/relative": "GET"},
    "nodes/N/memory/ets..": {"nodes/N/memory/ets": "GET", "nodes/N/memory/ets/relative": "GET"},
    "definitions (old name all-configuration)": {"definitions": "GET POST", "all-configuration": "GET POST"},
    "global-parameters, global-parameters/N": {"global-parameters": "GET", "global-parameters/N": "GET PUT DELETE"},
    "exchanges/V/X/bindings/source, /destination": {
        "exchanges/V/X/bindings/source": "GET",
        "exchanges/V/X/bindings/destination": "GET",
    },
    "bindings/V/e/S/q/D/KEY (also e/S/e/D)": {
        "bindings/V/e/S/q/D/K": "GET DELETE",
        "bindings/V/e/S/e/D/K": "GET DELETE",
    },
    "permissions; permissions/V/U": {"permissions": "GET", "permissions/V/U": "GET PUT DELETE"},
    "topic-permissions; topic-permissions/V/U": {
        "topic-permissions": "GET",
        "topic-permissions/V/U": "GET PUT DELETE",
    },
    "health/checks/..": {},  # each is in CHECKS
    "feature-flags; feature-flags/N/enable": {"feature-flags": "GET", "feature-flags/N/enable": "PUT"},
    "`queues/quorum/V/Q/replicas/add`, `/delete`, `queues/quorum/replicas/on/N/grow`, `/shrink`; "
    "4.0: `queues/quorum/V/Q/status`": {
        "queues/quorum/V/Q/replicas/add": "POST",
        "queues/quorum/V/Q/replicas/delete": "DELETE",
        "queues/quorum/replicas/on/N/grow": "POST",
        "queues/quorum/replicas/on/N/shrink": "DELETE",
        "queues/quorum/V/Q/status": "GET",
    },
    "`health/checks/metadata-store/initialized`, `.../with-data`, "
    f"`{QUORUM_LEADERS}/all-vhosts/`, `.../pattern/P`, `.../vhost/V/`, `.../vhost/V/pattern/P`": {
        "health/checks/metadata-store/initialized": "GET",
        "health/checks/metadata-store/initialized/with-data": "GET",
        f"{QUORUM_LEADERS}/all-vhosts/": "GET",
        f"{QUORUM_LEADERS}/all-vhosts/pattern/P": "GET",
        f"{QUORUM_LEADERS}/vhost/V/": "GET",
        f"{QUORUM_LEADERS}/vhost/V/pattern/P": "GET",
    },
    "`health/checks/is-in-service`, `/below-node-connection-limit`, `/ready-to-serve-clients`; "
    "4.3 `/reached-target-cluster-size`": {
        "health/checks/is-in-service": "GET",
        "health/checks/below-node-connection-limit": "GET",
        "health/checks/ready-to-serve-clients": "GET",
        "health/checks/reached-target-cluster-size": "GET",
    },
}
CHECKS = ("alarms", "local-alarms", "certificate-expiration/1/weeks", "port-listener/1", "protocol-listener/amqp")
CHECKS += ("virtual-hosts", "node-is-mirror-sync-critical", "node-is-quorum-critical")


def _cells(section: int, first: int) -> list[tuple[str, str]]:
    """Paths and methods of each row of a section's first table; `first` is the column of the paths."""
    text = REFERENCE.read_text().split(f"\n## {section} ", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")][2:]
    return [(row[first].strip(), row[first + 1].strip()) for row in rows]


def _endpoints() -> dict[str, str]:
    """Path -> its methods, of both tables."""
    found: dict[str, str] = {}
    for paths, methods in [*_cells(2, 0), *_cells(3, 1)]:
        words = " ".join(re.findall(r"\b(?:GET|PUT|POST|DELETE)\b", methods))
        written = [path.strip("`") for path in re.split(r"[,;] (?![^(]*\))", paths)]
        found |= SHORT.get(paths) or dict.fromkeys(written, words) if paths not in SHORT else SHORT[paths]
    return found | {f"health/checks/{check}": "GET" for check in CHECKS}


@pytest.fixture(scope="module")
def dispatcher() -> Dispatcher:
    """With all routes."""
    made = Dispatcher()
    made.add(ROUTES)
    return made


@pytest.mark.parametrize("path, methods", _endpoints().items())
def test_each_has_its_route(path: str, methods: str, dispatcher: Dispatcher) -> None:
    """Its path is known, and each of its methods; what is left out is not there."""
    found = dispatcher.find(path)
    if path in LEFT_OUT:
        assert found is None
        return
    assert methods and found is not None
    route, _ = found
    assert [method for method in methods.split() if route.action(method) is None] == []


def test_the_tables_were_read() -> None:
    """No row is lost, and no exception is left over."""
    found = _endpoints()
    assert len(found) > 120
    assert LEFT_OUT.keys() <= found.keys()
    written = {paths for paths, _ in [*_cells(2, 0), *_cells(3, 1)]}
    assert SHORT.keys() <= written


def test_replicas_of_a_quorum_queue(api: ApiClient) -> None:
    """One member, and reasons for no other."""
    api.ask("PUT", "queues/%2F/replicated", {"durable": True, "arguments": {"x-queue-type": "quorum"}})
    answer = api.ask("GET", "queues/quorum/%2F/replicated/status")
    assert [(one["Raft State"], one["Membership"]) for one in answer.json] == [("leader", "voter")]
    for method, path in (
        ("POST", "queues/quorum/%2F/replicated/replicas/add"),
        ("DELETE", "queues/quorum/%2F/replicated/replicas/delete"),
        ("POST", "queues/quorum/replicas/on/rabbit@localhost/grow"),
        ("DELETE", "queues/quorum/replicas/on/rabbit@localhost/shrink"),
    ):
        refused = api.ask(method, path)
        assert (refused.status, "one node" in refused.reason) == (400, True)


@pytest.mark.parametrize(
    "method, path, status",
    [
        ("GET", "queues/quorum/%2F/nope/status", 404),
        ("POST", "queues/quorum/%2F/nope/replicas/add", 404),
        ("POST", "queues/quorum/replicas/on/elsewhere/grow", 404),
        ("GET", "connections/nope/sessions", 404),
        ("GET", "nodes/rabbit@localhost/memory/ets/nope", 200),
    ],
)
def test_what_is_not_there(method: str, path: str, status: int, api: ApiClient) -> None:
    """404, but for tables of Erlang, of which any filter finds none."""
    assert api.ask(method, path).status == status


def test_a_queue_that_is_not_of_that_type(api: ApiClient) -> None:
    """A classic queue has no replicas."""
    api.ask("PUT", "queues/%2F/classic", {})
    assert api.ask("GET", "queues/quorum/%2F/classic/status").reason == "not a quorum queue"


@pytest.mark.parametrize("path", ["health/checks/alarms", "health/checks/local-alarms", "healthchecks/node"])
def test_too_few_nodes_in_sync_fail_the_checks_of_alarms(path: str, dispatcher: Dispatcher) -> None:
    """As the alarms of memory and disk, by its own name."""
    broker = Broker(ManualClock())
    found = dispatcher.find(path)
    assert found is not None
    action = found[0].action("GET")
    assert action is not None
    api, request = Mock(broker=broker, options=Mock(node="a", cluster=lambda: None)), Mock(names={}, peer=Mock(node=""))
    assert action.handler(api, request) == {"status": "ok"}
    broker.flow.raise_replication("replication: 1 of 2 nodes in sync")
    answer = action.handler(api, request)
    assert isinstance(answer, Answer) and answer.status == 503
    assert isinstance(answer.value, dict) and answer.value["alarms"] == [{"node": "a", "resource": "replication"}]
