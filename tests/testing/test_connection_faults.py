"""Faults of connections, each with a real client (pika) that shows what an application sees."""

import socket
import threading
import time
from dataclasses import replace

import pika
import pika.exceptions
import pytest
from api_client import ApiClient
from consumers import acknowledge, channel_of, consuming, keep
from pika.adapters.utils.connection_workflow import AMQPConnectorStackTimeout

from leveret.configured.configured_users import DEFAULT_GUEST
from leveret.settings import Policies, make_policy
from leveret.testing import RunningBroker, start_broker

ANY = make_policy("any", "/", ".*", {"max-length": 1})


def test_a_dropped_connection_is_a_reset(broker: RunningBroker) -> None:
    """Now, without a word: the client's next step fails, what it had unacked is there for others, redelivered."""
    with channel_of(broker.url) as channel:
        channel.queue_declare("q")
        channel.basic_publish("", "q", b"x")
        assert channel.basic_get("q")[2] == b"x"
        fault = broker.faults.drop_connection()
        assert len(fault.hits) == 1
        with pytest.raises(pika.exceptions.StreamLostError):
            channel.queue_declare("r")
    (message,) = broker.queue("q").ready
    assert message.redelivered and message.deliveries == 1


def test_a_connection_is_dropped_on_a_publish(broker: RunningBroker) -> None:
    """The third publish is lost with its connection; a confirm for it never comes."""
    with channel_of(broker.url) as channel:
        channel.queue_declare("q")
        channel.confirm_delivery()
        with broker.faults.drop_connection("basic.publish", after=2) as fault:
            channel.basic_publish("", "q", b"1")
            channel.basic_publish("", "q", b"2")
            with pytest.raises(pika.exceptions.AMQPConnectionError):
                channel.basic_publish("", "q", b"3")
        assert len(fault.hits) == 1
    broker.assert_queue("q", ready=[b"1", b"2"])


def test_a_connection_is_dropped_instead_of_an_answer(broker: RunningBroker) -> None:
    """The queue is there, and the client never hears of it."""
    with (
        channel_of(broker.url) as channel,
        broker.faults.drop_connection("queue.declare-ok"),
        pytest.raises(pika.exceptions.AMQPConnectionError),
    ):
        channel.queue_declare("q")
    assert broker.queue("q").name == "q"


@pytest.mark.parametrize("seed", range(5))
def test_a_connection_ends_in_the_middle_of_a_frame(broker: RunningBroker, seed: int) -> None:
    """A consumer gets half a delivery and then the end: nothing of it reaches the application."""
    with consuming(broker.url, "q", acknowledge, durable=False) as seen:
        broker.inject(routing_key="q", body=b"whole")
        assert seen.next() == b"whole"
        broker.settled()
        with broker.faults.drop_connection("basic.deliver", mid_frame=True, seed=seed) as fault:
            broker.inject(routing_key="q", body=b"half")
            assert isinstance(seen.end(), pika.exceptions.AMQPConnectionError)
        (hit,) = fault.hits
        assert hit.endswith("octets of a frame")
        sent, whole = (int(word) for word in hit.split() if word.isdecimal())
        assert 0 < sent < whole
        assert seen.bodies.empty()
    broker.assert_queue("q", ready=[b"half"], within=5)


def test_a_broker_that_does_not_write_does_what_it_is_asked(broker: RunningBroker) -> None:
    """Half-open, writing side: the queue is there, the client waits; when the fault ends it hears of it."""
    with channel_of(broker.url, heartbeat=0) as channel:
        fault = broker.faults.stop_writing()
        asking = threading.Thread(target=lambda: channel.queue_declare("q"))
        asking.start()
        broker.thread.submit(broker.runtime.wait_for_activity).result(20)
        assert broker.queue("q").name == "q"
        assert asking.is_alive()
        assert any(hit.startswith("kept ") for hit in fault.hits)
        fault.stop()
        asking.join(60)
        assert not asking.is_alive()


def test_a_broker_that_does_not_read_is_a_timeout_for_the_client(broker: RunningBroker) -> None:
    """Half-open, reading side: the request never arrives; when the fault ends it does, and is answered."""
    with channel_of(broker.url, heartbeat=0) as channel:
        fault = broker.faults.stop_reading()
        ended = threading.Thread(target=lambda: channel.queue_declare("q"))
        ended.start()
        with pytest.raises(LookupError):
            broker.queue("q")
        assert ended.is_alive()
        fault.stop()
        ended.join(60)
        assert not ended.is_alive()
        assert broker.queue("q").name == "q"


def test_a_half_open_broker_says_nothing_to_new_connections(broker: RunningBroker) -> None:
    """Everywhere: a connect succeeds, the handshake does not; pika gives up by its own limit."""
    parameters = pika.URLParameters(broker.url)
    parameters.stack_timeout = 0.2
    with broker.faults.half_open(vhost="*"), pytest.raises(AMQPConnectorStackTimeout):
        pika.BlockingConnection(parameters)


def test_a_channel_is_closed_with_a_code(broker: RunningBroker) -> None:
    """At once: all open channels; the connection lives on."""
    with channel_of(broker.url) as channel:
        broker.faults.close_channel(404, "NOT_FOUND - so says the fault")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
            channel.queue_declare("q")
        assert (caught.value.reply_code, caught.value.reply_text) == (404, "NOT_FOUND - so says the fault")
        again = channel.connection.channel()
        assert again.queue_declare("q").method.queue == "q"


def test_who_has_not_logged_in_yet_is_not_closed(broker: RunningBroker) -> None:
    """It has no channels and no words for it: it logs in afterwards."""
    with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as early:
        early.sendall(b"AMQP\0\0\x09\x01")
        begun = early.recv(1, socket.MSG_PEEK)
        fault = broker.faults.close_connection(320, "CONNECTION_FORCED", vhost="*")
        assert (begun, fault.hits) == (b"\x01", [])


def test_a_channel_is_closed_instead_of_an_answer(broker: RunningBroker) -> None:
    """The second declare is refused with 406, the first and the third are not."""
    with (
        channel_of(broker.url) as channel,
        broker.faults.close_channel(406, "PRECONDITION_FAILED", on="queue.declare", after=1),
    ):
        channel.queue_declare("first")
        closes: list[pika.frame.Method] = []
        channel._impl.add_callback(closes.append, [pika.spec.Channel.Close])
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
            channel.queue_declare("second")
        assert caught.value.reply_code == 406
        refused = pika.spec.Queue.Declare.INDEX
        assert [(close.method.class_id, close.method.method_id) for close in closes] == [divmod(refused, 1 << 16)]
        channel.connection.channel().queue_declare("third")
    assert [queue.name for queue in broker.queues()] == ["first", "third"]


def test_a_connection_is_closed_with_a_code(broker: RunningBroker) -> None:
    """connection.close 320, as a broker does that is stopped by its operator."""
    with channel_of(broker.url) as channel:
        broker.faults.close_connection(320, "CONNECTION_FORCED - so says the fault")
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
            channel.queue_declare("q")
        assert caught.value.reply_code == 320


def test_a_connection_is_closed_on_a_method(broker: RunningBroker) -> None:
    """Only by name: the other connection is left alone."""
    with (
        channel_of(broker.url, client_properties={"connection_name": "victim"}) as victim,
        channel_of(broker.url, client_properties={"connection_name": "other"}) as other,
        broker.faults.close_connection(541, "INTERNAL_ERROR", on="basic.consume", connection="victim"),
    ):
        victim.queue_declare("q")
        other.basic_consume("q", acknowledge)
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
            victim.basic_consume("q", acknowledge)


def test_a_fault_is_for_its_virtual_host(broker: RunningBroker) -> None:
    """The test's own by default; another one by name; all with "*"."""
    other = broker.vhost("other")
    with channel_of(broker.url) as mine, channel_of(other.url) as theirs:
        assert len(broker.faults.drop_connection(vhost="other").hits) == 1
        mine.queue_declare("q")
        with pytest.raises(pika.exceptions.StreamLostError):
            theirs.queue_declare("q")
    with broker.faults.half_open(), channel_of(other.url) as theirs:  # nothing holds up its login
        theirs.queue_declare("q")
    with channel_of(broker.url) as mine, channel_of(other.url) as theirs:
        broker.faults.close_connection(320, "CONNECTION_FORCED - here alone")
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
            mine.queue_declare("q")
        theirs.queue_declare("q")
        with broker.faults.close_channel(406, "PRECONDITION_FAILED - there", on="queue.declare", vhost="other"):
            with channel_of(broker.url) as again:
                again.queue_declare("q")
            with pytest.raises(pika.exceptions.ChannelClosedByBroker):
                theirs.queue_declare("q")
    with channel_of(broker.url) as mine, channel_of(other.url) as theirs:
        assert len(broker.faults.drop_connection(vhost="*").hits) == 2
        for channel in (mine, theirs):
            with pytest.raises(pika.exceptions.StreamLostError):
                channel.queue_declare("q")


def test_connections_are_refused(broker: RunningBroker) -> None:
    """ECONNREFUSED for new ones; old ones stay, and afterwards the port is the same."""
    with channel_of(broker.url) as channel:
        with broker.faults.refuse_connections():
            with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", broker.port)):
                pass
            with pytest.raises(pika.exceptions.AMQPConnectionError):
                pika.BlockingConnection(pika.URLParameters(broker.url))
            channel.queue_declare("still works")
        with channel_of(broker.url) as again:
            assert again.queue_declare("still works", passive=True)


def test_logins_are_refused(broker: RunningBroker) -> None:
    """As for a wrong password; so many times, of connections with that name, while open ones stay."""
    wrong = pika.URLParameters(broker.url)
    wrong.credentials = pika.PlainCredentials("guest", "wrong")
    with pytest.raises(pika.exceptions.ProbableAuthenticationError) as of_a_wrong_password:
        pika.BlockingConnection(wrong)
    with channel_of(broker.url) as channel:
        with broker.faults.refuse_login(after=1, times=1) as fault:
            with channel_of(broker.url):
                pass
            with pytest.raises(pika.exceptions.ProbableAuthenticationError) as refused:
                pika.BlockingConnection(pika.URLParameters(broker.url))
            with channel_of(broker.url):
                channel.queue_declare("still works")
        assert str(refused.value) == str(of_a_wrong_password.value) and len(fault.hits) == 1
        named = pika.URLParameters(broker.url)
        named.client_properties = {"connection_name": "worker 1"}
        with broker.faults.refuse_login(connection="worker"):
            with pytest.raises(pika.exceptions.ProbableAuthenticationError):
                pika.BlockingConnection(named)
            with channel_of(broker.url):
                pass
        pika.BlockingConnection(named).close()


def test_a_slow_network_is_slow_and_right(broker: RunningBroker) -> None:
    """30 KB at 4,000 octets and 5 ms a step take their time and arrive whole."""
    body = bytes(range(256)) * 120
    with channel_of(broker.url) as channel:
        channel.queue_declare("q")
        channel.basic_publish("", "q", body)
        broker.assert_queue("q", ready=1)
        with broker.faults.slow_network(0.005, octets=4000) as fault:
            since = time.monotonic()
            assert channel.basic_get("q", auto_ack=True)[2] == body
            assert time.monotonic() - since >= 8 * 0.005
        assert len(fault.hits) >= 8


def test_a_restart_keeps_what_is_durable(broker: RunningBroker) -> None:
    """While it is away clients are refused; afterwards durable queues hold their persistent messages."""
    with channel_of(broker.url) as channel:
        channel.exchange_declare("events", "topic", durable=True)
        channel.exchange_declare("passing", "topic")
        channel.queue_declare("kept", durable=True)
        channel.queue_declare("lost")
        channel.queue_bind("kept", "events", "#")
        for name in ("kept", "lost"):
            channel.basic_publish("", name, b"persistent", pika.BasicProperties(delivery_mode=2))
            channel.basic_publish("", name, b"transient")
        port = broker.port
        with broker.faults.restart():
            with pytest.raises(pika.exceptions.AMQPConnectionError):
                channel.queue_declare("kept", passive=True)
            with pytest.raises(pika.exceptions.AMQPConnectionError):
                pika.BlockingConnection(pika.URLParameters(broker.url))
    assert broker.port == port
    broker.assert_queue("kept", ready=[b"persistent"])
    with channel_of(broker.url) as channel:
        channel.basic_publish("events", "any.key", b"bound still")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker):
            channel.queue_declare("lost", passive=True)
        again = channel.connection.channel()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker):
            again.exchange_declare("passing", passive=True)
    broker.assert_queue("kept", ready=[b"persistent", b"bound still"])


def test_a_restart_returns_what_was_unacked(broker: RunningBroker) -> None:
    """A consumer that held a message sees the end; the message is ready again, and redelivered."""
    with consuming(broker.url, "jobs", keep, durable=True) as seen:
        with channel_of(broker.url) as channel:
            channel.basic_publish("", "jobs", b"x", pika.BasicProperties(delivery_mode=2))
        assert seen.next() == b"x"
        broker.restart()
        assert isinstance(seen.end(), pika.exceptions.AMQPConnectionError)
    (message,) = broker.queue("jobs").ready
    assert message.redelivered


def test_a_restart_loses_what_is_transient_wherever_it_is(broker: RunningBroker) -> None:
    """Also what a consumer holds, and what waits for its time."""
    with consuming(broker.url, "jobs", keep, durable=True) as seen:
        broker.inject(routing_key="jobs", body=b"held")
        assert seen.next() == b"held"
        with channel_of(broker.url) as channel:
            for mode in (1, 2):
                properties = pika.BasicProperties(delivery_mode=mode, headers={"x-delay": 60_000})
                channel.basic_publish("", "jobs", b"later %d" % mode, properties)
        broker.restart()
        seen.end()
    broker.assert_queue("jobs", ready=0, unacked=0, scheduled=[b"later 2"])


def test_a_restart_without_durability_loses_everything(broker: RunningBroker) -> None:
    """As a broker with its disk gone."""
    with channel_of(broker.url) as channel:
        channel.queue_declare("q", durable=True)
        broker.ask(lambda: broker.runtime.broker.reloading.replace_policies(Policies([ANY])))
        broker.ask(lambda: broker.runtime.broker.connections.replace_user(replace(DEFAULT_GUEST, name="ann")))
        broker.restart(durable=False)
    assert broker.queues() == ()
    assert list(broker.runtime.broker.context.policies) == []
    assert [user.name for user in broker.runtime.broker.users] == ["guest"]


def test_a_reset_brings_the_users_of_the_start_back(broker: RunningBroker) -> None:
    """Neither what a test gave to users nor what it took from them is left for the next one."""
    with channel_of(broker.url):
        broker.ask(lambda: broker.runtime.broker.connections.replace_user(replace(DEFAULT_GUEST, name="ann")))
        broker.ask(lambda: broker.runtime.broker.connections.delete_user("guest"))
    broker.reset()
    with channel_of(broker.url):
        assert [user.name for user in broker.runtime.broker.users] == ["guest"]


def test_connections_are_refused_until_the_last_fault_ends(broker: RunningBroker) -> None:
    """A restart while they are refused lets nobody in."""
    url = broker.url
    with broker.faults.refuse_connections():
        broker.restart()
        with broker.faults.refuse_connections(), pytest.raises(pika.exceptions.AMQPConnectionError):
            pika.BlockingConnection(pika.URLParameters(url))
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            pika.BlockingConnection(pika.URLParameters(url))
    with channel_of(url) as channel:
        assert channel.is_open


def test_the_console_outlives_restarts() -> None:
    """It shows the present listener, also while connections are refused."""
    with start_broker(management=True) as broker:
        api = ApiClient(broker.management_url)
        for again in (broker.restart, broker.reset, lambda: broker.restart(durable=False)):
            again()
            with broker.faults.refuse_connections():
                listeners = api.get("overview")["listeners"]
                assert [one["port"] for one in listeners if one["protocol"] == "amqp"] == [broker.port]
            with channel_of(broker.url):
                assert api.get("overview")["object_totals"]["connections"] == 1
            assert api.get("leveret/growing")["items"] == []  # its samples are of the broker of now


def test_an_unknown_method_is_refused_with_a_hint(broker: RunningBroker) -> None:
    """A fault that could never happen is a mistake of the test's."""
    with pytest.raises(ValueError, match="did you mean 'basic.publish'"):
        broker.faults.drop_connection("basic.publsh")


def test_faults_end_with_the_reset(broker: RunningBroker) -> None:
    """Also those without a with statement; stopping them again is harmless."""
    fault = broker.faults.refuse_connections()
    broker.reset()
    with channel_of(broker.url) as channel:
        assert channel.is_open
    fault.stop()
