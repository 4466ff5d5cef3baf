"""XML of AMPS: whole files, a fragment for each element, faults with codes and paths. Queues page A.3, H.1; H.4."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.settings import Configuration, load_configuration
from leveret.settings.foreign.activemq import ACTIVEMQ_ROOTS
from leveret.settings.foreign.artemis_names import WITHOUT_EFFECT
from leveret.settings.leases.amps_xml import AMPS_ROOTS, OTHER_SECTIONS, SECTIONS
from leveret.settings.leases.leased_settings import BY_TAG, CONDITIONS, LeasedSettings, leased_settings

EXAMPLE = (
    "<SOW><GroupLocalQueue><Name>Jobs</Name><MessageType>json</MessageType><UnderlyingTopic>^JOB_.*</UnderlyingTopic>"
    "<DefaultPublishTarget>JOB_DIRECT</DefaultPublishTarget><LeasePeriod>30s</LeasePeriod>"
    "<MaxPerSubscriptionBacklog>100</MaxPerSubscriptionBacklog><InitialOwner>n1</InitialOwner>"
    "</GroupLocalQueue></SOW>"
)


def read(*texts: str, **environment: str) -> tuple[Configuration, list[str]]:
    """Texts as files a.xml, b.xml, ..., and their faults as lines."""
    files = [(f"{'abcdef'[index]}.xml", text) for index, text in enumerate(texts)]
    configuration, faults = load_configuration(files, environment)
    return configuration, [str(fault) for fault in faults]


def load(*texts: str, **environment: str) -> Configuration:
    """Texts without faults."""
    configuration, faults = read(*texts, **environment)
    assert not faults, faults
    return configuration


def leased(configuration: Configuration, name: str = "Q") -> LeasedSettings:
    """The settings of a configured queue."""
    (queue,) = (queue for queue in configuration.queues if queue.name == name)
    assert queue.arguments["x-queue-type"] == "amps" and queue.durable
    return leased_settings(queue.name, queue.arguments)


def queue(inside: str = "", tag: str = "LocalQueue", name: str = "Q") -> str:
    """One queue with these elements beside its name and message type."""
    return f"<{tag}><Name>{name}</Name><MessageType>json</MessageType>{inside}</{tag}>"


def fault(inside: str, tag: str = "LocalQueue") -> tuple[str, str]:
    """The path and the code of the only fault of a queue."""
    _, faults = read(queue(inside, tag))
    (line,) = faults
    _, path, problem = line.split(": ", 2)
    code = problem.split(":")[0]
    assert problem.startswith(f"{code}: {CONDITIONS[code]}")
    return path, code


# -- whole files ------------------------------------------------------------------------------------------------------


def test_the_example_of_the_reference() -> None:
    """Queues page H.1: what it comes to, which exchange is there to publish to, and what `check` says."""
    configuration = load(EXAMPLE)
    settings = leased(configuration, "Jobs")
    assert settings == LeasedSettings(
        "Jobs",
        "group",
        underlying_topic="^JOB_.*",
        default_publish_target="JOB_DIRECT",
        lease_period_ms=30_000,
        max_per_subscription_backlog=100,
        initial_owner="n1",
    )
    assert [(one.name, one.type, one.vhost) for one in configuration.exchanges] == [("JOB_DIRECT", "topic", "/")]
    assert [warning.split(": ")[2] for warning in configuration.warnings] == ["W-TXLOG", "W-LOCAL", "W-OWNER"]
    assert all(warning.startswith("a.xml:1: queue 'Jobs': ") for warning in configuration.warnings)


WHOLE = """<?xml version="1.0" encoding="UTF-8"?>
<!-- an instance -->
<AMPSConfig>
  <Name>one</Name>
  <Group>CONSUME_INSTANCES</Group>
  <Admin><InetAddr>localhost:8085</InetAddr></Admin>
  <Transports><Transport><Name>any</Name><Type>tcp</Type></Transport></Transports>
  <SOW>
    <Topic><Name>prices</Name><Key>/id</Key></Topic>
    <Queue><Name>Work</Name><MessageType> json </MessageType><UnderlyingTopic>Orders</UnderlyingTopic></Queue>
    <LocalQueue>
      <Topic><![CDATA[Audit]]></Topic>
      <MessageType>json</MessageType>
      <UnderlyingTopic>Orders|Refunds</UnderlyingTopic>
      <DefaultPublishTarget>Orders</DefaultPublishTarget>
      <Filter>/amount &gt; 100 AND /state = 'new'</Filter>
    </LocalQueue>
  </SOW>
  <TransactionLog>
    <JournalDirectory>/var/run/amps/journal</JournalDirectory>
    <PreallocatedJournalFiles>1</PreallocatedJournalFiles>
    <JournalSize>10MB</JournalSize>
    <Topic><Name>Orders</Name><MessageType>json</MessageType></Topic>
    <Topic><Name>^(Work|Audit)$</Name><MessageType>json</MessageType></Topic>
  </TransactionLog>
</AMPSConfig>
"""


def test_a_whole_file() -> None:
    """Queues, logged topics, the size of a segment; what means nothing here says so once."""
    configuration = load(WHOLE)
    assert leased(configuration, "Work") == LeasedSettings(
        "Work", "distributed", underlying_topic="Orders", default_publish_target="Orders"
    )
    assert leased(configuration, "Audit").filter == "/amount > 100 AND /state = 'new'"
    topics = [(one.name, one.is_pattern, one.message_type) for one in configuration.logged_topics]
    assert topics == [("Orders", False, "json"), ("^(Work|Audit)$", True, "json")]
    assert configuration.journal.segment_size == 10 * 1024**2
    assert [(one.name, one.type) for one in configuration.exchanges] == [("Orders", "topic")]
    assert sorted(warning.split(": ")[1] for warning in configuration.warnings) == [
        "AMPSConfig/Admin", "AMPSConfig/Group", "AMPSConfig/Name", "AMPSConfig/SOW/Topic",
        "AMPSConfig/TransactionLog/JournalDirectory", "AMPSConfig/TransactionLog/PreallocatedJournalFiles",
        "AMPSConfig/Transports", "queue 'Work'",
    ]  # fmt: skip


def test_every_known_element_may_be_the_root() -> None:
    """A fragment; none is a root of Artemis or ActiveMQ. Parts of a queue are refused without it."""
    assert not AMPS_ROOTS & (ACTIVEMQ_ROOTS | WITHOUT_EFFECT)
    for root in SECTIONS:
        assert load(f"<{root}/>").queues == ()
    for root in OTHER_SECTIONS:
        assert load(f"<{root}><Any/></{root}>").warnings == (
            f"a.xml:1: {root}: accepted, but without effect in this version",
        )
    for tag in BY_TAG:
        _, (line,) = read(f"<{tag}>1</{tag}>")
        assert line == f"a.xml:1: {tag}: means nothing without the <Queue> around it"
    for tag in ("Queue", "QueueDefinition", "LocalQueue"):
        assert leased(load(queue(tag=tag)))


def test_roots_with_typing_errors() -> None:
    """The nearest name of any format."""
    _, (line,) = read("<AmpsConfig/>")
    assert line.startswith("a.xml:1: AmpsConfig: unknown root, did you mean 'AMPSConfig'?, expected <configuration>, ")
    assert line.endswith(", or <AMPSConfig> or <SOW> of AMPS")


# -- a fragment for each element --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inside", "attribute", "value"),
    [
        ("<UnderlyingTopic>Orders</UnderlyingTopic>", "underlying_topic", "Orders"),
        ("<UnderlyingTopic>a.b</UnderlyingTopic>", "default_publish_target", "a.b"),
        (
            "<UnderlyingTopic>^O</UnderlyingTopic><DefaultPublishTarget>Orders</DefaultPublishTarget>",
            "default_publish_target",
            "Orders",
        ),
        ("<LeasePeriod>15m</LeasePeriod>", "lease_period_ms", 900_000),
        ("<Semantics>at-most-once</Semantics>", "semantics", "at-most-once"),
        ("<Semantics>at-most-once</Semantics>", "fairness", "round-robin"),
        ("<MaxBacklog>5</MaxBacklog>", "max_backlog", 5),
        ("<MaxPerSubscriptionBacklog>7</MaxPerSubscriptionBacklog>", "max_per_subscription_backlog", 7),
        ("<Expiration>1.5s</Expiration>", "expiration_ms", 1500),
        ("<ExpirationModel>latest</ExpirationModel>", "expiration_model", "latest"),
        ("<Filter>/a = 1</Filter>", "filter", "/a = 1"),
        ("<Filter>  </Filter>", "filter", None),
        ("<RecoveryPoint>now</RecoveryPoint>", "recovery_point", "now"),
        ("<RecoveryPoint>5|6|</RecoveryPoint>", "recovery_point", "5|6|"),
        ("<FairnessModel>fast</FairnessModel>", "fairness", "fast"),
        ("<Leasing>strict</Leasing>", "leasing", "strict"),
        ("<MaxDeliveries>2</MaxDeliveries>", "max_deliveries", 2),
        ("<MaxDeliveries>0</MaxDeliveries>", "max_deliveries", 0),
        ("<MaxCancels>2</MaxCancels>", "max_cancels", 2),
        ("<Priority>/priority</Priority>", "priority", "/priority"),
        ("<Priority>/price * /quantity</Priority>", "priority", "/price * /quantity"),
        ("<BarrierExpression>/isSyncPoint IS NOT NULL</BarrierExpression>", "barrier", "/isSyncPoint IS NOT NULL"),
        ("<FileBackedMetadata>enabled</FileBackedMetadata>", "is_file_backed", True),
        ("<TargetQueueDepth>12500</TargetQueueDepth>", "target_queue_depth", 12_500),
        ("<DeferredAckExpiration>2h</DeferredAckExpiration>", "deferred_ack_ms", 7_200_000),
    ],
)
def test_elements_of_a_queue(inside: str, attribute: str, value: object) -> None:
    """Each gives its setting (queues page A.3)."""
    assert getattr(leased(load(queue(inside))), attribute) == value


@pytest.mark.parametrize(
    ("tag", "inside", "replication"),
    [
        ("LocalQueue", "", "local"),
        ("Queue", "", "distributed"),
        ("QueueDefinition", "", "distributed"),
        ("GroupLocalQueue", "<InitialOwner>n1</InitialOwner>", "group"),
        (
            "GroupLocalQueue",
            "<InitialOwner>n1</InitialOwner><GroupLocalQueueDomain>D</GroupLocalQueueDomain>",
            "group",
        ),
    ],
)
def test_tags_of_a_queue(tag: str, inside: str, replication: str) -> None:
    """All load; those that want a cluster act as local ones, and `check` says so."""
    configuration = load(queue(inside, tag))
    settings = leased(configuration)
    assert settings.replication == replication
    assert (settings.domain == "D") == ("Domain" in inside)
    said = any("W-LOCAL: its replication is " in warning for warning in configuration.warnings)
    assert said == (replication != "local")


def test_the_message_type_of_each_kind() -> None:
    """All known ones load; of those that expressions cannot read there is one warning."""
    for one in ("json", "binary", "xml", "fix", "nvfix", "bson", "msgpack"):
        text = "<SOW>" + "".join(
            f"<LocalQueue><Name>{name}</Name><MessageType>{one}</MessageType></LocalQueue>" for name in "QR"
        )
        configuration = load(text + "</SOW>")
        assert leased(configuration, "R").message_type == one
        assert sum("W-MTYPE" in warning for warning in configuration.warnings) == (one != "json")


def test_synonyms_for_the_name() -> None:
    """Name and Topic; both, if they agree. Queues page, row A78: of the synonym of Queue, too."""
    old, new = (f"<{tag}><{name}>T</{name}><MessageType>json</MessageType></{tag}>" for tag, name in (
        ("QueueDefinition", "Topic"), ("Queue", "Name")))  # fmt: skip
    assert leased(load(old), "T") == leased(load(new), "T")
    assert load("<Queue><Topic>T</Topic><MessageType>json</MessageType></Queue>").queues[0].name == "T"
    assert load("<Queue><Topic>T</Topic><MessageType>json</MessageType><Name>T</Name></Queue>").queues[0].name == "T"


def test_two_warnings_of_settings() -> None:
    """W-FBM-TQD and, for an owner whom nobody looks for, W-OWNER."""
    one, other = "<FileBackedMetadata>enabled</FileBackedMetadata>", "<TargetQueueDepth>1000</TargetQueueDepth>"
    for inside in (one, other, one + other):
        said = any("W-FBM-TQD" in warning for warning in load(queue(inside)).warnings)
        assert said == (inside == one + other)


# -- the rows of queues page H.4 --------------------------------------------------------------------------------------


def test_h07_lease_periods() -> None:
    """H07."""
    given = {"15m": 900_000, "2h": 7_200_000, "1d": 86_400_000, "250ms": 250, "10": 10_000}
    for text, ms in given.items():
        assert leased(load(queue(f"<LeasePeriod>{text}</LeasePeriod>"))).lease_period_ms == ms


@pytest.mark.parametrize("text", ["1h30m", "-5s", "", "15 min", "PT15M", "5M", "0", "101y", "36501d"])
def test_h08_lease_periods_that_are_none(text: str) -> None:
    """H08."""
    assert fault(f"<LeasePeriod>{text}</LeasePeriod>") == ("LocalQueue/LeasePeriod", "E-DUR")


def test_h09_recovery_points() -> None:
    """H09."""
    text = "<RecoveryPoint>20240601T000000Z</RecoveryPoint>"
    assert leased(load(queue(text))).recovery_point == "20240601T000000Z"
    assert fault("<RecoveryPoint>2024-06-01T00:00:00Z</RecoveryPoint>") == ("LocalQueue/RecoveryPoint", "E-RP")


def test_h10_a_document_type_is_refused() -> None:
    """H10."""
    _, (line,) = read('<!DOCTYPE SOW [<!ENTITY n "Q">]>\n<SOW><Queue><Name>&n;</Name></Queue></SOW>')
    assert line == "a.xml:1: XML: document types (DOCTYPE) are refused"


@pytest.mark.parametrize("other", [queue(), f"<SOW>{queue()}</SOW>", queue(tag="Queue")])
def test_h11_two_queues_of_one_name(other: str) -> None:
    """H11: in one file or in two."""
    _, (line,) = read(queue(), other)
    assert (
        line.startswith("b.xml:1: ") and f"E-NAME: {CONDITIONS['E-NAME']}: 'Q' is already declared at a.xml:1" in line
    )
    _, (line,) = read(f"<SOW>\n{queue()}\n{queue()}</SOW>")
    assert line.startswith("a.xml:3: SOW/LocalQueue/Name: E-NAME: ")


def test_h12_words_are_compared_with_their_case() -> None:
    """H12."""
    assert fault("<Semantics>At-Least-Once</Semantics>") == ("LocalQueue/Semantics", "E-ENUM")


# -- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inside", "path", "code"),
    [
        ("<UnderlyingTopic>^J</UnderlyingTopic>", "DefaultPublishTarget", "E-DPT-REQUIRED"),
        (
            "<UnderlyingTopic>^J</UnderlyingTopic><DefaultPublishTarget>K</DefaultPublishTarget>",
            "DefaultPublishTarget",
            "E-DPT-OUTSIDE",
        ),
        ("<DefaultPublishTarget>K</DefaultPublishTarget>", "DefaultPublishTarget", "E-DPT-OUTSIDE"),
        ("<UnderlyingTopic>(J</UnderlyingTopic>", "UnderlyingTopic", "E-REGEX"),
        ("<UnderlyingTopic/>", "UnderlyingTopic", "E-NAME"),
        ("<MaxBacklog>0</MaxBacklog>", "MaxBacklog", "E-MIN"),
        ("<MaxBacklog>1.5</MaxBacklog>", "MaxBacklog", "E-INT"),
        ("<MaxBacklog/>", "MaxBacklog", "E-INT"),
        ("<MaxPerSubscriptionBacklog>0</MaxPerSubscriptionBacklog>", "MaxPerSubscriptionBacklog", "E-MIN"),
        ("<TargetQueueDepth>999</TargetQueueDepth>", "TargetQueueDepth", "E-MIN"),
        ("<MaxDeliveries>-1</MaxDeliveries>", "MaxDeliveries", "E-MIN"),
        ("<MaxCancels>two</MaxCancels>", "MaxCancels", "E-INT"),
        ("<Expiration>0</Expiration>", "Expiration", "E-DUR"),
        ("<DeferredAckExpiration>1y</DeferredAckExpiration>", "DeferredAckExpiration", "E-DUR"),
        ("<ExpirationModel>Queue</ExpirationModel>", "ExpirationModel", "E-ENUM"),
        ("<Leasing/>", "Leasing", "E-ENUM"),
        ("<Filter>/a =</Filter>", "Filter", "E-EXPR"),
        ("<Priority/>", "Priority", "E-EXPR"),
        ("<Priority>NOW()</Priority>", "Priority", "E-EXPR"),
        ("<BarrierExpression>nonsense(/a)</BarrierExpression>", "BarrierExpression", "E-EXPR"),
        ("<Priority>/a</Priority><BarrierExpression>/b = 1</BarrierExpression>", "BarrierExpression", "E-EXCL"),
        ("<Priority>/a</Priority><TargetQueueDepth>1000</TargetQueueDepth>", "TargetQueueDepth", "E-EXCL"),
        ("<FileBackedMetadata>disabled</FileBackedMetadata>", "FileBackedMetadata", "E-FBM"),
        ("<InitialOwner>n</InitialOwner>", "InitialOwner", "E-OWNER-TAG"),
        ("<GroupLocalQueueDomain>D</GroupLocalQueueDomain>", "GroupLocalQueueDomain", "E-OWNER-TAG"),
        ("<Leasing>strict</Leasing><Leasing>strict</Leasing>", "Leasing", "E-DUP-ELEM"),
        ("<MessageType>json</MessageType>", "MessageType", "E-DUP-ELEM"),
        ("<LeasPeriod>1s</LeasPeriod>", "LeasPeriod", "E-UNKNOWN"),
        ("<leaseperiod>1s</leaseperiod>", "leaseperiod", "E-UNKNOWN"),
        ("<Topic>R</Topic>", "Topic", "E-NAME"),
    ],
)
def test_faults_of_a_queue(inside: str, path: str, code: str) -> None:
    """Queues page A.3.2: the code, and the path of the element."""
    assert fault(inside) == (f"LocalQueue/{path}", code)


def test_faults_about_what_is_missing() -> None:
    """A name, a message type, an owner."""
    assert read("<SOW><Queue><MessageType>json</MessageType></Queue></SOW>")[1] == [
        f"a.xml:1: SOW/Queue: E-NAME: {CONDITIONS['E-NAME']}"
    ]
    assert read("<Queue><Name> </Name><MessageType>json</MessageType></Queue>")[1] == [
        f"a.xml:1: Queue/Name: E-NAME: {CONDITIONS['E-NAME']}"
    ]
    assert read("<Queue><Name>Q</Name></Queue>")[1] == [f"a.xml:1: Queue/MessageType: E-MTYPE: {CONDITIONS['E-MTYPE']}"]
    assert fault("", "GroupLocalQueue") == ("GroupLocalQueue/InitialOwner", "E-OWNER-REQUIRED")
    text = f"<Queue><Name>{'é' * 128}</Name><MessageType>json</MessageType></Queue>"
    assert "E-NAME" in read(text)[1][0]
    assert "E-MTYPE" in read("<Queue><Name>Q</Name><MessageType>yaml</MessageType></Queue>")[1][0]


def test_all_faults_are_reported_with_their_lines() -> None:
    """In order, those of several queues together."""
    _, faults = read(
        "<AMPSConfig>\n<SOW>\n<LocalQueue>\n<Name>Q</Name>\n<MessageType>json</MessageType>\n<LeasePeriod>x</LeasePeriod>"
        "\n<MaxBacklog>0</MaxBacklog></LocalQueue>\n<Queu/>\n</SOW></AMPSConfig>"
    )
    assert [line.split(": ")[:3] for line in faults] == [
        ["a.xml:6", "AMPSConfig/SOW/LocalQueue/LeasePeriod", "E-DUR"],
        ["a.xml:7", "AMPSConfig/SOW/LocalQueue/MaxBacklog", "E-MIN"],
        ["a.xml:8", "AMPSConfig/SOW/Queu", "E-UNKNOWN"],
    ]
    assert faults[2].endswith("did you mean 'Queue'?")


def test_misspelled_elements_get_the_nearest_name() -> None:
    """In every container; what looks like nothing is skipped, as other versions have more sections."""
    for text, name in (
        ("<AMPSConfig><TransactionLogs/></AMPSConfig>", "TransactionLog"),
        ("<AMPSConfig><Sow/></AMPSConfig>", "SOW"),
        ("<SOW><LocalQueu/></SOW>", "LocalQueue"),
        ("<TransactionLog><JournalSizes>1</JournalSizes></TransactionLog>", "JournalSize"),
        ("<TransactionLog><Topic><Names/></Topic></TransactionLog>", "Name"),
        ("<Actions><Acton/></Actions>", "Action"),
        (queue("<MaxBackLogs>1</MaxBackLogs>"), "MaxBacklog"),
    ):
        assert any(line.endswith(f"E-UNKNOWN: unknown element, did you mean {name!r}?") for line in read(text)[1]), text
    configuration = load("<AMPSConfig><Whatever><X/></Whatever><SOW><Sketch/></SOW></AMPSConfig>")
    assert [warning.split(": ")[1] for warning in configuration.warnings] == [
        "AMPSConfig/Whatever", "AMPSConfig/SOW/Sketch"
    ]  # fmt: skip


def test_forms_that_mean_nothing() -> None:
    """Attributes, text between elements, elements in a value, the dots of an example."""
    for text, line in (
        ('<Queue id="1"><Name>Q</Name><MessageType>json</MessageType></Queue>', "Queue/@id: attributes mean nothing"),
        (queue('<LeasePeriod unit="s">1</LeasePeriod>'), "LocalQueue/LeasePeriod/@unit: attributes mean nothing here"),
        (queue("text"), "LocalQueue: text means nothing between elements"),
        (queue("..."), "LocalQueue: '...' is not XML but stands for an omitted part of an example"),
        (queue("<Priority><X/>/a</Priority>"), "LocalQueue/Priority/X: expected text in <Priority>, no elements"),
        (f"<AMPSConfig>{queue()}</AMPSConfig>", "AMPSConfig/LocalQueue: means nothing outside <SOW>"),
        ("<AMPSConfig><Name/></AMPSConfig>", "AMPSConfig/Name: is empty, expected the name of the instance"),
    ):
        _, faults = read(text)
        assert len(faults) == 1 and faults[0].startswith(f"a.xml:1: {line}"), faults


# -- the transaction log ----------------------------------------------------------------------------------------------


def log(*topics: str, inside: str = "") -> str:
    """A transaction log of these topics of type json."""
    listed = "".join(f"<Topic><Name>{one}</Name><MessageType>json</MessageType></Topic>" for one in topics)
    return f"<TransactionLog>{inside}{listed}</TransactionLog>"


ORDERS = "<UnderlyingTopic>Orders</UnderlyingTopic>"
ANY = "<UnderlyingTopic>^O</UnderlyingTopic><DefaultPublishTarget>Orders</DefaultPublishTarget>"


@pytest.mark.parametrize(
    ("inside", "topics", "places"),
    [
        ("", [], ["LocalQueue/Name"]),
        ("", ["Q"], []),
        ("", ["^Q$"], []),
        ("", ["Quill"], ["LocalQueue/Name"]),
        (ORDERS, ["Orders", "Q"], []),
        (ORDERS, ["Orders"], ["LocalQueue/Name"]),
        (ORDERS, ["Q"], ["LocalQueue/UnderlyingTopic"]),
        (ANY, ["Q"], ["LocalQueue/DefaultPublishTarget"]),
        (ANY, ["Q", "Ord.*"], []),
    ],
)
def test_topics_of_a_queue_must_be_logged(inside: str, topics: list[str], places: list[str]) -> None:
    """E-TXLOG, also where log and queues are in two files; nothing is said of an implicit log then."""
    configuration, faults = read(log(*topics), queue(inside))
    assert [(line.split(": ")[1], line.split(": ")[2]) for line in faults] == [(place, "E-TXLOG") for place in places]
    assert not any("W-TXLOG" in warning for warning in configuration.warnings)
    assert any("W-TXLOG" in warning for warning in load(queue(inside)).warnings)


def test_a_logged_topic_that_may_have_been_meant() -> None:
    """The nearest of those that are listed."""
    _, (line,) = read(log("Orders", "Q"), queue("<UnderlyingTopic>Order</UnderlyingTopic>"))
    assert line.endswith("'Order', did you mean 'Orders'?")


def test_the_type_of_a_logged_topic_is_that_of_the_queue() -> None:
    """E-MTYPE-MISMATCH, by name and by pattern."""
    for name in ("Q", "^Q"):
        text = f"<TransactionLog><Topic><Name>{name}</Name><MessageType>fix</MessageType></Topic></TransactionLog>"
        _, (line,) = read(text, queue())
        assert line.startswith("b.xml:1: LocalQueue/MessageType: E-MTYPE-MISMATCH: ")
        assert line.endswith("json, and fix for 'Q' at a.xml:1")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<Topic><MessageType>json</MessageType></Topic>", "Topic/Name: E-NAME"),
        ("<Topic><Name>a</Name></Topic>", "Topic/MessageType: E-MTYPE"),
        ("<Topic><Name>a</Name><MessageType>x</MessageType></Topic>", "Topic/MessageType: E-MTYPE"),
        ("<Topic><Name>(a</Name><MessageType>fix</MessageType></Topic>", "Topic/Name: E-REGEX"),
        ("<JournalSize>ten</JournalSize>", "JournalSize: 'ten' is invalid, expected a size like 10MB"),
        ("<JournalSize>0</JournalSize>", "JournalSize: '0' is invalid"),
        (f"<JournalSize>{'9' * 18}TB</JournalSize>", "JournalSize: '9"),
        ("<PreallocatedJournalFiles>0</PreallocatedJournalFiles>", "PreallocatedJournalFiles: E-MIN"),
        ("<PreallocatedJournalFiles>x</PreallocatedJournalFiles>", "PreallocatedJournalFiles: E-INT"),
        ("<JournalDirectory/>", "JournalDirectory: is empty"),
        ("<JournalSize>1MB</JournalSize><JournalSize>1MB</JournalSize>", "JournalSize: E-DUP-ELEM"),
    ],
)
def test_faults_of_a_transaction_log(text: str, problem: str) -> None:
    """Queues page H.1, H.2."""
    _, (line,) = read(f"<TransactionLog>{text}</TransactionLog>")
    assert line.startswith(f"a.xml:1: TransactionLog/{problem}")


@pytest.mark.parametrize(
    ("text", "octets"), [("10MB", 10 * 1024**2), ("1.5 k", 1536), ("2gb", 2 * 1024**3), ("1T", 1024**4), ("4096", 4096)]
)
def test_sizes(text: str, octets: int) -> None:
    """Queues page H.2: powers of 1024."""
    for name in ("JournalSize", "MinJournalSize"):
        configuration = load(f"<TransactionLog><{name}>{text}</{name}></TransactionLog>")
        assert configuration.journal.segment_size == octets


def test_a_topic_is_logged_once() -> None:
    """A name and a pattern of the same text are two."""
    _, (line,) = read(log("a"), log("a"))
    assert line == "b.xml:1: TransactionLog/Topic/Name: 'a' is already declared at a.xml:1"
    assert len(load(log("a", "^a$")).logged_topics) == 2


def test_patterns_of_a_log_are_bounded() -> None:
    """Each queue is compared with all of them."""
    _, (line,) = read(log(*(f"^{number}$" for number in range(101))))
    assert line.endswith(": more than 100 patterns of logged topics")


def test_a_local_queue_is_not_replicated() -> None:
    """E-REPL-LOCAL (queues page, row A74); its underlying topic may be, and so may other queues."""
    topic = "<Topic><MessageType>json</MessageType><Name>{}</Name></Topic>"
    whole = f"<AMPSConfig><Replication><Destination>{topic}</Destination></Replication><SOW>{{}}</SOW></AMPSConfig>"
    _, (line,) = read(whole.format("Q", queue()))
    assert line.startswith("a.xml:1: AMPSConfig/Replication/Destination/Topic/Name: E-REPL-LOCAL: ")
    assert leased(load(whole.format("Orders", queue(ORDERS))))
    assert leased(load(whole.format("Q", queue(tag="Queue"))))


# -- topics that can be published to ----------------------------------------------------------------------------------


def test_an_exchange_for_each_topic_that_is_named() -> None:
    """Literal ones that are not queues themselves, once each (queues page A.2); another exchange of that name stays."""
    text = "<SOW>" + queue(ORDERS) + queue(ANY, name="R") + queue("<UnderlyingTopic>Q</UnderlyingTopic>", name="S")
    configuration = load(text + queue(name="T") + "</SOW>")
    assert [(one.name, one.type) for one in configuration.exchanges] == [("Orders", "topic")]
    fanout = '[[address]]\nname = "Orders"\nrouting-type = "multicast"\n'
    files = [("a.xml", queue(ORDERS)), ("b.toml", fanout)]
    configuration, _ = load_configuration(files)
    assert [(one.name, one.type) for one in configuration.exchanges] == [("Orders", "fanout")]


# -- the environment --------------------------------------------------------------------------------------------------


def test_variables_of_the_environment() -> None:
    """In texts; what they contain is text, whatever it looks like; without braces, or in other parts, they stay."""
    text = queue("<LeasePeriod>${WAIT}s</LeasePeriod><Filter>/a = '${WHAT}'</Filter>", name="${NAME}")
    settings = leased(load(text, WAIT="30", WHAT="<b>&amp;", NAME="jobs"), "jobs")
    assert (settings.lease_period_ms, settings.filter) == (30_000, "/a = '<b>&amp;'")
    assert load("<!-- ${NO} --><AMPSConfig><Admin>${NO}</Admin></AMPSConfig>").queues == ()
    assert leased(load(queue("<Filter>/a = '$NO ${} ${1}'</Filter>"))).filter == "/a = '$NO ${} ${1}'"


def test_variables_that_are_not_there() -> None:
    """A fault with path and name; a value that grows without end is one, too."""
    _, faults = read(queue("<Filter>/a = '${NO}'</Filter>"))
    assert faults == ["a.xml:1: LocalQueue/Filter: the environment has no variable NO"]
    _, faults = read(queue(f"<Filter>{'${BIG}' * 100}</Filter>"), BIG="x" * 60_000)
    assert any("has more than 65536 characters after variables are replaced" in line for line in faults)


# -- other files ------------------------------------------------------------------------------------------------------


def including(text: str, **others: str) -> tuple[Configuration, list[str]]:
    """A text as a.xml beside others, by their names without .xml, and its faults as lines."""

    def fetch(file: str, path: str) -> tuple[str, str]:
        if path not in others:
            raise ValueError("is not a file")
        return f"{path}.xml", others[path]

    configuration, faults = load_configuration([("a.xml", text)], {"NAME": "b"}, fetch)
    return configuration, [str(fault) for fault in faults]


def test_included_files_stand_in_their_places() -> None:
    """A whole part, the same part's elements, a queue; lines are those of the included file."""
    bad = "\n" + queue("<LeasePeriod>x</LeasePeriod>", name="B")
    for text, other in (
        ("<AMPSConfig><Include>b</Include></AMPSConfig>", f"<SOW>{bad}</SOW>"),
        ("<AMPSConfig>\n<Include>${NAME}</Include></AMPSConfig>", f"<AMPSConfig><SOW>{bad}</SOW></AMPSConfig>"),
        ("<AMPSConfig><SOW><Include> b </Include></SOW></AMPSConfig>", f"<SOW>{bad}</SOW>"),
        ("<AMPSConfig><SOW><Include>c</Include></SOW></AMPSConfig>", f"<SOW>{bad}</SOW>"),
    ):
        _, faults = including(text, b=other, c="<SOW><Include>b</Include></SOW>")
        assert [line.split(": ")[:3] for line in faults] == [
            ["b.xml:2", "AMPSConfig/SOW/LocalQueue/LeasePeriod", "E-DUR"]
        ], text
    text = f"<SOW>{queue()}<Include>b</Include></SOW>"
    configuration, faults = including(text, b=queue(name="B"))
    assert not faults and configuration.included == ("b.xml",)
    assert [(one.name, str(one.origin)) for one in configuration.queues] == [("Q", "a.xml:1"), ("B", "b.xml:1")]
    _, (line,) = including(text, b="\n" + queue())
    assert line.startswith("b.xml:2: SOW/LocalQueue/Name: E-NAME: ")
    _, (line,) = including("<TransactionLog><Include>b</Include></TransactionLog>", b=log("a").replace("json", "x"))
    assert line.startswith("b.xml:1: TransactionLog/Topic/MessageType: E-MTYPE")


def test_files_that_cannot_be_included() -> None:
    """Missing, no XML, themselves, too many; inside a queue there are none."""
    whole = "<AMPSConfig>{}</AMPSConfig>"
    one = whole.format("<Include>b</Include>")
    assert including(one)[1] == ["a.xml:1: AMPSConfig/Include: 'b' is not a file"]
    assert including(one, b="<SOW")[1] == ["b.xml:1: XML: not well-formed: unclosed token"]
    assert including(one, b="<!DOCTYPE a><SOW/>")[1] == ["b.xml:1: XML: document types (DOCTYPE) are refused"]
    assert including(whole.format("<Include/>"))[1] == [
        "a.xml:1: AMPSConfig/Include: is empty, expected the path of a file"
    ]
    assert read(one)[1] == ["a.xml:1: AMPSConfig/Include: other files cannot be included here"]
    _, faults = including(one, b=one)
    assert faults == ["b.xml:1: AMPSConfig/Include: included files are nested more than 8 deep"]
    _, faults = including(one, b=whole.format("<Include>b</Include>" * 10))
    assert "b.xml:1: AMPSConfig/Include: more than 100 inclusions" in faults
    _, faults = including(queue("<Include>b</Include>"), b="<LeasePeriod>1s</LeasePeriod>")
    assert faults == ["a.xml:1: LocalQueue/Include: E-UNKNOWN: unknown element"]


# -- actions ----------------------------------------------------------------------------------------------------------


def action(on: str = "<Topic>Q</Topic>", do: str = "<Topic>Dead</Topic><Data>{{AMPS_DATA}}</Data>") -> str:
    """An action with these options."""
    return (
        f"<Actions><Action>\n<On><Module>amps-action-on-sow-expire-message</Module><Options>{on}</Options></On>\n"
        f"<Do><Module>amps-action-do-publish-message</Module><Options>{do}</Options></Do></Action></Actions>"
    )


def test_a_message_published_for_an_expired_one_is_a_dead_letter() -> None:
    """Queues page A.2, H.1: of the queues that the topic names, by name or pattern, in whatever file."""
    configuration = load(action(), queue())
    (declared,) = configuration.queues
    assert declared.arguments["x-dead-letter-exchange"] == ""
    assert declared.arguments["x-dead-letter-routing-key"] == "Dead"
    assert str(declared.origin_of("x-dead-letter-routing-key")) == "a.xml:2"
    assert [warning for warning in configuration.warnings if "Actions" in warning] == []
    target = "<Topic>Dead-{{AMPS_TOPIC}}</Topic><MessageType>json</MessageType><Data>{{AMPS_DATA}}</Data>"
    text = f"<SOW>{queue()}{queue(name='QQ')}{queue(name='R')}</SOW>"
    configuration = load(text, action("<Topic>^Q</Topic><MessageType>json</MessageType>", target))
    assert [one.arguments.get("x-dead-letter-routing-key") for one in configuration.queues] == [
        "Dead-Q", "Dead-QQ", None
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("on", "do", "problem"),
    [
        ("", "<Topic>D</Topic><Data>x</Data>", "3: Actions/Action/On/Options/Topic: is missing"),
        ("<Topic>Q</Topic>", "<Topic>D</Topic>", "3: Actions/Action/Do/Options/Data: is missing"),
        ("<Topic>Q</Topic><Reason>late</Reason>", "", "2: Actions/Action/On/Options/Reason: E-ENUM: "),
        ("<Topic>(Q</Topic>", "", "2: Actions/Action/On/Options/Topic: E-REGEX: "),
        ("<Topic>Q</Topic><MessageType>y</MessageType>", "", "2: Actions/Action/On/Options/MessageType: E-MTYPE: "),
        ("<Topic>Q</Topic><Topics/>", "", "2: Actions/Action/On/Options/Topics: E-UNKNOWN: "),
        (
            "<Topic>Q</Topic>",
            "<Topic>D</Topic><Data>{{AMPS_REASONS}}</Data>",
            "3: Actions/Action/Do/Options/Data: '{{AMPS_REASONS}}' is unknown here, did you mean 'AMPS_REASON'?",
        ),
        (
            "<Topic>Q</Topic>",
            "<Topic>{{AMPS_DATA}}</Topic><Data>x</Data>",
            "3: Actions/Action/Do/Options/Topic: '{{AMPS_DATA}}' is unknown here",
        ),
    ],
)
def test_faults_of_actions(on: str, do: str, problem: str) -> None:
    """Options that are missing, unknown, wrong."""
    _, faults = read(action(on, do or "<Topic>D</Topic><Data>{{AMPS_DATA}}</Data>"), queue())
    line = problem.replace("3: Actions/Action/On", "2: Actions/Action/On")
    assert len(faults) == 1 and faults[0].startswith(f"a.xml:{line}"), faults


def test_a_queue_has_one_topic_for_its_dead() -> None:
    """A second action for it is a fault."""
    _, (line,) = read(action(), action("<Topic>^Q</Topic>"), queue())
    assert line == (
        "b.xml:2: Actions/Action/On/Options/Topic: a second action for queue 'Q', whose dead letters go to one topic"
    )


def test_another_body_and_some_reasons_only() -> None:
    """Arguments of the queue, where they are not what they are without."""
    do = "<Topic>Dead</Topic><Data>{{AMPS_REASON}}: {{AMPS_DATA}}</Data>"
    settings = leased(load(action("<Topic>Q</Topic><Reason>max_cancels, time_limit</Reason>", do), queue()))
    assert settings.dead_letter_reasons == "time_limit,max_cancels"
    assert settings.dead_letter_data == "{{AMPS_REASON}}: {{AMPS_DATA}}"
    every = "<Topic>Q</Topic><Reason>time_limit,forced_expire,max_cancels,max_deliveries</Reason>"
    for on in ("<Topic>Q</Topic>", every):
        settings = leased(load(action(on), queue()))
        assert (settings.dead_letter_reasons, settings.dead_letter_data) == (None, None)


def test_what_actions_cannot_do_here() -> None:
    """No such queue: with a warning. Other modules: skipped."""
    (warning,) = load(action()).warnings
    assert warning == "a.xml:2: Actions/Action/On/Options/Topic: no queue here is called 'Q'"
    step = "<{0}><Module>amps-action-{1}</Module><Options><Every>1h</Every><Every/></Options></{0}>"
    text = f"<Actions><Action>{step.format('On', 'on-schedule')}{step.format('Do', 'do-nothing')}</Action></Actions>"
    assert load(text).warnings == (
        "a.xml:1: Actions/Action/On/Options amps-action-on-schedule: accepted, but without effect in this version",
    )
    _, (line,) = read("<Actions><Action/></Actions>")
    assert line == "a.xml:1: Actions/Action: expected On and Do"


# -- hostile input ----------------------------------------------------------------------------------------------------


def test_an_example_cut_short_anywhere_is_refused() -> None:
    """At each character: one fault with a line, no exception."""
    for end in range(1, len(WHOLE.rstrip()) - 1):
        configuration, faults = read(WHOLE[:end])
        assert len(faults) == 1 and faults[0].startswith("a.xml:"), (end, faults)
        assert configuration.queues == ()


def test_too_deep_too_long_too_many() -> None:
    """Bounds of the tree; expressions and patterns have their own."""
    _, (line,) = read("<SOW>" * 40 + "</SOW>" * 40)
    assert "nested deeper than 32" in line
    _, (line,) = read(queue(f"<Filter>{'x' * 70_000}</Filter>"))
    assert "more than 65536 characters of text in <Filter>" in line
    _, (line,) = read(f"<SOW>{'<Queue/>' * 100_001}</SOW>")
    assert "more than 100000 elements" in line
    assert fault(f"<Filter>{'(' * 3000}1{')' * 3000}</Filter>")[1] == "E-EXPR"
    assert fault(f"<Filter>/a = '{'x' * 9000}'</Filter>")[1] == "E-EXPR"
    assert fault(f"<UnderlyingTopic>{'(a{1,200}){1,200}'}</UnderlyingTopic>")[1] == "E-REGEX"
    assert fault(f"<UnderlyingTopic>{'a' * 256}</UnderlyingTopic>")[1] == "E-NAME"
    assert fault(f"<MaxBacklog>{'9' * 5000}</MaxBacklog>")[1] == "E-INT"
    assert fault(f"<LeasePeriod>{'9' * 5000}d</LeasePeriod>")[1] == "E-DUR"


def test_wrong_encodings() -> None:
    """A declared one that the file is not, and characters that XML does not have."""
    text = '<?xml version="1.0" encoding="{}"?>' + queue(name="Größe")
    assert load(text.format("utf-8")).queues[0].name == "Größe"
    assert read(text.format("ISO-8859-1"))[1] == ["a.xml:1: XML: says it is 'ISO-8859-1', expected UTF-8"]
    for bad in ("\x00", "\x0b", "\ud800"):
        _, (line,) = read(queue(name=f"a{bad}b"))
        assert line.startswith("a.xml:1: XML: not well-formed")


@given(st.data())
def test_any_tree_of_known_names_is_read_or_refused(data: st.DataObject) -> None:
    """Whatever stands in whatever: faults, or a configuration whose queues are valid."""
    names = sorted(AMPS_ROOTS | {"Action", "On", "Do", "Module", "Options", "Data", "Reason", "Destination", "Qeue"})
    texts = [
        "",
        "Q",
        "json",
        "1",
        "1s",
        "^a.*",
        "enabled",
        "/a = 1",
        "${X}",
        "at-most-once",
        "amps-action-do-publish-message",
    ]

    def tree(depth: int) -> str:
        name = data.draw(st.sampled_from(names))
        inside = [tree(depth - 1) for _ in range(data.draw(st.integers(0, 4)))] if depth else []
        return f"<{name}>{data.draw(st.sampled_from(texts))}{''.join(inside)}</{name}>"

    configuration, faults = read(tree(3), X="json")
    if not faults:
        for declared in configuration.queues:
            assert leased(configuration, declared.name)
