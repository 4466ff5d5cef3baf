"""Queues and diverts that take only some messages: a selector of theirs, as in the files of Artemis and HornetQ.

Source: address-settings page 1.1, "queue filter", and 3.7.
"""

import pytest
from desk import Make, Refused
from durable_desk import DurableDesk
from simulated_files import SimulatedFiles

RED = "color = 'red'"


def colors(desk, *letters: str, key: str = "q", exchange: str = "") -> list[str]:  # type: ignore[no-untyped-def]
    """A message for each of these: `r` is red, `b` blue, anything else has no color. Returns what became of each."""
    known = {"r": {"color": "red"}, "b": {"color": "blue"}}
    return [
        outcome
        for letter in letters
        for outcome in desk.publish(letter, key=key, exchange=exchange, mandatory=True, headers=known.get(letter, {}))
    ]


def test_a_queue_takes_what_its_selector_takes(at: Make) -> None:
    """By its name; what it does not take is unroutable, as at a queue that is not there."""
    desk = at(x_selector=RED)
    assert colors(desk, "r", "b", "-", "r") == ["ack", "returned", "returned", "ack"]
    assert desk.all() == "rr"


@pytest.mark.parametrize("kind", ["direct", "topic", "fanout"])
def test_a_queue_with_a_selector_behind_an_exchange(at: Make, kind: str) -> None:
    """Beside others, which get everything."""
    desk = at(x_selector=RED)
    desk.declare("all")
    desk.exchange("e", kind)
    for queue in ("q", "all"):
        desk.bind(queue, "e", "k")
    colors(desk, "r", "b", "r", exchange="e", key="k")
    assert (desk.all(), desk.all("all")) == ("rr", "rbr")
    desk.delete("q")
    colors(desk, "b", exchange="e", key="k")
    assert desk.all("all") == "b"


def test_properties_decide(at: Make) -> None:
    """By the names of JMS, of Artemis, and of HornetQ."""
    desk = at(x_selector="JMSPriority > 4 AND AMQPriority < 8 AND HQPriority <> 6", x_max_priority=9)
    for priority in (4, 5, 6, 7, 8):
        desk.publish(str(priority), priority=priority)
    assert desk.all() == "75"


def test_queues_in_turn_of_which_one_has_a_selector(at: Make) -> None:
    """Of several queues of one address the next that takes the message gets it."""
    desk = at(q=False)
    desk.declare("some", x_address="A", x_selector=RED)
    desk.declare("any", x_address="A")
    colors(desk, "r", "r", "b", "b", "b", "r", key="A")
    assert (desk.all("some"), desk.all("any")) == ("rr", "rbbb")


def test_dead_letters_meet_the_selector(at: Make) -> None:
    """Where nobody takes one it ends, as where there is no queue."""
    desk = at(x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    desk.declare("dead", x_selector=RED)
    colors(desk, "r", "b")
    for got in (desk.must_get(), desk.must_get()):
        desk.reject(got, requeue=False)
    assert desk.all("dead") == "r"


@pytest.mark.parametrize("text", ["color = ", "'a' LIKE", "(", "x" * 9000, ""])
def test_a_selector_that_is_none(at: Make, text: str) -> None:
    """Refused, with the place."""
    desk = at(q=False)
    with pytest.raises(Refused) as refused:
        desk.declare("q", x_selector=text)
    assert refused.value.code == 406 and "x-selector" in str(refused.value)


def test_a_configured_filter_follows_a_reload(at: Make) -> None:
    """At once, for what comes from then on."""
    text = "<address name='a'><anycast><queue name='q'>{}</queue></anycast></address>"
    desk = at(text.format(f'<filter string="{RED}"/>'), q=False)
    colors(desk, "r", "b")
    desk.reload(text.format("<filter string=\"color = 'blue'\"/>"))
    colors(desk, "r", "b")
    desk.reload(text.format(""))
    colors(desk, "r", "-")
    desk.reload(text.format(f'<filter string="{RED}"/>'))
    colors(desk, "b", "r")
    assert desk.all() == "rbr-r"


def test_a_filter_survives_a_restart() -> None:
    """It is an argument of the queue."""
    files = SimulatedFiles()
    desk = DurableDesk(files)
    desk.declare("q", x_selector=RED)
    desk.settle()
    again = DurableDesk(files.power_cut())
    outcomes = [again.publish("A", headers={"color": color}, mandatory=True) for color in ("red", "blue")]
    again.settle()
    assert ("returned" in outcomes[1], again.all()) == (True, "A")


# -- diverts ----------------------------------------------------------------------------------------------------------

DIVERTS = """<core><diverts>
<divert name="some"><address>q</address><forwarding-address>copies</forwarding-address>
<filter string="color = 'red'"/><exclusive>{}</exclusive></divert>
<divert name="all"><address>q</address><forwarding-address>rest</forwarding-address></divert>
</diverts></core>"""


@pytest.mark.parametrize("is_exclusive", [True, False])
def test_a_divert_takes_what_its_filter_takes(at: Make, is_exclusive: bool) -> None:
    """An exclusive one takes the others' part only of messages that it takes."""
    desk = at(DIVERTS.format(str(is_exclusive).lower()))
    for queue in ("copies", "rest"):
        desk.declare(queue)
    assert colors(desk, "r", "b", "-") == ["ack"] * 3
    assert desk.all("copies") == "r"
    assert desk.all("rest") == ("b-" if is_exclusive else "rb-")
    assert desk.all() == ("b-" if is_exclusive else "rb-")


def test_what_no_divert_takes_may_be_unroutable(at: Make) -> None:
    """What one takes is not; the rest is returned."""
    desk = at(f'[[divert]]\nname = "d"\naddress = "q"\nforwarding-address = "copies"\nfilter = "{RED}"', q=False)
    desk.declare("copies")
    assert colors(desk, "r", "b") == ["ack", "returned"]
    assert desk.all("copies") == "r"


def test_a_dry_run_asks_filters(at: Make) -> None:
    """Nothing is published; it says who would not take the message."""
    desk = at(DIVERTS.format("false"), x_selector=RED)
    for color, queues, diverts in (("red", ["q"], ["some", "all"]), ("blue", [], ["all"])):
        answer = desk.command(
            "route", **{"exchange": "", "routing-key": "q", "properties": {"headers": {"color": color}}}
        )
        assert [one["queue"] for one in answer["queues"]] == queues, answer
        assert [one["destination"] for one in answer["others"]] == ["q"][len(queues) :], answer
        assert [one["name"] for one in answer["diverts"]] == diverts, answer


# -- whole files ------------------------------------------------------------------------------------------------------

HORNETQ = """<configuration xmlns="urn:hornetq">
<queues><queue name="jms.queue.q"><address>jms.queue.q</address><filter string="HQPriority &gt; 4"/></queue>
<queue name="jms.queue.dead"><address>jms.queue.dead</address></queue></queues>
<address-settings><address-setting match="jms.queue.q"><dead-letter-address>jms.queue.dead</dead-letter-address>
<max-delivery-attempts>1</max-delivery-attempts></address-setting></address-settings></configuration>"""


def test_a_hornetq_file_with_a_filter_and_its_dead_letters(at: Make) -> None:
    """Dead letters tell where they come from by HornetQ's names (seed 004), without being told to."""
    desk = at(HORNETQ, q=False)
    desk.publish("low", priority=3)
    desk.publish("high", priority=5)
    desk.nack(desk.must_get())
    dead = desk.must_get("dead")
    assert dead.body == "high"
    assert (dead.headers["_HQ_ORIG_ADDRESS"], dead.headers["_HQ_ORIG_QUEUE"]) == ("q", "q")
    assert desk.get() is None


REDELIVERY = """<broker><plugins><redeliveryPlugin><redeliveryPolicyMap><redeliveryPolicyMap><redeliveryPolicyEntries>
<redeliveryPolicy queue="q" maximumRedeliveries="2" initialRedeliveryDelay="1000" redeliveryDelay="3000"/>
</redeliveryPolicyEntries></redeliveryPolicyMap></redeliveryPolicyMap></redeliveryPlugin></plugins></broker>"""


def test_an_activemq_file_with_a_redelivery_policy(at: Make) -> None:
    """Three attempts, with its waits between them; then ActiveMQ's queue for dead letters."""
    desk = at(REDELIVERY)
    desk.publish("A")
    for wait_ms in (1000, 3000):
        desk.nack(desk.must_get())
        desk.advance_ms(wait_ms - 1)
        assert desk.get() is None
        desk.advance_ms(1)
    desk.nack(desk.must_get())
    assert desk.all("ActiveMQ.DLQ") == "A"


COMPOSITE = """<destinationInterceptors><virtualDestinationInterceptor><virtualDestinations>
<compositeQueue name="in" {}><forwardTo><queue physicalName="all"/>
<filteredDestination selector="color = 'red'" queue="red"/><filteredDestination selector="color = 'blue'" topic="b"/>
</forwardTo></compositeQueue></virtualDestinations></virtualDestinationInterceptor></destinationInterceptors>"""


@pytest.mark.parametrize("attributes, stays", [("", ""), ('forwardOnly="true"', ""), ('forwardOnly="false"', "rb-")])
def test_a_composite_queue_of_activemq(at: Make, attributes: str, stays: str) -> None:
    """What is sent to it goes to others, as their selectors say, and is taken from it unless `forwardOnly` is false."""
    desk = at(COMPOSITE.format(attributes), q=False)
    for queue in ("in", "blue"):
        desk.declare(queue)
    desk.bind("blue", "b")
    colors(desk, "r", "b", "-", key="in")
    assert (desk.all("all"), desk.all("red"), desk.all("blue"), desk.all("in")) == ("rb-", "r", "b", stays)


def test_a_composite_queue_that_keeps_what_nobody_takes(at: Make) -> None:
    """`sendWhenNotMatched`."""
    text = COMPOSITE.replace('<queue physicalName="all"/>', "").format('sendWhenNotMatched="true"')
    desk = at(text, q=False)
    desk.declare("in")
    colors(desk, "r", "b", "-", key="in")
    assert (desk.all("red"), desk.all("in")) == ("r", "-")


def test_a_composite_topic_of_activemq(at: Make) -> None:
    """A fanout exchange."""
    desk = at(COMPOSITE.replace("compositeQueue", "compositeTopic").format('forwardOnly="false"'), q=False)
    desk.declare("mine")
    desk.bind("mine", "in")
    colors(desk, "r", "-", exchange="in", key="")
    assert (desk.all("mine"), desk.all("all"), desk.all("red")) == ("r-", "r-", "r")
