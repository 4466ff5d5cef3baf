"""Typing errors in tests are errors: what is misspelt must not mean "anything", or pass because nothing is like it."""

import copy
import subprocess
import sys
import unittest
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from consumers import channel_of

from leveret import testing
from leveret.testing import BrokerTestMixin, Properties, RunningBroker, process_worker, start_broker
from leveret.testing.typos import check_settings


@pytest.mark.parametrize(
    "call, error, text",
    [
        (
            lambda b: b.history("deliverd"),
            ValueError,
            "'deliverd' is invalid, did you mean 'delivered'?, expected one ",
        ),
        (lambda b: b.history("enqueued", "Acked"), ValueError, "did you mean 'acked'?"),
        (lambda b: b.history(queue="oders"), LookupError, "no queue 'oders', did you mean 'orders'?"),
        (lambda b: b.published("evnts"), LookupError, "no exchange 'evnts', did you mean 'events'?"),
        (lambda b: b.assert_published("evnts", count=0), LookupError, "did you mean 'events'?"),
        (lambda b: b.reset(clock="virtal"), ValueError, "did you mean 'virtual'?, expected one of 'real', 'virtual'"),
        (lambda b: b.reset(clok="virtual"), TypeError, "clok"),
        (lambda b: b.queue("orders", vhost="othr"), LookupError, "no virtual host 'othr', did you mean 'other'?"),
        (lambda b: b.published(vhost="othr"), LookupError, "did you mean 'other'?"),
        (lambda b: b.leaks(vhost="othr"), LookupError, "did you mean 'other'?"),
        (lambda b: b.inject("evnts", "k", b"x"), LookupError, "no exchange 'evnts' in virtual host '/', did you mean"),
        (lambda b: b.inject(routing_key="oders", body=b"x"), LookupError, "no queue 'oders' in virtual host '/', did "),
        (
            lambda b: b.inject("events", "order.payed", b"x"),
            LookupError,
            "exchange 'events' in virtual host '/' routes no message with key 'order.payed' to a queue, did you "
            "mean 'order.paid'? (its bindings have: 'order.paid')",
        ),
        (lambda b: b.settled(timout=1), TypeError, "unexpected keyword argument 'timout', did you mean 'timeout'?"),
        (lambda b: b.clock.advance(hour=1), TypeError, "'hour', did you mean 'hours'?"),
        (lambda b: b.vhost().leases(que="orders"), TypeError, "'que', did you mean 'queue'?"),
        (lambda b: b.faults.drop_connection(affter=1), TypeError, "'affter', did you mean 'after'?"),
        (lambda b: start_broker(clok="virtual"), TypeError, "'clok', did you mean 'clock'?"),  # type: ignore[call-arg]
        (
            lambda b: process_worker(b, ["true"], consume="q"),  # type: ignore[call-arg]
            TypeError,
            "'consume', did you mean 'consumes'?",
        ),
        (
            lambda b: b.publishd(),
            AttributeError,
            "'RunningBroker' has no attribute 'publishd', did you mean 'published'?",
        ),
        (lambda b: b.clock.advanced(hours=1), AttributeError, "did you mean 'advance'?"),
        (lambda b: b.vhost().queu("orders"), AttributeError, "did you mean 'queue'?"),
        (lambda b: b.queue("orders").readdy, AttributeError, "did you mean 'ready'?"),
        (lambda b: b.history("declared")[0].queue, AttributeError, "(there are: at, detail, kind, message, subject,"),
        (lambda b: testing.start_brokr, AttributeError, "did you mean 'start_broker'?"),
        (lambda b: b.inject(routing_key="k", body=b"x", mesage_id="m"), TypeError, "did you mean 'message_id'?"),
        (lambda b: b.assert_published("events", bdy=1), TypeError, "unknown property 'bdy', did you mean 'body'?"),
        (lambda b: b.assert_not_published(json={}), TypeError, "give body= what the JSON should be"),
        (lambda b: b.remove("oders"), LookupError, "did you mean 'orders'? (there are: 'orders')"),
        (lambda b: b.assert_blocked(limit="memroy"), ValueError, "did you mean 'memory'?"),
        (lambda b: b.faults.block(vhost="othr"), LookupError, "did you mean 'other'?"),
        (lambda b: b.faults.cancel_consumers("oders"), LookupError, "did you mean 'orders'?"),
        (lambda b: b.faults.cancel_consumers("oders", vhost="*"), LookupError, "did you mean 'orders'?"),
        (lambda b: b.faults.drop_connection("basic.publsh"), ValueError, "did you mean 'basic.publish'?"),
        (lambda b: b.faults.chaos(1, drop=5), ValueError, "drop: 5 is invalid, expected a chance from 0 to 1"),
    ],
)
def test_a_misspelt_word_is_an_error(
    broker: RunningBroker, call: "Callable[[RunningBroker], object]", error: type[Exception], text: str
) -> None:
    """With the nearest name."""
    broker.vhost("other")
    with channel_of(broker.url) as channel:
        channel.queue_declare("orders")
        channel.exchange_declare("events")
        channel.queue_bind("orders", "events", "order.paid")
        with pytest.raises(error) as caught:
            call(broker)
        assert text in str(caught.value)
        assert set(broker.runtime.broker.virtual_hosts) == {"/", "other"}


def test_properties_stand_at_the_message(broker: RunningBroker) -> None:
    """Of what was published, and of what is in a queue."""
    with channel_of(broker.url) as channel:
        channel.queue_declare("orders")
        broker.inject(routing_key="orders", json={"n": 1}, message_id="7", reply_to="r", priority=3, headers={"h": 1})
        for message in (broker.published()[0], broker.queue("orders").ready[0]):
            assert (message.message_id, message.reply_to, message.priority) == ("7", "r", 3)
            assert (message.content_type, message.headers, message.json()) == ("application/json", {"h": 1}, {"n": 1})
            shown = {one.name: getattr(message, one.name) for one in fields(Properties)}
            assert shown == {one.name: getattr(message.properties, one.name) for one in fields(Properties)}


def test_objects_of_the_test_broker_can_be_copied(broker: RunningBroker) -> None:
    """An attribute that Python looks for and does not need is no typing error."""
    with channel_of(broker.url) as channel:
        channel.queue_declare("orders")
        broker.inject(routing_key="orders", body="x")
        queue = broker.queue("orders")
        assert copy.copy(queue.ready[0]) == queue.ready[0]
        assert copy.copy(queue) == queue


def test_what_may_come_to_be_is_no_error(broker: RunningBroker) -> None:
    """Nothing happened there yet, and nothing is called nearly so."""
    with channel_of(broker.url) as channel:
        channel.queue_declare("orders")
        assert list(broker.history(queue="invoices")) == []
        assert list(broker.history("delivered", queue="orders")) == []
        assert list(broker.published("events")) == []
        assert broker.assert_published("events", count=0) is None
        channel.queue_delete("orders")
        assert [event.kind for event in broker.history("undeclared", queue="orders")] == ["undeclared"]
        assert list(broker.history("acked", queue="orders")) == []  # it is gone, and was there


def test_a_queues_name_is_no_exchanges(broker: RunningBroker) -> None:
    """What went to the queue goes to exchange '': otherwise "not published" would be true of the one that was."""
    with channel_of(broker.url) as channel:
        channel.queue_declare("orders")
        broker.assert_not_published("orders")
        channel.basic_publish("", "orders", b"7")
        for call in (broker.assert_not_published, broker.published):
            with pytest.raises(LookupError, match="it is a routing key of exchange ''"):
                call("orders")
        channel.exchange_declare("orders")
        broker.assert_not_published("orders")


def test_a_text_is_one_queue_to_ignore(broker: RunningBroker) -> None:
    """`ignore="orders"` is not six queues of one letter."""
    with channel_of(broker.url) as channel:
        channel.queue_declare("orders")
        channel.basic_publish("", "orders", b"7")
        broker.settled(ignore="orders")


def test_misspelt_settings_of_a_framework() -> None:
    """An application may have its own."""
    check_settings(["result_backend", "shop_currency"], {"result_backend", "result_expires"})
    with pytest.raises(TypeError, match="result_bakend: unknown setting, did you mean 'result_backend'?"):
        check_settings(["result_bakend"], {"result_backend", "result_expires"})


def test_misspelt_attributes_of_the_mixin() -> None:
    """They would silently leave the default; attributes of one's own are allowed."""

    class Misspelt(BrokerTestMixin, unittest.TestCase):
        amqp_clok = "virtual"

        def runTest(self) -> None:
            """Nothing."""

    class Own(BrokerTestMixin, unittest.TestCase):
        amqp_channel = 1

        def runTest(self) -> None:
            """Nothing."""

    result = unittest.TestResult()
    unittest.TestSuite([Misspelt(), Own()])(result)
    ((_, text),) = result.errors
    assert "Misspelt.amqp_clok: unknown attribute, did you mean 'amqp_clock'?" in text
    assert result.testsRun == 1


def test_markers(tmp_path: Path) -> None:
    """Each wrong one is an error of its test, whatever the broker; nearer markers win keyword by keyword."""
    (tmp_path / "test_it.py").write_text(
        """
import pytest

pytestmark = pytest.mark.amqp(clock="virtual")

@pytest.mark.amqp(clok="virtual")
def test_keyword(amqp_broker): ...

@pytest.mark.amqp(clock="virtul")
def test_value(amqp_url): ...

@pytest.mark.amqp("virtual")
def test_no_keyword(amqp_url): ...

@pytest.mark.amqp(leaks=1)
def test_type(amqp_url): ...

@pytest.mark.amqp(leaks=True)
def test_merged(amqp_broker):
    assert amqp_broker.clock.mode == "virtual"
    amqp_broker.faults

@pytest.mark.amqp(clock="real")
def test_nearest(amqp_broker):
    assert amqp_broker.clock.mode == "real"
"""
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert "2 passed, 4 errors" in done.stdout, done.stdout + done.stderr
    for line in (
        "@pytest.mark.amqp: unknown keyword 'clok', did you mean 'clock'?, expected one of clock, leaks, reset",
        "@pytest.mark.amqp: clock: 'virtul' is invalid, did you mean 'virtual'?, expected 'real' or 'virtual'",
        "@pytest.mark.amqp: 'virtual' has no keyword, expected one of clock, leaks, reset",
        "@pytest.mark.amqp: leaks: 1 is invalid, expected True or False",
    ):
        assert line in done.stdout
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\ndef test_it(amqp_broker):\n    amqp_broker.asert_queue('q')\n\n"
        "@pytest.mark.amqp(clok='real')\ndef test_marker(amqp_url): ...\n"
    )
    done = subprocess.run(
        [*command, "--amqp-url", "amqp://127.0.0.1"], cwd=tmp_path, capture_output=True, text=True, timeout=180
    )
    assert "1 failed, 1 error" in done.stdout
    assert "amqp_broker has no attribute 'asert_queue', did you mean 'assert_queue'?" in done.stdout
