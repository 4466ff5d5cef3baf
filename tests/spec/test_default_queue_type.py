"""A virtual host's default queue type: declarations that say none are as if they had said it.

Set by `leveret ctl vhosts add` here, by rabbitmqctl with LEVERET_SPEC_PEER=rabbitmq. Source: RabbitMQ 3.10.8, probed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from rawclient import Client
from spec_broker import SpecBroker, expect_channel_close

QUORUM, CLASSIC = {"x-queue-type": "quorum"}, {"x-queue-type": "classic"}


@pytest.fixture(params=["quorum", "stream", "classic"])
def default(request: pytest.FixtureRequest) -> str:
    """The type."""
    return str(request.param)


def ruled(broker: SpecBroker, default: str) -> Iterator[Client]:
    """A client in a virtual host of its own."""
    if broker.peer is None:
        pytest.skip("nobody rules this broker")
    name = f"typed-{default}"
    broker.rule("add_vhost", name, "--default-queue-type", default)
    broker.rule("set_permissions", "-p", name, "guest", ".*", ".*", ".*")
    try:
        yield broker.open(vhost=name)
    finally:
        broker.clean_up()
        broker.rule("delete_vhost", name)


@pytest.fixture
def client(broker: SpecBroker, default: str) -> Iterator[Client]:
    """In a virtual host with that default."""
    yield from ruled(broker, default)


@pytest.fixture
def in_quorum(broker: SpecBroker) -> Iterator[Client]:
    """In one where queues are quorum queues."""
    yield from ruled(broker, "quorum")


def refused(client: Client, text: str, **said: Any) -> None:
    """406 with the text; the channel is opened anew."""
    client.send("queue.declare", **said)
    expect_channel_close(client, 406, text, (50, 10))
    client.call("channel.open")


def test_a_durable_queue_is_of_that_type(client: Client, default: str) -> None:
    """And has the argument: who says the same is welcome, who says another is not."""
    client.call("queue.declare", queue="d", durable=True)
    client.call("queue.declare", queue="d", durable=True)
    client.call("queue.declare", queue="d", durable=True, arguments={"x-queue-type": default})
    other = "quorum" if default == "classic" else "classic"
    refused(
        client,
        f"PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'd' in vhost 'typed-{default}': "
        f"received '{other}' but current is '{default}'",
        queue="d",
        durable=True,
        arguments={"x-queue-type": other},
    )


@pytest.mark.parametrize("said", [{}, {"exclusive": True}, {"durable": True, "auto_delete": True}])
def test_what_cannot_be_of_that_type_is_classic(in_quorum: Client, said: dict[str, Any]) -> None:
    """Transient, exclusive, auto-delete queues: as ever, with the arguments of classic ones."""
    in_quorum.call("queue.declare", queue="c", arguments={"x-max-priority": 3}, **said)


def test_who_says_a_type_gets_it(in_quorum: Client) -> None:
    """Then a declaration without one means another queue."""
    in_quorum.call("queue.declare", queue="c", durable=True, arguments=CLASSIC)
    refused(
        in_quorum,
        "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'c' in vhost 'typed-quorum': "
        "received 'quorum' but current is 'classic'",
        queue="c",
        durable=True,
    )


def test_refusals_speak_of_the_type(in_quorum: Client) -> None:
    """Arguments that it lacks; names that the server gives."""
    refused(
        in_quorum,
        "PRECONDITION_FAILED - invalid arg 'x-max-priority' for queue 'p' in vhost 'typed-quorum' "
        "of queue type rabbit_quorum_queue",
        queue="p",
        durable=True,
        arguments={"x-max-priority": 3},
    )
    refused(
        in_quorum,
        "PRECONDITION_FAILED - Cannot declare a server-named queue for type rabbit_quorum_queue",
        queue="",
        durable=True,
    )
    in_quorum.call("queue.declare", queue="")
