"""A broker of this process that leads: held, silent, quiet and ended; and the clients that other nodes pass to it."""

import functools
import math
import socket
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from leveret.amqp_frontend.edge.arrival import Arrival
from leveret.cluster.agreement.view import Leader
from leveret.cluster.link.challenge import Credentials
from leveret.cluster.link.client_header import ClientTls, client_header
from leveret.cluster.link.clients import Passed as Outcome
from leveret.cluster.link.options import LinkTls
from leveret.operator.json_file import JsonFile
from leveret.serving.cluster_sites import site_of
from leveret.serving.composition import DataUnusable
from leveret.serving.gate import Frontends
from leveret.serving.gate_client import GateClient, Service
from leveret.serving.runtime import Runtime
from leveret.serving.served_broker import IMPORTED, ServedBroker, digest_of
from leveret.serving.served_leadership import ServedLeadership
from leveret.serving.served_node import ServedNode
from leveret.settings import Configuration, load_configuration
from leveret.testing.harness import Harness

REASON = "replication: 1 of 2 nodes in sync"


class Bench:
    """A leadership around a broker that is there, in a process that is not."""

    def __init__(self) -> None:
        self.broker = Harness().broker
        self.runtime = Runtime(self.broker, sleeps=False)
        self.abandoned = 0
        served: Any = SimpleNamespace(
            runtime=self.runtime, built=SimpleNamespace(broker=self.broker), abandon=self._abandon
        )
        self.leadership = ServedLeadership(served, None, (), None)  # type: ignore[arg-type]

    def _abandon(self) -> None:
        self.abandoned += 1

    @property
    def is_held(self) -> bool:
        return self.broker.flow.replication.is_full


def test_publishers_are_held_and_released() -> None:
    """A new reason replaces the one before."""
    bench = Bench()
    bench.leadership.hold(REASON)
    bench.leadership.hold(f"{REASON}!")
    assert bench.is_held and bench.broker.flow.replication.reason == f"{REASON}!"
    bench.leadership.resume()
    assert not bench.is_held


def test_publishers_are_told_at_once() -> None:
    """By the end of a turn: no other one may come while they wait."""
    bench, turns = Bench(), []
    bench.runtime.end_turn = lambda: turns.append(bench.is_held)  # type: ignore[method-assign]
    bench.leadership.hold(REASON)
    bench.leadership.resume()
    assert turns == [True, False]


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_broker_that_was_silent_reads_and_sends_again(goes_on: bool) -> None:
    """Also while publishers are blocked: consumers are served."""
    bench = Bench()
    bench.leadership.suspend()
    assert bench.runtime.suspended is not None and bench.runtime.is_silent
    if goes_on:
        bench.leadership.resume()
    else:
        bench.leadership.hold(REASON)
    assert bench.runtime.suspended is None and not bench.runtime.is_silent and bench.is_held is not goes_on


def test_the_lead_is_handed_over_behind_the_last_turn() -> None:
    """What long turns still write is before the LSN that the next leader must have."""

    class Turns:
        is_quiet = has_resigned = False
        ended = 0

        def quiesce(self) -> None:
            self.is_quiet = True

        def end_turn(self) -> None:
            assert self.is_quiet
            self.ended += 1

    turns = Turns()

    class Broker:
        @property
        def is_unfinished(self) -> bool:
            return turns.ended < 3

    class Journal:
        @property
        def next_lsn(self) -> int:
            return 10 + turns.ended

    built = SimpleNamespace(broker=Broker(), supervisor=SimpleNamespace(journal=Journal()))
    served: Any = SimpleNamespace(runtime=turns, built=built)
    leadership = ServedLeadership(served, None, (), None)  # type: ignore[arg-type]
    assert trio.run(leadership.quiesce) == 13


def test_a_broker_that_resigned_has_no_turns_and_no_connections() -> None:
    """Its frontends close their clients at once."""
    bench = Bench()
    closed: list[bool] = []
    bench.runtime.on_resign.append(lambda: closed.append(True))
    bench.leadership.resign()
    assert bench.runtime.has_resigned and closed == [True] and bench.abandoned == 1


def test_a_node_says_that_it_leads_only_while_its_broker_is_served() -> None:
    """It may resign while the broker is built: then it holds clients, and nothing else would say that it follows."""
    broker, seen = Harness().broker, []

    async def run(*_: object) -> None:
        seen.append(report.leader_facts)

    built = SimpleNamespace(broker=broker, control=SimpleNamespace(operator=SimpleNamespace(process_status=dict)))
    report: Any = SimpleNamespace(leader_facts=None)
    node: Any = SimpleNamespace(
        _build=lambda cluster: SimpleNamespace(runtime=Runtime(broker, sleeps=False), built=built, run=run),
        gate=SimpleNamespace(lent_listeners=nullcontext),
        node=SimpleNamespace(check_standstill=None),
        _node_options=SimpleNamespace(others=("b",), name="a", credentials=Credentials("orders", 0, b"")),
        _report=report,
    )
    leadership = ServedNode.build(node, None)  # type: ignore[arg-type]
    assert report.leader_facts is None
    trio.run(leadership.serve)
    assert len(seen) == 1 and seen[0] is not None and report.leader_facts is None


# -- clients of other nodes --------------------------------------------------------------------------------------------


class Passed:
    """A node whose broker leads, or does not."""

    def __init__(self, *, leads: bool = True, secret: bytes = b"") -> None:
        amqp_out, self.amqp = trio.open_memory_channel[Arrival](math.inf)
        console_out, self.console = trio.open_memory_channel[Arrival](math.inf)
        self.node: Any = SimpleNamespace(
            gate=SimpleNamespace(frontends=Frontends(amqp_out, console_out) if leads else None),
            _node_options=SimpleNamespace(
                credentials=Credentials("orders", 0, secret), tls=LinkTls(), name="a", nodes=dict.fromkeys("abc")
            ),
        )
        self.node._tls_of = functools.partial(ServedNode._tls_of, self.node)

    def serve(self, header: bytes, *, rest: bytes = b"", service: str = "amqp", node: str = "b") -> socket.socket:
        """A client that a node passes on. Returns its socket."""
        client, other = socket.socketpair()
        other.close()
        ServedNode._serve_client(self.node, client, rest, header, service, node)
        return client


HEADER = client_header(("10.1.2.3", 5000), ("10.0.0.1", 5672))


@pytest.mark.parametrize("service", ["amqp", "console"])
def test_a_client_of_another_node_has_its_own_address_and_the_frontend_that_it_wants(service: str) -> None:
    """So `guest`, who may log in from loopback alone, may not from elsewhere."""
    passed = Passed()
    client = passed.serve(HEADER, service=service)
    arrival = (passed.amqp if service == "amqp" else passed.console).receive_nowait()
    assert arrival.socket is client and arrival.address == ("10.1.2.3", 5000) and arrival.local == ("10.0.0.1", 5672)
    assert arrival.node == "rabbit@b" and arrival.site == "b" and not arrival.is_tls
    client.close()


@pytest.mark.parametrize("secret", [b"", b"a secret of the cluster"])
def test_a_certificate_is_believed_of_a_node_that_has_proven_to_be_one(secret: bytes) -> None:
    """Else any process of this machine could log in as any user. That there is TLS harms nobody."""
    passed = Passed(secret=secret)
    subject = ((("commonName", "worker"),),)
    client = passed.serve(client_header(None, None, ClientTls("TLSv1.3", "c", {"subject": subject})))
    with client:
        tls = passed.amqp.receive_nowait().tls
        assert tls is not None and (tls.protocol, tls.cipher) == ("TLSv1.3", "c")
        assert (tls.certificate or {}).get("subject") == (subject if secret else None)


@pytest.mark.parametrize(
    "how", ["no leader", "octets before it was taken", "no header", "half a header", "octets behind it", "z", "a"]
)
def test_a_client_that_cannot_be_served_is_closed(how: str) -> None:
    """In no other way would it learn that. Also of a node that is none, or that claims to be this one."""
    passed = Passed(leads=how != "no leader")
    rest = b"AMQP" if how == "octets before it was taken" else b""
    headers = {"no header": b"AMQP\0\0\x09\x01", "half a header": HEADER[:20], "octets behind it": HEADER + b"AMQP"}
    client = passed.serve(headers.get(how, HEADER), rest=rest, node=how if len(how) == 1 else "b")
    assert client.fileno() == -1
    for channel in (passed.amqp, passed.console):
        with pytest.raises(trio.WouldBlock):
            channel.receive_nowait()


def test_clients_are_passed_on_to_each_new_leader() -> None:
    """Once for each: the same one again does not end its clients."""
    passed: list[object] = []
    node: Any = SimpleNamespace(
        _passed_to=None, gate=SimpleNamespace(pass_on=passed.append), _address_of=lambda leader: leader.address
    )
    first, second = Leader(1, b"a" * 16, "a", "a:1", 3), Leader(2, b"b" * 16, "b", "b:1", 5)
    for leader in (first, first, second, second):
        ServedNode.pass_clients_on(node, leader)
    assert len(passed) == 2
    node.gate.hold, node._report = lambda: passed.append("held"), SimpleNamespace(leader_facts=None)
    ServedNode.hold_clients(node)
    ServedNode.pass_clients_on(node, second)  # it was only etcd that did not name it
    assert passed[2] == "held" and len(passed) == 4


def test_a_client_that_is_passed_on_twice_has_its_own_addresses() -> None:
    """Its socket is one of the link that it came by: with that socket's address, or none, it would count as local."""
    headers: list[bytes] = []

    async def pass_on(sock: object, first: bytes, to: object, header: bytes, service: str) -> Outcome:
        headers.append(header)
        return Outcome.SERVED

    handed: list[Any] = []
    node: Any = SimpleNamespace(
        _passed_to=None,
        gate=SimpleNamespace(pass_on=handed.append),
        _address_of=lambda leader: leader.address,
        _passer=SimpleNamespace(pass_on=pass_on),
    )
    ServedNode.pass_clients_on(node, Leader(1, b"a" * 16, "a", "a:1", 3))
    link, other = socket.socketpair()
    with link, other:
        arrival = Arrival(link, ("10.1.2.3", 5000), False, "rabbit@b", ("10.0.0.1", 5672))
        trio.run(handed[0], GateClient(arrival, Service.AMQP))
    assert headers == [HEADER]


def test_a_node_whose_site_a_reload_changed_tells_it_the_leader() -> None:
    """By a link of its own; a reload that leaves the site as it is ends no link."""
    links: list[str] = []
    node: Any = SimpleNamespace(
        _shared=SimpleNamespace(read=lambda *_: None, fingerprint=""),
        _current=SimpleNamespace(configuration=Configuration(), tls=None),
        _node_options=SimpleNamespace(tls=LinkTls()),
        _listener=SimpleNamespace(end_all=lambda: links.append("all")),
        _passer=SimpleNamespace(end_all=lambda: links.append("clients")),
        node=SimpleNamespace(
            set_fingerprint=lambda _: None, following=SimpleNamespace(reconnect=lambda: links.append("again"))
        ),
    )
    node._site = site_of(node._current.configuration)
    for group in ("", "west", "west"):
        node._current.configuration = Configuration(explicit={("cluster", "group"): group} if group else {})
        ServedNode._reloaded(node)
    assert links == ["again"] and node._site["group"] == "west"
    node._node_options.tls.has_dropped = True  # an authority, by a reload
    for _ in range(2):
        ServedNode._reloaded(node)
    assert links == ["again", "all", "clients", "again"]


def test_definitions_are_imported_once_in_a_cluster(caplog: pytest.LogCaptureFixture) -> None:
    """Not at takeovers; a file that is another one is named in the log."""
    parameters: dict[object, object] = {}
    served: Any = SimpleNamespace(built=SimpleNamespace(broker=SimpleNamespace(parameters=parameters)))
    files = [JsonFile("definitions.json", "", value) for value in ({"queues": []}, {"queues": [], "users": []})]
    assert ServedBroker._is_first_import(served, files[0])
    parameters[IMPORTED] = digest_of(files[0])
    assert not ServedBroker._is_first_import(served, files[0]) and not caplog.messages
    assert not ServedBroker._is_first_import(served, files[1])
    assert "definitions.json: is not imported" in caplog.text


def test_a_node_whose_place_is_taken_asks_for_its_name() -> None:
    """The same file on two machines, or a second process on one."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        nodes = f'"a=127.0.0.1:{other.getsockname()[1]}", "b=127.0.0.1:1"'
        text = f'[cluster]\nnode = "a"\nnodes = [{nodes}]\netcd = ["http://127.0.0.1:2"]\n'
        configuration, _ = load_configuration([("a.toml", text)])
        node: Any = SimpleNamespace(_options=SimpleNamespace(configuration=configuration))
        with pytest.raises(DataUnusable, match='address in nodes; is node = "a" right on this machine'):
            trio.run(ServedNode.run, node, lambda: None, lambda: None)
