"""XML of ActiveMQ 5: the examples of seed 002, whole files, faults and notices. Queues page H.3; rows of H.4."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.settings import Configuration, ResolvedSettings, SystemUsage, layer_of, load_configuration
from leveret.settings.explain import explain
from leveret.settings.foreign.activemq import ACTIVEMQ_ROOTS, READERS
from leveret.settings.foreign.activemq_names import (
    DEAD_LETTERS,
    ENTRY_ATTRIBUTES,
    REDELIVERY,
    STRATEGIES,
    TARGETS,
)
from leveret.settings.foreign.artemis_names import WITHOUT_EFFECT

MIB, GIB = 1024**2, 1024**3


def read(text: str) -> tuple[Configuration, list[str]]:
    """A text, and its faults as lines."""
    configuration, faults = load_configuration([("f.xml", text)])
    return configuration, [str(fault) for fault in faults]


def load(text: str) -> Configuration:
    """A text without faults."""
    configuration, faults = read(text)
    assert not faults, faults
    return configuration


def queue(configuration: Configuration, name: str) -> ResolvedSettings:
    """The settings of a queue."""
    return configuration.repository.resolve_queue(name, "/", layer_of())


def entry(text: str, name: str = 'queue="Q"') -> str:
    """A policyEntry with these children."""
    return f"<policyEntry {name}>{text}</policyEntry>"


# -- the examples of seed 002; comments are ours ----------------------------------------------------------------------

DISCARDING = """\
<beans ... >
<broker ...>
<!-- at most ten prices wait -->
<destinationPolicy> <policyMap> <policyEntries> <policyEntry topic="PRICES.>">
<!-- the oldest go -->
<pendingMessageLimitStrategy> <constantPendingMessageLimitStrategy limit="10"/> </pendingMessageLimitStrategy>
</policyEntry> ... </policyEntries> </policyMap> </destinationPolicy> </broker> </beans>"""
OFF = """\
<broker ... > ...
<destinationPolicy> <policyMap> <policyEntries> <policyEntry topic="FOO.>" producerFlowControl="false"/> ...
</policyEntries> </policyMap> </destinationPolicy> ... </broker>"""
LIMITS = """\
<broker> ... <systemUsage> <systemUsage> <memoryUsage> <memoryUsage limit="64 mb" /> </memoryUsage>
<storeUsage> <storeUsage limit="100 gb" /> </storeUsage> <tempUsage> <tempUsage limit="10 gb" /> </tempUsage>
</systemUsage> </systemUsage> ... </broker>"""
ONE_QUEUE = '<policyEntry queue="FOO.BAR" memoryLimit="10 MB"/>'
FAILING = """\
<broker> ...
<systemUsage> <systemUsage sendFailIfNoSpace="true"> <memoryUsage> <memoryUsage limit="64 mb" /> </memoryUsage>
...
</systemUsage> </systemUsage> ... </broker>"""
SEED = {"discarding": DISCARDING, "off": OFF, "limits": LIMITS, "one queue": ONE_QUEUE, "failing": FAILING}


@pytest.mark.parametrize("text", SEED.values(), ids=SEED)
def test_every_example_loads_without_its_dots(text: str) -> None:
    """Without a warning, as all of it means something."""
    assert load(text.replace("...", "")).warnings == ()


@pytest.mark.parametrize(
    "name, places",
    [
        ("discarding", ["f.xml:1: XML"]),
        ("off", ["f.xml:1: XML"]),
        ("limits", ["f.xml:1: broker"]),
        ("failing", ["f.xml:1: broker", "f.xml:2: systemUsage"]),
    ],
)
def test_dots_are_not_xml(name: str, places: list[str]) -> None:
    """In a tag, and between elements."""
    _, faults = read(SEED[name])
    expected = "'...' is not XML but stands for an omitted part of an example, expected that part, or nothing"
    assert faults == [f"{place}: {expected}" for place in places]


def test_dots_elsewhere_are_left_alone() -> None:
    """In comments and attributes they are text."""
    text = '<!-- <a ...> --><broker brokerName="a..."><!-- ... --></broker>'
    assert load(text).warnings == ("f.xml:1: brokerName: accepted, but without effect in this version",)


def test_h01_system_usage() -> None:
    """H01."""
    usage = load(LIMITS.replace("...", "")).system_usage
    assert usage == SystemUsage(67_108_864, 107_374_182_400, 10_737_418_240)


def test_h02_the_flag_alone() -> None:
    """H02: limits default."""
    configuration = load('<systemUsage><systemUsage sendFailIfNoSpace="true"/></systemUsage>')
    assert configuration.system_usage == SystemUsage(64 * MIB, 100 * GIB, 10 * GIB, True)
    assert queue(configuration, "any").send_fail_if_no_space
    after = load('<systemUsage sendFailIfNoSpaceAfterTimeout="500"/>').system_usage
    assert after == SystemUsage(send_fail_if_no_space_after_ms=500)


def test_h03_flow_control_off() -> None:
    """H03: of topics, not of queues."""
    repository = load('<policyEntry topic="FOO.>" producerFlowControl="false"/>').repository
    names = ("FOO", "FOO.A", "FOO.A.B", "FOOX")
    assert [repository.resolve_topic(name).producer_flow_control for name in names] == [False, False, False, True]
    assert queue(load('<policyEntry topic="FOO.>" producerFlowControl="false"/>'), "FOO").producer_flow_control


def test_h04_a_limit_of_one_queue() -> None:
    """H04."""
    configuration = load(ONE_QUEUE)
    assert queue(configuration, "FOO.BAR").memory_limit == 10_485_760
    assert queue(configuration, "FOO.BAZ").memory_limit == -1
    assert configuration.repository.resolve_topic("FOO.BAR").memory_limit == -1


def test_h05_pending_messages() -> None:
    """H05."""
    assert load(DISCARDING.replace("...", "")).repository.resolve_topic("PRICES.IBM").pending_message_limit == 10


@pytest.mark.parametrize("limit", ["1.5 gb", "1 tb", "-1", "64 mib", "64 megabytes", "", "mb", "9223372036854775808"])
def test_h06_sizes_that_are_none(limit: str) -> None:
    """H06: the fault names line and path."""
    _, (fault,) = read(f'<broker>\n<systemUsage><memoryUsage limit="{limit}"/></systemUsage></broker>')
    assert fault.startswith(f"f.xml:2: memoryUsage/limit: {limit!r} is invalid, expected a size: octets, or")
    _, (fault,) = read(f'<policyEntry queue="Q" memoryLimit="{limit}"/>')
    assert fault.startswith(f"f.xml:1: policyEntry/memoryLimit: {limit!r} is invalid")


def test_h10_a_document_type_is_refused() -> None:
    """H10."""
    _, (fault,) = read('<!DOCTYPE beans [<!ENTITY m "64 mb">]>\n<memoryUsage limit="&m;"/>')
    assert fault == "f.xml:1: XML: document types (DOCTYPE) are refused"


# -- forms ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, octets",
    [
        ("64 mb", 64 * MIB),
        ("10 MB", 10 * MIB),
        ("512 KB", 512 * 1024),
        ("1g", GIB),
        ("2k", 2048),
        ("7b", 7),
        (" 8 ", 8),
        ("0", 0),
    ],
)
def test_sizes(text: str, octets: int) -> None:
    """Powers of 1024, in any case; without a unit they are octets."""
    assert load(f'<memoryUsage limit="{text}"/>').system_usage == SystemUsage(octets)


def test_percentages() -> None:
    """Of memory and of the disk."""
    text = """<systemUsage><systemUsage><memoryUsage><memoryUsage percentOfJvmHeap="70"/></memoryUsage>
    <storeUsage percentLimit="50"/><tempUsage><tempUsage percentLimit="10"/></tempUsage></systemUsage></systemUsage>"""
    assert load(text).system_usage == SystemUsage(memory_percent=70, store_percent=50, temp_percent=10)


WHOLE = """<?xml version="1.0" encoding="UTF-8"?>
<beans xmlns="http://www.springframework.org/schema/beans" xmlns:amq="http://activemq.apache.org/schema/core"
       xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="a b">
  <bean class="PropertyPlaceholderConfigurer"><property name="locations"><value>file:x</value></property></bean>
  <amq:broker brokerName="localhost" dataDirectory="data">
    <amq:destinationPolicy><amq:policyMap>
      <amq:policyEntries>
        <amq:policyEntry topic=">"><amq:pendingMessageLimitStrategy>
          <amq:constantPendingMessageLimitStrategy limit="1000"/>
        </amq:pendingMessageLimitStrategy></amq:policyEntry>
        <amq:policyEntry queue=">" producerFlowControl="true" memoryLimit="1mb"/>
        <amq:policyEntry queue="orders.*" memoryLimit="2mb"/>
      </amq:policyEntries>
      <amq:defaultEntry><amq:policyEntry memoryLimit="3mb"/></amq:defaultEntry>
    </amq:policyMap></amq:destinationPolicy>
    <amq:managementContext><amq:managementContext createConnector="false"/></amq:managementContext>
    <amq:persistenceAdapter><amq:kahaDB directory="data/kahadb"/></amq:persistenceAdapter>
    <amq:systemUsage><amq:systemUsage><amq:memoryUsage limit="64 mb"/></amq:systemUsage></amq:systemUsage>
    <amq:transportConnectors><amq:transportConnector name="openwire" uri="tcp://0.0.0.0:61616"/>
    </amq:transportConnectors>
    <amq:shutdownHooks><bean class="SpringContextHook"/></amq:shutdownHooks>
  </amq:broker>
  <import resource="jetty.xml"/>
</beans>
"""


def test_a_whole_file() -> None:
    """By local names; exactly one entry applies; what means nothing here says so once."""
    configuration = load(WHOLE)
    assert [queue(configuration, name).memory_limit for name in ("a", "orders.a", "orders.a.b")] == [
        MIB, 2 * MIB, MIB,
    ]  # fmt: skip
    assert configuration.repository.resolve_topic("x").pending_message_limit == 1000
    assert sorted(warning.split(": ")[1] for warning in configuration.warnings) == [
        "bean", "brokerName", "dataDirectory", "import", "managementContext", "persistenceAdapter", "shutdownHooks",
        "transportConnectors",
    ]  # fmt: skip


def test_every_known_element_may_be_the_root() -> None:
    """And none of them is one of Artemis'."""
    assert not ACTIVEMQ_ROOTS & WITHOUT_EFFECT
    for root in ACTIVEMQ_ROOTS - READERS.keys() - set(STRATEGIES) - {"deadLetterStrategy"}:
        assert load(f"<{root}><x/></{root}>").warnings == (
            f"f.xml:1: {root}: accepted, but without effect in this version",
        )


def test_it_lies_over_the_address_settings_of_other_files() -> None:
    """Formats may be mixed."""
    texts = [("a.xml", ONE_QUEUE), ("b.toml", '[[address-setting]]\nmatch = "#"\nmemory-limit = 5\ncursor = "vm"')]
    configuration, faults = load_configuration(texts)
    assert not faults
    settings = queue(configuration, "FOO.BAR")
    assert (settings.memory_limit, settings.cursor) == (10 * MIB, "vm")


# -- what an entry may say --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given, attribute, value",
    [
        ('memoryLimit="1 kb"', "memory_limit", 1024),
        ('producerFlowControl="FALSE"', "producer_flow_control", False),
        ('cursorMemoryHighWaterMark="30"', "cursor_memory_high_water_mark", 30),
        ('sendFailIfNoSpace="true"', "send_fail_if_no_space", True),
        ('sendFailIfNoSpace="1"', "send_fail_if_no_space", True),
        ('sendFailIfNoSpace="0"', "send_fail_if_no_space", False),
        ('sendFailIfNoSpaceAfterTimeout="700"', "send_fail_if_no_space_after_ms", 700),
        ('blockedProducerWarningInterval="0"', "blocked_producer_warning_interval_ms", 0),
        ('minimumMessageSize="2 kb"', "minimum_message_size", 2048),
        ('queuePrefetch="5"', "queue_prefetch", 5),
    ],
)
def test_attributes_of_an_entry(given: str, attribute: str, value: object) -> None:
    """Each gives the address-setting of its name."""
    assert getattr(queue(load(f'<policyEntry queue="Q" {given}/>'), "Q"), attribute) == value


def test_minus_one_leaves_it_to_the_broker() -> None:
    """Both ways to refuse."""
    usage = '<systemUsage sendFailIfNoSpace="true" sendFailIfNoSpaceAfterTimeout="9"/>'
    own = """<destinationPolicy><policyMap><policyEntries>
    <policyEntry queue="Q" sendFailIfNoSpace="-1" sendFailIfNoSpaceAfterTimeout="-1"/>
    <policyEntry queue="R" sendFailIfNoSpace="0" sendFailIfNoSpaceAfterTimeout="0"/>
    </policyEntries></policyMap></destinationPolicy>"""
    configuration = load(f"<broker>{usage}{own}</broker>")
    asked = [queue(configuration, name) for name in "QR"]
    assert [(one.send_fail_if_no_space, one.send_fail_if_no_space_after_ms) for one in asked] == [(True, 9), (False, 0)]


@pytest.mark.parametrize(
    "name, child, given",
    [
        ("topic", "<prefetchRatePendingMessageLimitStrategy/>", {"pending_message_limit_prefetch_rate": 0.5}),
        (
            "topic",
            "<prefetchRatePendingMessageLimitStrategy multiplier='2.5'/>",
            {"pending_message_limit_prefetch_rate": 2.5},
        ),
        ("topic", "<constantPendingMessageLimitStrategy/>", {"pending_message_limit": -1}),
        ("topic", "<oldestMessageEvictionStrategy/>", {"message_eviction": "oldest"}),
        (
            "topic",
            "<oldestMessageWithLowestPriorityEvictionStrategy/>",
            {"message_eviction": "lowest-priority"},
        ),
        (
            "topic",
            "<uniquePropertyMessageEvictionStrategy propertyName='symbol'/>",
            {"message_eviction": "unique-property", "message_eviction_property": "symbol"},
        ),
        (
            "queue",
            "<abortSlowConsumerStrategy/>",
            {"abort_slow_consumer_after_ms": 30_000, "abort_slow_consumer_count": -1},
        ),
        (
            "queue",
            "<abortSlowConsumerStrategy maxSlowDuration='2000' checkPeriod='500' maxSlowCount='3' "
            "abortConnection='true'/>",
            {
                "abort_slow_consumer_after_ms": 2000,
                "abort_slow_consumer_check_period_ms": 500,
                "abort_slow_consumer_count": 3,
                "abort_slow_consumer_connection": True,
            },
        ),
        ("queue", "<abortSlowConsumerStrategy maxSlowDuration='-1'/>", {"abort_slow_consumer_after_ms": -1}),
        ("queue", "<abortSlowAckConsumerStrategy/>", {"abort_slow_ack_after_ms": 30_000}),
        (
            "topic",
            "<abortSlowAckConsumerStrategy maxTimeSinceLastAck='9' ignoreIdleConsumers='false'/>",
            {"abort_slow_ack_after_ms": 9, "abort_slow_ack_ignores_idle": False, "abort_slow_consumer_after_ms": -1},
        ),
        ("queue", "<storeCursor/>", {"cursor": "store"}),
        ("queue", "<vmQueueCursor/>", {"cursor": "vm"}),
        ("queue", "<fileQueueCursor/>", {"cursor": "file"}),
        ("topic", "<vmCursor/>", {"cursor": "vm"}),
        ("topic", "<fileCursor/>", {"cursor": "file"}),
    ],
)
def test_children_of_an_entry(name: str, child: str, given: dict[str, object]) -> None:
    """Strategies and cursors, with ActiveMQ's defaults where attributes are missing."""
    tag = child.strip("</>").split()[0]
    outer = next(outer for outer, choices in STRATEGIES.items() if tag in choices)
    configuration = load(entry(f"<{outer}>{child}</{outer}>", f'{name}="A.>"'))
    settings = configuration.repository.resolve_topic("A.B") if name == "topic" else queue(configuration, "A.B")
    assert {attribute: getattr(settings, attribute) for attribute in given} == given
    assert settings.is_flow_controlled == ("cursor" in given)


def test_shared_dead_letters() -> None:
    """One queue for all, which is there from the start; also for what expires."""
    text = "<deadLetterStrategy><sharedDeadLetterStrategy{}>{}</sharedDeadLetterStrategy></deadLetterStrategy>"
    configuration = load(entry(text.format("", "")))
    settings = queue(configuration, "Q")
    assert (settings.dead_letter_address, settings.expiry_address) == ("ActiveMQ.DLQ", "ActiveMQ.DLQ")
    assert [(one.name, one.durable, one.exchange) for one in configuration.queues] == [("ActiveMQ.DLQ", True, "")]
    named = '<deadLetterQueue><queue physicalName="dead"/></deadLetterQueue>'
    configuration = load(entry(text.format(' processExpired="false"', named)))
    settings = queue(configuration, "Q")
    assert (settings.dead_letter_address, settings.expiry_address) == ("dead", "")
    two = entry(text.format("", ""), 'queue="A"') + entry(text.format("", ""), 'queue="B"')
    assert len(load(f"<policyEntries>{two}</policyEntries>").queues) == 1


def test_individual_dead_letters() -> None:
    """A queue for the dead letters of each queue."""
    text = "<deadLetterStrategy><individualDeadLetterStrategy {}/></deadLetterStrategy>"
    settings = queue(load(entry(text.format('queuePrefix="DLQ."'))), "Q")
    assert settings.auto_create_dead_letter_resources
    assert (settings.dead_letter_address, settings.dead_letter_queue_prefix) == ("DLQ.", "DLQ.")
    assert settings.auto_create_expiry_resources
    assert (settings.expiry_address, settings.expiry_queue_prefix) == ("DLQ.", "DLQ.")
    settings = queue(load(entry(text.format('queuePrefix="" queueSuffix=".dead" processExpired="false"'))), "Q")
    assert (settings.dead_letter_queue_prefix, settings.dead_letter_queue_suffix) == ("", ".dead")
    assert (settings.dead_letter_address, settings.expiry_address) == (".dead", "")
    plain = load(entry(text.format("")))
    assert queue(plain, "Q").dead_letter_queue_prefix == "ActiveMQ.DLQ.Queue."
    assert load(entry(text.format('queuePrefix="D" processExpired="true"'))).warnings == plain.warnings == ()


def test_discarded_dead_letters() -> None:
    """None are kept, whatever the address-settings say."""
    texts = [
        ("a.xml", entry("<deadLetterStrategy><discarding/></deadLetterStrategy>")),
        ("b.toml", '[[address-setting]]\nmatch = "#"\ndead-letter-address = "D"\nexpiry-address = "E"'),
    ]
    configuration, faults = load_configuration(texts)
    assert not faults
    settings = queue(configuration, "Q")
    assert (settings.dead_letter_address, settings.expiry_address) == ("", "")


@pytest.mark.parametrize(
    "text, warning",
    [
        ('<policyEntry queue="Q" maxPageSize="5"/>', "f.xml:1: maxPageSize: accepted, but without effect"),
        ('<policyEntry queue="Q" advisoryWhenFull="true"/>', "f.xml:1: advisoryWhenFull: accepted, but without"),
        ('<policyEntry queue="Q" useCache="true"/>', "f.xml:1: useCache: accepted, but without effect"),
        (
            '<policyEntries><policyEntry queue="A"/>\n<policyEntry queue="queue://A"/></policyEntries>',
            "f.xml:2: queue: 'A' is already declared at f.xml:1: only this one applies, where ActiveMQ uses either",
        ),
        ('<policyEntry tempQueue="true" memoryLimit="1"/>', "f.xml:1: tempQueue: accepted, but without effect"),
        (entry("<dispatchPolicy><x/></dispatchPolicy>"), "f.xml:1: dispatchPolicy: accepted, but without effect"),
        (
            entry("<pendingQueuePolicy><vmQueueCursor/></pendingQueuePolicy>", 'topic="T"'),
            "f.xml:1: pendingQueuePolicy: without effect in this entry: it is for queues",
        ),
        (
            entry("<pendingSubscriberPolicy><vmCursor/></pendingSubscriberPolicy>"),
            "f.xml:1: pendingSubscriberPolicy: without effect in this entry: it is for topics",
        ),
        (
            "<defaultEntry><policyEntry><pendingSubscriberPolicy><vmCursor/></pendingSubscriberPolicy></policyEntry>"
            "</defaultEntry>",
            "f.xml:1: pendingSubscriberPolicy: the default entry takes the cursor of pendingQueuePolicy",
        ),
        (
            entry("<pendingDurableSubscriberPolicy><vmDurableCursor/></pendingDurableSubscriberPolicy>", 'topic="T"'),
            "f.xml:1: pendingDurableSubscriberPolicy: accepted, but without effect",
        ),
        ('<systemUsage checkLimitsLogLevel="INFO"/>', "f.xml:1: checkLimitsLogLevel: accepted, but without effect"),
        (
            '<broker><systemUsage><memoryUsage limit="1 mb"/></systemUsage><destinationPolicy><policyMap>'
            '<policyEntries>\n<policyEntry queue="Q" memoryLimit="2 mb"/></policyEntries></policyMap>'
            "</destinationPolicy></broker>",
            "f.xml:2: queue policy 'Q': memory-limit 2097152 is above the 1048576 of [system-usage] for all together",
        ),
    ],
)
def test_notices(text: str, warning: str) -> None:
    """What is known and means nothing here, and what is doubtful."""
    (found,) = load(text).warnings
    assert found.startswith(warning)


@pytest.mark.parametrize(
    "text, fault",
    [
        ("<policyEntry/>", "f.xml:1: queue: is missing, expected queue or topic in <policyEntry>"),
        ('<policyEntry queue="A" topic="B"/>', "f.xml:1: topic: contradicts queue, expected one of the two"),
        ('<policyEntry queue=""/>', "f.xml:1: queue: '': an empty name covers nothing"),
        ('<policyEntry topic="A..B"/>', "f.xml:1: topic: 'A..B': an element is empty"),
        ('<policyEntry queue="A.>.B"/>', "f.xml:1: queue: 'A.>.B': '>' is allowed only as the last word"),
        ('<policyEntry queue="A" memoryLimt="1"/>', "memoryLimt: unknown key in <policyEntry>, did you mean 'memoryL"),
        ('<policyEntry queue="A" producerFlowControl="yes"/>', "policyEntry/producerFlowControl: 'yes' is invalid"),
        ('<policyEntry queue="A" sendFailIfNoSpace="2"/>', "expected true, false, or -1"),
        ('<policyEntry queue="A" cursorMemoryHighWaterMark="101"/>', "expected an integer from 1 to 100"),
        ('<policyEntry queue="A" storeUsageHighWaterMark="0"/>', "expected an integer from 1 to 100"),
        (entry("<pendingMessageLimitStrategy/>"), "holds 0 elements, expected <constantPendingMessageLimitStrategy>"),
        (entry("<pendingMessageLimitStrategy><x/></pendingMessageLimitStrategy>"), "x: unknown key in <pendingMes"),
        (
            entry(
                "<pendingMessageLimitStrategy><constantPendingMessageLimitStrategy limit='-2'/>"
                "</pendingMessageLimitStrategy>",
                'topic="T"',
            ),
            "constantPendingMessageLimitStrategy/limit: '-2' is invalid, expected an integer from -1",
        ),
        (
            entry(
                "<pendingMessageLimitStrategy><prefetchRatePendingMessageLimitStrategy multiplier='-1'/>"
                "</pendingMessageLimitStrategy>",
                'topic="T"',
            ),
            "prefetchRatePendingMessageLimitStrategy/multiplier: '-1' is invalid, expected a number from 0",
        ),
        (
            "<redeliveryPlugin><redeliveryPolicyMap><defaultEntry><redeliveryPolicy backOffMultiplier='-2'/>"
            "</defaultEntry></redeliveryPolicyMap></redeliveryPlugin>",
            "redeliveryPolicy/backOffMultiplier: '-2' is invalid, expected a number from 0\n",
        ),
        (
            entry(
                "<messageEvictionStrategy><uniquePropertyMessageEvictionStrategy/></messageEvictionStrategy>",
                'topic="T"',
            ),
            "f.xml:1: propertyName: is missing in <uniquePropertyMessageEvictionStrategy>",
        ),
        (
            entry("<deadLetterStrategy><individualDeadLetterStrategy queuePrefix=''/></deadLetterStrategy>"),
            "queuePrefix: is empty, and so is queueSuffix",
        ),
        (
            entry(
                "<deadLetterStrategy><sharedDeadLetterStrategy><deadLetterQueue/></sharedDeadLetterStrategy>"
                "</deadLetterStrategy>"
            ),
            'deadLetterQueue: expected a single <queue physicalName="...">',
        ),
        (entry("<slowConsumerStrategy/><slowConsumerStrategy/>"), "holds 0 elements"),
        (entry("<memoryUsage/>"), "memoryUsage: unknown key in <policyEntry>"),
        (entry("text"), "policyEntry: text means nothing in <policyEntry>"),
        ('<memoryUsage limit="1 mb" percentOfJvmHeap="5"/>', "memoryUsage/percentOfJvmHeap: contradicts limit"),
        ('<storeUsage percentLimit="101"/>', "storeUsage/percentLimit: '101' is invalid, expected an integer from 1"),
        ("<systemUsage><systemUsage/><systemUsage/></systemUsage>", "expected a single <systemUsage> in <systemUsage>"),
        ("<systemUsage><x/></systemUsage>", "f.xml:1: x: unknown key in <systemUsage>"),
        ("<broker><sytemUsage/></broker>", "sytemUsage: unknown key in <broker>, did you mean 'systemUsage'?"),
        ('<broker brokerNmae="x"/>', "brokerNmae: unknown key in <broker>, did you mean 'brokerName'?"),
        ("<beans><bean/></beans>", "f.xml:1: broker: expected one in <beans>, not 0"),
        ("<beans><broker/>\n<broker/></beans>", "f.xml:2: broker: expected one in <beans>, not 2"),
        ("<policyMap><policyEntry/></policyMap>", "policyEntry: unknown key in <policyMap>"),
        ("<defaultEntry><policyEntry queue='A'/></defaultEntry>", "queue: the default entry is for every queue and"),
        (
            "<defaultEntry><policyEntry/><policyEntry/></defaultEntry>",
            "policyEntry: is given twice in <defaultEntry>",
        ),
        ("<slowConsumerStrategy/>", "slowConsumerStrategy: means nothing without the <policyEntry> around it"),
        ("<brokr/>", "brokr: unknown root, did you mean 'broker'?"),
    ],
)
def test_faults(text: str, fault: str) -> None:
    """FILE:LINE: KEY: what is wrong, what was expected; the key is the path of an attribute whose value is wrong."""
    _, faults = read(text)
    assert faults and fault in f"{faults[0]}\n", faults


NAMES = [*READERS, *STRATEGIES, "deadLetterStrategy", *DEAD_LETTERS, "plugins", "x"]
NAMES += ["redeliveryPolicyEntries", "redeliveryPolicy", "timeStampingBrokerPlugin", "discardingDLQBrokerPlugin"]
NAMES += ["compositeQueue", "compositeTopic", "forwardTo", "filteredDestination", "queue", "topic", "virtualTopic"]
NAMES += [one for choices in STRATEGIES.values() for one in choices]
KEYS = [*ENTRY_ATTRIBUTES, *TARGETS, "limit", "percentLimit", "multiplier", "queuePrefix", "propertyName", "x"]
KEYS += [
    *REDELIVERY,
    "ttlCeiling",
    "zeroExpirationOverride",
    "dropOnly",
    "name",
    "forwardOnly",
    "selector",
    "physicalName",
]
VALUES = ["", "A", "A.>", "A.*", ">", "A..B", "1", "-1", "true", "64 mb", "70", "1.5", "x" * 300, "&#178;", "9" * 40]


def written(name: str, attributes: dict[str, str], children: list[str]) -> str:
    """An element."""
    given = "".join(f' {key}="{value}"' for key, value in attributes.items())
    return f"<{name}{given}>{''.join(children)}</{name}>"


ATTRIBUTES = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=3)
TREES = st.recursive(
    st.builds(written, st.sampled_from(NAMES), ATTRIBUTES, st.just([])),
    lambda inner: st.builds(written, st.sampled_from(NAMES), ATTRIBUTES, st.lists(inner, max_size=3)),
    max_leaves=12,
)


@given(TREES)
def test_known_names_in_any_order_are_read_or_refused(text: str) -> None:
    """Faults, never exceptions; and what has no fault can be explained."""
    configuration, faults = read(text)
    if not faults:
        assert explain(configuration, "A.B")


def test_a_file_on_disk_is_checked(tmp_path: Path) -> None:
    """By the command, as the other formats."""
    from leveret.__main__ import main

    (tmp_path / "activemq.xml").write_text(WHOLE)
    assert main(["check", str(tmp_path / "activemq.xml")]) == 0
