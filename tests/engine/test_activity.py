"""What is counted beside the messages of queues: clients, channels, declarations, and how publishes ended."""

import pytest

from leveret.engine import Broker, Client, Envelope, ManualClock, User


@pytest.fixture
def broker() -> Broker:
    return Broker(ManualClock())


@pytest.fixture
def client(broker: Broker) -> Client:
    return broker.connections.open("/", User("guest"), name="one", flush=lambda: None)


def test_clients_and_channels_come_and_go_once(broker: Broker, client: Client) -> None:
    """Closing twice is closing once."""
    session = client.open_session(1)
    client.open_session(2)
    session.close()
    session.close()
    client.close()
    client.close()
    activity = broker.context.activity
    assert (activity.connections_opened, activity.connections_closed) == (1, 1)
    assert (activity.channels_opened, activity.channels_closed) == (2, 2)


def test_declarations(broker: Broker, client: Client) -> None:
    """One queue, declared three times, deleted once."""
    for _ in range(2):
        client.vhost.queues.declare("q", client=client)
    client.vhost.queues.declare_passive("q", client)
    client.vhost.queues.delete("q", client)
    activity = broker.context.activity
    assert (activity.queues_declared, activity.queues_created, activity.queues_deleted) == (3, 1, 1)


def test_what_happened_in_deleted_queues_is_kept_by_type(broker: Broker, client: Client) -> None:
    """Those of classic ones are what the rest leaves of the broker's."""
    from leveret.engine import Field

    vhost = client.vhost
    session = client.open_session()
    for name, arguments in (("c", {}), ("s", {"x-queue-type": Field("S", b"quorum")})):
        vhost.queues.declare(name, client=client, durable=True, arguments=arguments)
        session.publish(vhost.router.route("", name, client.user), Envelope("", name), [b"1", b"2"], mandatory=False)
        vhost.queues.delete(name, client)
    assert {kind: one.enqueued for kind, one in broker.context.activity.gone.items()} == {"quorum": 2}
    assert broker.context.counters.enqueued == 4


def test_deliveries_by_sort(broker: Broker, client: Client) -> None:
    """Consumed or got, with or without acknowledgements, for the first time or again; gets of nothing."""
    vhost = client.vhost
    queue = vhost.queues.declare("q", client=client)
    session = client.open_session()
    route = vhost.router.route("", "q", client.user)

    def publish(count: int) -> None:
        session.publish(route, Envelope("", "q"), [b"x"] * count, mandatory=False)
        broker.end_turn()

    assert session.get(queue, no_ack=True) is None
    publish(2)
    session.get(queue, no_ack=True)
    session.get(queue, no_ack=False)
    session.recover()
    session.get(queue, no_ack=False)
    session.consume(queue, "free", no_ack=True, exclusive=False, arguments={})
    publish(3)
    session.cancel("free")
    publish(1)
    session.consume(queue, "free", no_ack=True, exclusive=False, arguments={})
    broker.end_turn()
    session.cancel("free")
    session.consume(queue, "c", no_ack=False, exclusive=False, arguments={})
    publish(4)
    session.recover()
    broker.end_turn()
    counters = queue.counters
    assert counters.get_empty == 1
    assert (counters.got, counters.got_no_ack) == (3, 1)
    assert counters.no_ack == 1 + 3 + 1
    assert counters.redelivered == 1 + 5, "one got again, then that one and four more"
    assert counters.delivered - counters.got - (counters.no_ack - counters.got_no_ack) == 4 + 5


def test_confirms_and_returns(broker: Broker, client: Client) -> None:
    """Of a closed session what it was told stays; unroutable publishes are returned or dropped."""
    vhost = client.vhost
    vhost.queues.declare("q", client=client)
    session = client.open_session()
    session.select_confirms()
    session.publish(vhost.router.route("", "q", client.user), Envelope("", "q"), [b"1"] * 3, mandatory=False)
    nowhere = vhost.router.route("", "nowhere", client.user)
    session.publish(nowhere, Envelope("", "nowhere"), [b"1"] * 2, mandatory=True)
    session.publish(nowhere, Envelope("", "nowhere"), [b"1"], mandatory=False)
    assert session.confirms is not None
    session.confirms.add(1, [0])
    session.confirms.take()
    session.publish(nowhere, Envelope("", "nowhere"), [b"1"], mandatory=False)
    session.close()
    activity = broker.context.activity
    assert (activity.confirmable, activity.confirmed) == (8, 6)
    assert (activity.returned, activity.dropped) == (2, 2)


def test_what_the_broker_publishes_itself(broker: Broker, client: Client) -> None:
    """A dead letter is published, by nobody."""
    from leveret.engine import Field

    vhost = client.vhost
    arguments = {"x-dead-letter-exchange": Field("S", b""), "x-dead-letter-routing-key": Field("S", b"dead")}
    queue = vhost.queues.declare("q", client=client, arguments=arguments)
    vhost.queues.declare("dead", client=client)
    session = client.open_session()
    session.publish(vhost.router.route("", "q", client.user), Envelope("", "q"), [_content()], mandatory=False)
    got = session.get(queue, no_ack=False)
    assert got is not None
    session.reject(got[0], requeue=False)
    while broker.end_turn():
        pass
    assert (broker.context.counters.published, broker.context.activity.own) == (2, 1)
    assert queue.counters.deaths == {("rejected", True): 1}
    vhost.queues.delete("q", client)
    assert broker.context.counters.deaths == {("rejected", True): 1}


def _content() -> bytes:
    from leveret.engine import NATIVE, encode_header

    return NATIVE.join(encode_header(1, {}), b"x")
