"""What a node that does not lead answers without a login, on its own machine and elsewhere."""

import json
import socket
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from leveret.amqp_frontend.edge.arrival import Arrival
from leveret.cluster.agreement.states import State
from leveret.console.cluster import ClusterFacts, NodeFacts
from leveret.console.node_facts import Certificate, HostFacts, Listening
from leveret.serving import node_pages
from leveret.serving.gate_client import GateClient, Service
from leveret.serving.node_pages import ANSWER_S, HEAD_MAX, NodeChecks, NodePages
from leveret.settings import Configuration, load_configuration

TLS = Listening("amqp/ssl", "10.0.0.1", 5671, True)
FACTS = ClusterFacts(
    "rabbit@a", None, (NodeFacts("rabbit@a", is_running=True, listeners=(TLS,)), NodeFacts("rabbit@b")), 2
)
#: Path of a check that fails -> what of its details another machine is not told.
FAILING = {
    "alarms": "rabbit@a",
    "certificate-expiration/1/days": "/etc/leveret/own.pem",
    "port-listener/1": "5671",
    "protocol-listener/mqtt": "amqp/ssl",
    "ready-to-serve-clients": "no node of this cluster leads",
    "reached-target-cluster-size": "target",
}


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> NodePages:
    """Of the node `a`, whose leader is lost; `b` is down."""
    monkeypatch.setattr(node_pages, "cluster_status", lambda node: {"address": "10.0.0.1:5671"})
    report: Any = SimpleNamespace(facts=lambda: FACTS, alarms=lambda: [("rabbit@a", "disk")])
    checks = NodeChecks(report, "/nowhere", lambda: [Certificate(TLS, "/etc/leveret/own.pem", (1,))])
    node: Any = SimpleNamespace(agreement=SimpleNamespace(state=State.CAMPAIGNING), is_open=True)
    configuration, _ = load_configuration([("a.toml", "[management]\nmetrics-open = true\n")])
    return NodePages(node, report, checks, lambda: configuration)


@pytest.mark.parametrize("path, detail", FAILING.items())
def test_health_checks_have_details_on_loopback_alone(pages: NodePages, path: str, detail: str) -> None:
    """Their status is what probes and load balancers need."""
    answers = {
        is_loopback: pages.page("GET", f"/api/health/checks/{path}", is_loopback=is_loopback)
        for is_loopback in (True, False)
    }
    assert answers[False] == ("503 Service Unavailable", b'{"status":"failed"}')
    status, body = answers[True]
    assert status == "503 Service Unavailable" and detail in str(json.loads(body))


def test_probes_are_answered_everywhere(pages: NodePages) -> None:
    """Those of an orchestrator come from another machine."""
    assert pages.page("GET", "/health/live", is_loopback=False)[0] == "200 OK"
    lost = b"no node of this cluster leads\n"
    assert pages.page("GET", "/health/ready", is_loopback=False) == ("503 Service Unavailable", lost)
    assert pages.page("GET", "/api/health/checks/is-in-service", is_loopback=False) == ("200 OK", b'{"status":"ok"}')


def test_a_path_that_is_not_text_names_no_node(pages: NodePages) -> None:
    """As at the node that leads."""
    status, body = pages.page("GET", "/api/healthchecks/node/%ff", is_loopback=False)
    assert (status, json.loads(body)["reason"]) == ("400 Bad Request", "the path has octets that are not UTF-8")


@pytest.mark.parametrize(
    "own, leader, status",
    [
        ({}, "rabbit@b", "200 OK"),
        ({}, None, "503 Service Unavailable"),
        ({"is_drained": True}, "rabbit@b", "503 Service Unavailable"),
    ],
    ids=["linked", "no link to a leader", "drained"],
)
def test_a_follower_is_ready_while_it_can_pass_clients_on(
    monkeypatch: pytest.MonkeyPatch, own: dict[str, Any], leader: str | None, status: str
) -> None:
    """Whatever its state in the agreement: a load balancer sends it clients."""
    node = NodeFacts("rabbit@a", is_running=True, host=HostFacts(1, 2, 100, 4, 5, 6, 7, 8), **own)
    report: Any = SimpleNamespace(facts=lambda: ClusterFacts("rabbit@a", leader, (node,), 1), alarms=list)
    member: Any = SimpleNamespace(agreement=SimpleNamespace(state=State.IN_SYNC), is_open=True)
    pages = NodePages(member, report, NodeChecks(report, "/nowhere", list), lambda: Configuration())
    assert pages.page("GET", "/health/ready", is_loopback=False)[0] == status


@pytest.mark.parametrize("path", ["/health/ready", "/cluster", "/metrics", "/api/health/checks/alarms"])
def test_a_node_that_opens_its_directory_says_so(path: str) -> None:
    """It knows nothing yet: no id, no state. Clients and probes come before that."""
    unopened: Any = SimpleNamespace(is_open=False)
    pages = NodePages(unopened, unopened, unopened, load_configuration)  # type: ignore[arg-type]
    status, body = pages.page("GET", path, is_loopback=True)
    assert status == "503 Service Unavailable" and b"this node opens its data directory" in body
    assert pages.page("GET", "/health/live", is_loopback=True) == ("200 OK", b"alive\n")


def test_the_state_of_the_cluster_is_for_the_node_s_own_machine(pages: NodePages) -> None:
    """It has addresses, paths and process ids; `metrics-open` is about names in metrics."""
    assert pages.page("GET", "/cluster", is_loopback=False) == ("401 Unauthorized", b"")
    assert b"10.0.0.1:5671" in pages.page("GET", "/cluster", is_loopback=True)[1]


@pytest.mark.parametrize(
    "header, has_details", [("host: a", True), ("X-Forwarded-For: 1.2.3.4", False), ("forwarded: x", False)]
)
def test_what_comes_by_a_proxy_of_this_machine_comes_from_elsewhere(
    pages: NodePages, header: str, has_details: bool
) -> None:
    """Its clients are told no details."""

    answer = trio.run(answered, pages, Service.CONSOLE, header)
    assert answer.startswith(b"HTTP/1.1 503") and (b"rabbit@a" in answer) is has_details


@pytest.mark.parametrize(
    "method, path, status, allow",
    [
        ("OPTIONS", "/api/health/checks/alarms", b"200 OK", b"HEAD, GET, OPTIONS"),
        ("PUT", "/api/health/checks/alarms", b"405 Method Not Allowed", b"HEAD, GET, OPTIONS"),
        ("POST", "/health/ready", b"405 Method Not Allowed", b"HEAD, GET"),
        ("PUT", "/api/health/checks/nope", b"404 Not Found", None),
    ],
)
def test_methods(pages: NodePages, method: str, path: str, status: bytes, allow: bytes | None) -> None:
    """As at the leader: a path says which methods it has."""
    head, _, body = trio.run(partial(answered, pages, Service.CONSOLE, line=f"{method} {path}")).partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 " + status
    assert [line.partition(b": ")[2] for line in lines if line.startswith(b"allow")] == ([allow] if allow else [])
    assert (body == b"") is (allow is not None)


def test_the_answer_to_head_has_no_body(pages: NodePages) -> None:
    """A load balancer that reads it would take it for the beginning of the next answer."""
    head, _, body = trio.run(partial(answered, pages, Service.CONSOLE, line="HEAD /health/live")).partition(b"\r\n\r\n")
    assert b"content-length: 6" in head and body == b""


def test_checks_are_not_at_the_metrics_port(pages: NodePages) -> None:
    """As at the leader, whose broker answers."""
    assert trio.run(answered, pages, Service.METRICS).startswith(b"HTTP/1.1 404")


async def answered(
    pages: NodePages, service: Service, header: str = "host: a", line: str = "GET /api/health/checks/alarms"
) -> bytes:
    """To a client on this machine, which asks for alarms."""
    client, served = socket.socketpair()
    served.setblocking(False)
    client.send(f"{line} HTTP/1.1\r\n{header}\r\n\r\n".encode())
    with client, served:
        await pages.answer(GateClient(Arrival(served, ("127.0.0.1", 5)), service))
        return client.recv(10_000)


@pytest.mark.parametrize("sent", [b"GET /health/li", b"GET /health/live HTTP/1.1\r\n" + b"x" * HEAD_MAX])
def test_a_request_that_does_not_end_is_not_waited_for(pages: NodePages, sent: bytes) -> None:
    """It is closed after a while; a head that is too large is answered as far as it came."""

    async def main() -> bytes:
        client, served = socket.socketpair()
        served.setblocking(False)
        with client, served:
            client.sendall(sent)
            with trio.fail_after(10 * ANSWER_S):
                await pages.answer(GateClient(Arrival(served, ("127.0.0.1", 5)), Service.CONSOLE))
            assert (trio.current_time() - began_s >= ANSWER_S) is (len(sent) < HEAD_MAX)
            client.setblocking(False)
            with suppress(BlockingIOError):
                return client.recv(1000)
            return b""

    clock = trio.testing.MockClock(autojump_threshold=0)
    began_s = clock.current_time()
    assert trio.run(main, clock=clock).startswith(b"HTTP/1.1 200") is (len(sent) > HEAD_MAX)
