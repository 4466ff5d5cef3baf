"""Perl's clients say `AMQP 1 1 0 9` and then speak 0-9-1: connect, publish, confirm, consume, acknowledge, close."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_process import leveret_serve
from etcd_servers import ETCD, WHY_NOT

from leveret.interop.brokers.follower import leveret_follower
from leveret.interop.brokers.peers import Peer
from leveret.interop.wire.loopback import LOOPBACK

SCRIPTS = Path(__file__).with_name("perl")
#: Script -> the modules that it needs, and what it prints.
CLIENTS = {
    "anyevent": (
        ["AnyEvent::RabbitMQ"],
        """connected
channel
confirms
exchange
queue
bound
consuming
20 confirmed, got in order: yes
another channel
refused with 404
deleted
closed
""",
    ),
    "mojo": (
        ["Mojo::RabbitMQ::Client"],
        """connected
channel
queue
consuming
20 got in order: yes
closed
""",
    ),
    "net_amqp": (
        ["Net::AMQP", "AnyEvent::RabbitMQ"],  # the second has the specification that the first reads
        """Connection::Start
version 0.9
Connection::Tune
Connection::OpenOk
Channel::OpenOk
Queue::DeclareOk
Basic::ConsumeOk
Basic::Deliver
type text/plain
got body
Connection::CloseOk
""",
    ),
}


def lacking(modules: list[str]) -> str:
    """Why a script can't run here, or ""."""
    try:
        done = subprocess.run(["perl", *(f"-M{module}" for module in modules), "-e1"], capture_output=True, check=False)
    except FileNotFoundError:
        return "no perl here"
    return f"perl has no {' or '.join(modules)} here (make peers)" if done.returncode else ""


def check(name: str, port: int) -> None:
    """A client does what its script says at a broker; the scripts print the same at RabbitMQ."""
    modules, expected = CLIENTS[name]
    if reason := lacking(modules):
        pytest.skip(reason)
    command = ["perl", str(SCRIPTS / f"{name}.pl"), LOOPBACK, str(port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert (done.stdout, done.stderr) == (expected, "")


@pytest.mark.parametrize("name", CLIENTS)
def test_perl(name: str, tmp_path: Path) -> None:
    """At one node."""
    with leveret_serve(tmp_path) as broker:
        check(name, broker.port)


@pytest.fixture(scope="module")
def follower() -> Iterator[Peer]:
    """Of a cluster of three nodes."""
    with leveret_follower() as peer:
        yield peer


@pytest.mark.cluster
@pytest.mark.skipif(ETCD is None, reason=WHY_NOT)
@pytest.mark.parametrize("name", CLIENTS)
def test_perl_through_a_follower(follower: Peer, name: str) -> None:
    """At a node of a cluster that does not lead."""
    check(name, follower.port)
