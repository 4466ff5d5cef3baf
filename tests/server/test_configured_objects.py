"""What the configuration declares is there from the start, or is a fault. Pure: a broker in virtual time.

The ids are rows of address-settings page 8.2.
"""

import pytest
from configured_broker import GUEST, RING, bodies, make, publish, queue_of, session_of

from leveret.configured.configured import ConfiguredObjects, faults_of
from leveret.engine import Broker, ManualClock, Users, plain_arguments
from leveret.engine.errors import InequivalentArgument, InequivalentField
from leveret.engine.messages.field_table import Field
from leveret.settings import load_configuration


def test_a_configured_ring_is_there_and_is_a_ring() -> None:
    """C02: durable, with its argument as a client would have sent it; three messages stay."""
    objects = make(RING)
    queue = queue_of(objects, "ring")
    assert (queue.durable, queue.exclusive, queue.auto_delete) == (True, False, False)
    assert queue.arguments == {"x-ring-size": Field("I", 3)}
    assert objects.is_managed(queue)
    session = session_of(objects)
    publish(objects, session, "", "ring", *"ABCDE")
    assert bodies(session, "ring") == "CDE"


@pytest.mark.parametrize(
    "said, field",
    [
        ("ring-size = 3", Field("I", 3)),
        ("ring-size = 3000000000", Field("l", 3_000_000_000)),
        ('redelivery-delay = "5s"', Field("I", 5000)),
        ("redelivery-delay-multiplier = 1.5", Field("d", 1.5)),
        ("redelivery-delay-multiplier = 2", Field("I", 2)),
        ('dead-letter-address = "DLA"', Field("S", b"DLA")),
        ("exclusive = true", Field("t", True)),
        ("arguments = { x-message-ttl = 60000 }", Field("I", 60_000)),
        ("arguments = { x-mine = -1 }", Field("I", -1)),
    ],
)
def test_attributes_become_typed_arguments(said: str, field: Field) -> None:
    """Durations are milliseconds by then; what is a whole number stays one."""
    objects = make(f'[[address]]\nname = "q"\n[[address.queue]]\nname = "q"\n{said}\n')
    assert list(queue_of(objects, "q").arguments.values()) == [field]


def test_the_same_arguments_succeed_and_others_do_not() -> None:
    """6.7: a client's declaration is compared as ever; passive always succeeds."""
    objects = make(RING)
    session = session_of(objects)
    vhost = session.client.vhost
    queue = vhost.queues.declare("ring", client=session.client, durable=True, arguments={"x-ring-size": Field("l", 3)})
    assert vhost.queues.declare_passive("ring", session.client) is queue
    with pytest.raises(InequivalentArgument):
        vhost.queues.declare("ring", client=session.client, durable=True, arguments={"x-ring-size": Field("I", 4)})
    with pytest.raises(InequivalentArgument):
        vhost.queues.declare("ring", client=session.client, durable=True)
    with pytest.raises(InequivalentField):
        vhost.queues.declare("ring", client=session.client, arguments={"x-ring-size": Field("I", 3)})


def test_a_multicast_address_is_a_fanout_exchange_with_its_queues() -> None:
    """1.3, 6.1: bound whatever the key; each has the address as x-address where the names differ."""
    objects = make(
        """
[[address]]
name = "news"
routing-type = "multicast"
  [[address.queue]]
  name = "a"
  [[address.queue]]
  name = "news"
[[address]]
name = "nobody"
routing-type = "multicast"
"""
    )
    session = session_of(objects)
    publish(objects, session, "news", "any.key", "x")
    assert (bodies(session, "a"), bodies(session, "news")) == ("x", "x")
    assert plain_arguments(queue_of(objects, "a").arguments) == {"x-address": "news"}
    assert queue_of(objects, "news").arguments == {}
    exchanges = objects.broker.virtual_hosts["/"].exchanges
    assert (exchanges["nobody"].type, exchanges["nobody"].durable) == ("fanout", True)


def test_virtual_hosts_are_there_also_by_what_is_in_them() -> None:
    """[[vhost]] and the vhost of an address."""
    objects = make('[[vhost]]\nname = "v"\n[[address]]\nname = "a"\nvhost = "w"\n[[address.queue]]\nname = "a"\n')
    assert set(objects.broker.virtual_hosts) == {"/", "v", "w"}
    assert queue_of(objects, "a", "w").vhost_name == "w"
    assert "a" not in objects.broker.virtual_hosts["/"].queues


HORNETQ = """
<configuration xmlns="urn:hornetq">
<address-settings>
<address-setting match="jms.queue.exampleQueue">
<redelivery-delay-multiplier>1.5</redelivery-delay-multiplier>
<redelivery-delay>5000</redelivery-delay>
<max-redelivery-delay>50000</max-redelivery-delay>
</address-setting>
</address-settings>
</configuration>
"""


def test_c02_c09_a_hornetq_client_declares_its_queue_without_arguments() -> None:
    """5000 x 1.5, cap 50000, on a queue that the client made, and on one of hornetq-jms.xml alike."""
    jms = '<configuration><queue name="q1"><entry name="/queue/q1"/></queue></configuration>'
    text = HORNETQ.replace("exampleQueue", "q1")
    configuration, faults = load_configuration([("a.xml", HORNETQ), ("b.xml", text), ("jms.xml", jms)])
    assert not faults and not faults_of(configuration)
    broker = Broker(ManualClock(), Users([GUEST]), settings=configuration.repository)
    objects = ConfiguredObjects(broker, configuration)
    objects.apply(configuration)
    session = session_of(objects)
    for name, is_durable in (("exampleQueue", False), ("q1", True)):
        queue = session.client.vhost.queues.declare(name, client=session.client, durable=is_durable)
        rules = queue.rules
        assert (rules.redelivery_delay_ms, rules.redelivery_delay_multiplier) == (5000, 1.5)
        assert rules.max_redelivery_delay_ms == 50_000


@pytest.mark.parametrize(
    "queue, fault",
    [
        ("arguments = { x-message-ttl = '5s' }", "f.toml:5: x-message-ttl: invalid arg 'x-message-ttl' for queue 'q'"),
        ("arguments = { x-queue-type = 'heap' }", "f.toml:5: x-queue-type: invalid arg 'x-queue-type' for queue 'q'"),
        ("durable = false\narguments = { x-queue-type = 'quorum' }", "f.toml:3: queue: invalid property 'non-durable'"),
        ("arguments = { x-dead-letter-exchange = 3 }", "f.toml:5: x-dead-letter-exchange: invalid type"),
    ],
)
def test_what_no_broker_could_declare_is_a_fault(queue: str, fault: str) -> None:
    """Seen before anything starts or changes, with file and line."""
    text = f'[[address]]\nname = "q"\n[[address.queue]]\nname = "q"\n{queue}\n'
    configuration, faults = load_configuration([("f.toml", text)])
    assert not faults
    (found,) = faults_of(configuration)
    assert found.startswith(fault), found


def test_reserved_names_are_faults_and_predeclared_exchanges_are_not() -> None:
    """amq.* belongs to the broker; amq.fanout is a fanout exchange already."""
    text = """
[[address]]
name = "amq.mine"
  [[address.queue]]
  name = "amq.mine"
[[address]]
name = "amq.topic"
routing-type = "multicast"
[[address]]
name = "amq.fanout"
routing-type = "multicast"
"""
    configuration, faults = load_configuration([("f.toml", text)])
    assert not faults
    queue, exchange = faults_of(configuration)
    assert queue == "f.toml:4: queue: queue name 'amq.mine' contains reserved prefix 'amq.*'"
    assert exchange.startswith("f.toml:6: exchange: inequivalent arg 'type' for exchange 'amq.topic'")
