"""The HTTP API of three nodes beside that of a real RabbitMQ of three nodes: with all up, one down, two down.

Names and types of lists, status and texts of health checks. Each difference is listed with its reason.
"""

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from api_client import ApiClient
from cluster_nodes import NAMES, cluster_nodes, others, until
from etcd_servers import ETCD, WHY_NOT
from schema_check import missing

from leveret.interop.brokers.peers import WITHOUT_RABBITMQ, find_rabbitmq, rabbitmq_cluster

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(ETCD is None, reason=WHY_NOT),
    pytest.mark.skipif(find_rabbitmq() is None, reason=WITHOUT_RABBITMQ),
]

STAGES = ("all up", "one down", "two down")
LISTS = ("nodes", "queues", "overview", "vhosts")
CHECKS = (
    *("alarms", "local-alarms", "virtual-hosts", "node-is-quorum-critical", "node-is-mirror-sync-critical"),
    *("protocol-listener/amqp", "port-listener/1", "certificate-expiration/1/months"),
)
QUEUES = {"classic": "cq", "quorum": "qq", "stream": "st", "mirrored": "ha"}
#: Requests that monitoring and scripts seldom make, while all nodes are up: method and path. {own} answers.
ODD_READS = (
    *("GET nodes/{own}", "GET nodes/{last}", "GET nodes/{encoded}", "GET nodes/{own}/", "GET nodes/nobody@nowhere"),
    *("HEAD nodes", "HEAD nodes/{own}", "HEAD nodes/nobody@nowhere", "OPTIONS nodes", "OPTIONS nodes/{own}"),
    *("PUT nodes/{own}", "POST nodes", "GET nodes/{own}/memory", "GET nodes/{last}/memory", "GET nodes/%20{own}"),
    *("GET nodes/{own}?memory=true&binary=true", "GET nodes/{last}?memory=true", "GET nodes?columns=name,running"),
    *("GET nodes?sort=name&sort_reverse=true&columns=name", "GET nodes?node={last}", "GET nodes/{last}/memory/ets"),
    *("GET queues?node={last}", "GET overview?node={last}", "GET queues/%2F/qq?node={last}", "GET exchanges?node=x"),
    *("HEAD overview", "OPTIONS overview", "HEAD queues/%2F/qq", "GET vhosts/%2F", "HEAD vhosts"),
    *("GET healthchecks/node/{encoded}", "GET healthchecks/node/{last}", "GET healthchecks/node/nobody@nowhere"),
    *("HEAD health/checks/alarms", "OPTIONS health/checks/alarms", "POST health/checks/alarms"),
    *("GET health/checks/alarms/", "GET health/checks/none", "GET health/checks/port-listener/0"),
    *("GET health/checks/port-listener/x", "GET health/checks/port-listener/99999999999"),
    *("GET health/checks/protocol-listener/nope", "GET health/checks/certificate-expiration/0/days"),
    *("GET health/checks/certificate-expiration/1/fortnights", "GET health/checks/certificate-expiration/x/days"),
    *("GET cluster-name", "HEAD cluster-name", "DELETE cluster-name", "GET rebalance/queues", "PUT rebalance/queues"),
    *("GET auth/attempts/{own}", "GET auth/attempts/{last}", "GET auth/attempts/nobody@nowhere", "GET whoami"),
    *("POST vhosts/%2F/start/{own}", "POST vhosts/%2F/start/{last}", "POST vhosts/%2F/start/nobody@nowhere"),
    *("DELETE reset/{own}", "DELETE reset/nobody@nowhere", "GET extensions", "GET feature-flags?columns=name"),
)
#: With a body.
ODD_CHANGES: tuple[tuple[str, str, Any], ...] = (
    *(("PUT", "cluster-name", body) for body in ({}, {"name": 5}, {"name": "c"}, [], b"", b"x")),
    *(("POST", "rebalance/queues", body) for body in ({}, b"", b"x")),
    *(
        ("PUT", f"queues/%2F/n{at}", {"durable": True, "node": node})
        for at, node in enumerate(("{last}", "nobody", "nobody@nowhere", "", 5, None, ["{last}"]))
    ),
    *(
        ("PUT", f"queues/%2F/a{at}", {"durable": True, "arguments": arguments})
        for at, arguments in enumerate(
            (
                {"x-queue-leader-locator": "nearest"},
                {"x-queue-master-locator": "nearest"},
                {"x-queue-master-locator": "min-masters"},
                {"x-queue-master-locator": 5},
                {"x-ha-policy": "all"},
                {"x-ha-policy": 5},
                {"x-queue-type": "quorum", "x-queue-leader-locator": "nearest"},
                {"x-queue-type": "quorum", "x-queue-leader-locator": 5},
                {"x-queue-type": "quorum", "x-queue-leader-locator": "random"},
                {"x-queue-type": "quorum", "x-queue-leader-locator": ""},
                {"x-queue-type": "quorum", "x-quorum-initial-group-size": 0},
                {"x-queue-type": "quorum", "x-quorum-initial-group-size": -1},
                {"x-queue-type": "quorum", "x-quorum-initial-group-size": 99},
                {"x-queue-type": "quorum", "x-quorum-initial-group-size": "3"},
                {"x-queue-type": "stream", "x-initial-cluster-size": 0},
                {"x-queue-type": "stream", "x-initial-cluster-size": 99},
                {"x-queue-type": "stream", "x-queue-leader-locator": "nearest"},
                {"x-queue-type": "stream", "x-quorum-initial-group-size": 3},
                {"x-queue-type": "quorum", "x-initial-cluster-size": 3},
            )
        )
    ),
    *(
        ("PUT", f"policies/%2F/p{at}", {"pattern": "^none$", "definition": definition})
        for at, definition in enumerate(
            (
                {"ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "automatic"},
                {"ha-mode": "exactly", "ha-params": 0},
                {"ha-mode": "exactly"},
                {"ha-mode": "nodes", "ha-params": ["nobody@nowhere"]},
                {"ha-mode": "nodes", "ha-params": []},
                {"ha-mode": "nodes", "ha-params": "{last}"},
                {"ha-mode": "all", "ha-params": 2},
                {"ha-mode": "some"},
                {"ha-params": 2},
                {"ha-sync-mode": "automatic"},
                {"ha-mode": "all", "ha-sync-batch-size": 0},
                {"ha-mode": "all", "ha-promote-on-shutdown": "never"},
                {"ha-mode": "all", "ha-promote-on-failure": "when-synced"},
                {"queue-leader-locator": "nearest"},
                {"queue-leader-locator": "balanced"},
                {"queue-master-locator": "nearest"},
                {"queue-master-locator": "min-masters"},
                {"initial-cluster-size": 0},
                {"initial-cluster-size": 3},
            )
        )
    ),
)
#: What is answered otherwise, and why.
ODD_DIFFERENT = {
    "RabbitMQ fails with 500: 4xx, or taken as if it were not said": (
        *("GET nodes/nobody@nowhere", "HEAD nodes/nobody@nowhere", "GET nodes/%20{own}"),
        "PUT cluster-name {'name': 5}",
        *(
            f"PUT queues/%2F/n{at} {{'durable': True, 'node': {node!r}}}"
            for at, node in ((4, 5), (5, None), (6, ["{last}"]))
        ),
    ),
    "an unknown node without a host is named as it was given": (
        *(f"PUT queues/%2F/n{at} {{'durable': True, 'node': {node!r}}}" for at, node in ((1, "nobody"), (3, ""))),
    ),
    "`leveret ctl forget` has this route": ("OPTIONS nodes/{own}",),
    "the listeners are others": ("GET health/checks/port-listener/0", "GET health/checks/protocol-listener/nope"),
    "a port has at most nine digits": ("GET health/checks/port-listener/99999999999",),
    "RabbitMQ says it in Erlang's words": (
        *(
            f"PUT queues/%2F/a{at} {{'durable': True, 'arguments': {{'x-queue-master-locator': {value!r}}}}}"
            for at, value in ((1, "nearest"), (3, 5))
        ),
    ),
}
#: Answers by stage and path, of the node that leads, or of one that stays up: (status, what it says).
Answers = dict[str, dict[str, tuple[int, Any]]]

#: Names that RabbitMQ has in a cluster, and Leveret has not.
NOT_HERE = {
    "a link has no figures of its own in the API: leveret_cluster_link_* of the metrics": {"cluster_links"},
    "each queue is on every node: there are no mirrors to list": {
        *("slave_nodes", "synchronised_slave_nodes", "recoverable_slaves", "slave_pids", "synchronised_slave_pids"),
    },
}
#: Names that Leveret has beside: at the top of a row.
MORE = {
    "nodes": {"being_drained"},  # of 3.13; rabbitmqadmin 2 requires it, also of a node that is down
    "queues": {"leader", "leveret", "consumer_capacity", "consumer_utilisation"},  # also of streams; our own
    "overview": set(),
    "vhosts": {"recv_oct", "send_oct"},  # RabbitMQ shows them from the first connection on
}
_HELD = "publishers are blocked, which is an alarm: `replication`"
#: (stage, check) -> why the status is another one.
OTHER_STATUS = {
    ("two down", "alarms"): _HELD,
    ("two down", "local-alarms"): _HELD,
    ("two down", "healthchecks/node"): _HELD,
}
#: Checks whose answer depends on which mirrors RabbitMQ has synchronised by then.
OPEN = {"node-is-mirror-sync-critical"}


def snapshot(api: ApiClient) -> dict[str, tuple[int, Any]]:
    """What one node says."""
    paths = [*LISTS, *(f"health/checks/{check}" for check in CHECKS), "healthchecks/node"]
    return {path: (answer.status, answer.json) for path in paths for answer in (api.ask("GET", path),)}


def odd_answers(api: ApiClient, own: str, last: str) -> dict[str, tuple[int, Any]]:
    """The answers by request, with the names of nodes taken out of them."""
    found = {}
    names = {"{own}": own, "{last}": last, "{encoded}": own.replace("@", "%40")}

    def named(text: str) -> str:
        for word, name in names.items():
            text = text.replace(word, name)
        return text

    reads = ((*one.split(" ", 1), None) for one in ODD_READS)
    for method, path, body in (*reads, *ODD_CHANGES):
        sent = body if body is None or isinstance(body, bytes) else json.loads(named(json.dumps(body)))
        answer = api.ask(method, named(path), sent)
        said = answer.body.decode()
        for word, name in names.items():
            said = said.replace(name, word)
        allowed = answer.headers.get("allow", "")
        try:
            value = json.loads(said) if said else None
        except ValueError:
            value = said
        what = f"{method} {path}" + ("" if body is None else f" {body!r}")
        found[what] = answer.status, value if answer.status >= 400 else ", ".join(sorted(allowed.split(", ")))
    return found


def declare(api: ApiClient) -> None:
    """A queue of each kind."""
    assert api.ask("PUT", "policies/%2F/ha", {"pattern": "^ha$", "definition": {"ha-mode": "all"}}).status == 201
    for kind, name in QUEUES.items():
        arguments = {} if kind == "mirrored" else {"x-queue-type": kind}
        assert api.ask("PUT", f"queues/%2F/{name}", {"durable": True, "arguments": arguments}).status == 201


def running(api: ApiClient, count: int) -> None:
    """Wait until so many nodes run."""

    def look() -> bool:
        answer = api.ask("GET", "nodes")
        rows = answer.json if answer.status == 200 else []
        up = [one for one in rows if one["running"]]
        return len(rows) == len(NAMES) and len(up) == count and all("mem_used" in one for one in up)

    until(look, f"{count} nodes")


@pytest.fixture(scope="module")
def theirs() -> Iterator[Answers]:
    """RabbitMQ's, of its first node."""
    with rabbitmq_cluster(has_consoles=True) as peers:
        api = ApiClient(f"http://127.0.0.1:{peers[0].console_port}")
        running(api, 3)
        declare(api)
        until(lambda: all("messages" in one for one in api.get("queues")), "statistics of queues")
        found = {}
        for stage, peer in zip(STAGES, (None, *peers[:0:-1])):
            if peer is not None:
                assert peer.processes is not None
                os.kill(peer.processes.process.pid, signal.SIGKILL)
            running(api, 3 - STAGES.index(stage))
            found[stage] = snapshot(api)
            if peer is None:
                own, _, last = (f"peer{one.port}@localhost" for one in peers)
                found["odd"] = odd_answers(api, own, last)
        yield found


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    """Ours, of the leader."""
    with cluster_nodes(tmp_path_factory.mktemp("cluster")) as nodes:
        nodes.start_all()
        nodes.await_in_sync()
        leader = nodes.leader()
        api = ApiClient(nodes.console(leader))
        running(api, 3)
        declare(api)
        found = {}
        gone = others(leader)
        for stage, name in zip(STAGES, (None, *gone)):
            if name is not None:
                nodes.kill(name)
            running(api, 3 - STAGES.index(stage))
            if stage == "one down":
                until(lambda: len(nodes.in_sync()) == 2, "the node left the set")
            if stage == "two down":
                until(lambda: api.ask("GET", "health/checks/alarms").status == 503, "publishers are blocked")
            found[stage] = snapshot(api)
            if name is None:
                found["odd"] = odd_answers(api, f"rabbit@{leader}", f"rabbit@{gone[0]}")
        yield found


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("path", LISTS)
def test_names_and_types(path: str, stage: str, theirs: Answers, ours: Answers) -> None:
    """What RabbitMQ shows is there, of the same type, or listed; rows of nodes that are down are alike."""
    (their_status, their_rows), (status, rows) = theirs[stage][path], ours[stage][path]
    assert status == their_status == 200
    left_out = set().union(*NOT_HERE.values())
    if path == "nodes":
        both = [[one for one in all_ if not one["running"]] for all_ in (their_rows, rows)]
        assert [sorted({*one, "being_drained"}) for one in both[0]] == [sorted(one) for one in both[1]]
        their_rows, rows = ([one for one in all_ if one["running"]] for all_ in (their_rows, rows))
    found = [one for one in missing(their_rows, rows, path) if one.split(":")[0].rpartition(".")[2] not in left_out]
    assert list(dict.fromkeys(found)) == []
    if isinstance(rows, list):
        more = {name for one in rows for name in one} - {name for one in their_rows for name in one}
        assert {name.removesuffix("_details") for name in more} == MORE[path] & more


@pytest.mark.parametrize("stage", STAGES)
def test_health_checks(stage: str, theirs: Answers, ours: Answers) -> None:
    """Status, and the names and texts of what failed; ours has `detail` beside."""
    differing = set()
    for path in (*(f"health/checks/{check}" for check in CHECKS), "healthchecks/node"):
        (their_status, their_body), (status, body) = theirs[stage][path], ours[stage][path]
        check = path.removeprefix("health/checks/")
        if status != their_status:
            differing.add(check)
            continue
        assert body["status"] == their_body["status"]
        assert (body.get("reason"), body.keys() - {"detail"}) == (their_body.get("reason"), their_body.keys()), path
        for one in their_body.get("queues", ()):
            assert sorted(one) == sorted(body["queues"][0])
            assert one["type"] == body["queues"][0]["type"]
    assert differing - OPEN == {check for there, check in OTHER_STATUS if there == stage}


def test_odd_requests(theirs: Answers, ours: Answers) -> None:
    """Encoded names, other methods, unknown nodes, arguments and policies about places: status and text."""
    listed = [one for requests in ODD_DIFFERENT.values() for one in requests]
    different = [one for one, answer in theirs["odd"].items() if answer != ours["odd"][one]]
    assert sorted(different) == sorted(listed)


def test_members_of_a_quorum_queue(theirs: Answers, ours: Answers) -> None:
    """All nodes are members; the virtual host runs on those that run. RabbitMQ shows for some time who was online."""
    for answers in (theirs, ours):
        for stage, online in zip(STAGES, (3, 2, 1)):
            (queue,) = (one for one in answers[stage]["queues"][1] if one["name"] == "qq")
            up = {one["name"] for one in answers[stage]["nodes"][1] if one["running"]}
            assert (len(queue["members"]), len(up)) == (3, online)
            assert set(answers[stage]["vhosts"][1][0]["cluster_state"]) == up
            if answers is ours:
                assert set(queue["online"]) == up and queue["leader"] in up
