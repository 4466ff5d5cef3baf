"""XML of Artemis and HornetQ: the examples of seeds 000 and 004, whole files, and hostile ones.

The ids are rows of address-settings page 8.2.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.settings import Configuration, load_configuration
from leveret.settings.rows.address_settings import SETTINGS
from leveret.settings.rows.broker_keys import KEYS


def load(*texts: str) -> Configuration:
    """Texts that have no faults."""
    configuration, faults = load_configuration((f"{number}.xml", text) for number, text in enumerate(texts))
    assert not faults, faults
    return configuration


def faults_of(text: str) -> list[str]:
    """The faults of one text."""
    return [str(fault) for fault in load_configuration([("f.xml", text)])[1]]


# -- the examples of seeds 000 and 004; comments are ours -------------------------------------------------------------

RING_QUEUE = """\
<addresses>
<address name="myRing">
<anycast>
<queue name="myRing" ring-size="3" />
</anycast>
</address>
</addresses>
"""
RING_SETTING = """\
<address-settings>
<address-setting match="ring.#">
<default-ring-size>3</default-ring-size>
</address-setting>
</address-settings>
"""
REDELIVERY = """\

<!-- five seconds before a message comes again -->
<address-setting match="jms.queue.exampleQueue">
<!-- each wait half as long again -->
<redelivery-delay-multiplier>1.5</redelivery-delay-multiplier>
<!-- milliseconds -->
<redelivery-delay>5000</redelivery-delay>
<!-- at most -->
<max-redelivery-delay>50000</max-redelivery-delay>

</address-setting>"""
DEAD_LETTER = """\

<!-- three attempts, then
to another queue -->
<address-setting match="jms.queue.exampleQueue">
<dead-letter-address>jms.queue.deadLetterQueue</dead-letter-address>
<max-delivery-attempts>3</max-delivery-attempts>
</address-setting>"""
PERSIST = """\

<persist-delivery-count-before-delivery>true</persist-delivery-count-before-delivery>"""


def test_c02_the_fragments_of_the_ring_seed() -> None:
    """`myRing` exists with ring 3; `ring.#` gives rings to the others."""
    configuration = load(RING_QUEUE, RING_SETTING)
    (queue,) = configuration.queues
    assert (queue.name, queue.address, queue.durable) == ("myRing", "myRing", True)
    assert dict(queue.arguments) == {"x-ring-size": 3}
    assert configuration.repository.resolve("ring.a").default_ring_size == 3
    assert configuration.warnings == ()


def test_c02_c09_the_fragments_of_the_redelivery_seed() -> None:
    """One by one (ruling 18); the JMS prefix is stripped, so exampleQueue has its settings by its AMQP name."""
    example = load(REDELIVERY).repository.resolve("exampleQueue")
    assert (example.redelivery_delay_ms, example.redelivery_delay_multiplier) == (5000, 1.5)
    assert (example.max_redelivery_delay_ms, example.max_delivery_attempts) == (50_000, 10)
    dead = load(DEAD_LETTER).repository.resolve("exampleQueue")
    assert (dead.dead_letter_address, dead.max_delivery_attempts) == ("deadLetterQueue", 3)
    assert load(PERSIST).broker.persist_delivery_count_before_delivery is True


def test_both_redelivery_fragments_at_once_name_one_match_twice() -> None:
    """They are alternatives in seed 004; together they are ambiguous (6.3)."""
    _, faults = load_configuration([("one.xml", REDELIVERY), ("two.xml", DEAD_LETTER)])
    assert [str(fault) for fault in faults] == ["two.xml:4: match: 'exampleQueue' is already declared at one.xml:3"]


BROKER = """\
<?xml version="1.0" encoding="UTF-8" standalone="no"?>
<configuration xmlns="urn:activemq" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
               xsi:schemaLocation="urn:activemq /schema/artemis-configuration.xsd">
  <core xmlns="urn:activemq:core">
    <name>broker</name>
    <persistence-enabled>true</persistence-enabled>
    <acceptors><acceptor name="amqp">tcp://0.0.0.0:5672</acceptor></acceptors>
    <id-cache-size>17</id-cache-size>
    <configuration-file-refresh-period>-1</configuration-file-refresh-period>
    <wildcard-addresses>
      <routing-enabled>true</routing-enabled>
      <delimiter>/</delimiter>
    </wildcard-addresses>
    <literal-match-markers>()</literal-match-markers>
    <address-settings>
      <address-setting match="#">
        <dead-letter-address>DLQ</dead-letter-address>
        <expiry-address>ExpiryQueue</expiry-address>
        <max-size-bytes>10 MB</max-size-bytes>
        <address-full-policy>drop</address-full-policy>
        <auto-create-dead-letter-resources>1</auto-create-dead-letter-resources>
        <last-value-queue>false</last-value-queue>
      </address-setting>
      <address-setting match="(orders/#)"><default-max-consumers>5</default-max-consumers></address-setting>
    </address-settings>
    <addresses>
      <address name="DLQ"><anycast><queue name="DLQ"/></anycast></address>
      <address name="news">
        <multicast>
          <queue name="archive" max-consumers="2" exclusive="true" purge-on-no-consumers="false">
            <durable>false</durable>
          </queue>
        </multicast>
      </address>
      <address name="empty"><multicast/></address>
    </addresses>
    <diverts>
      <divert name="d"><address>news</address><forwarding-address>a, b</forwarding-address>
        <exclusive>true</exclusive></divert>
    </diverts>
  </core>
</configuration>
"""


def test_a_whole_broker_xml() -> None:
    """Settings, addresses, queues, diverts and wildcard syntax are read; the rest is known and says so once."""
    configuration = load(BROKER)
    orders = configuration.repository.resolve("orders/#")
    assert (orders.default_max_consumers, orders.dead_letter_address) == (5, "DLQ")
    assert (orders.max_size_bytes, orders.address_full_policy) == (10 * 1024**2, "DROP")
    assert orders.auto_create_dead_letter_resources is True
    assert orders.id_cache_size == 17
    assert configuration.broker.configuration_file_refresh_period_ms == -1
    dlq, archive = configuration.queues
    assert (dlq.name, dlq.routing_type) == ("DLQ", "ANYCAST")
    assert dict(archive.arguments) == {
        "x-max-consumers": 2, "x-single-active-consumer": True, "x-purge-on-no-consumers": False, "x-address": "news",
    }  # fmt: skip
    assert (archive.durable, archive.exchange) == (False, "news")
    assert sorted(exchange.name for exchange in configuration.exchanges) == ["empty", "news"]
    assert configuration.diverts[0].forwarding_addresses == ("a", "b")
    waiting = {field.key for field in SETTINGS if not field.is_supported} | {"last-value-queue"}  # an older name
    waiting |= {key for keys in KEYS.values() for key, row in keys.items() if not row.is_supported}
    keys = [warning.split(": ")[1] for warning in configuration.warnings]
    assert [key for key in keys if key not in waiting] == [
        "name", "persistence-enabled", "acceptors", "routing-enabled",
        "expiry-address",  # nothing is bound to ExpiryQueue: Artemis loses what goes there
    ]  # fmt: skip


def test_a_hornetq_configuration() -> None:
    """No <core>; old queues; diverts; addresses lose the JMS prefix."""
    configuration = load(
        """<configuration xmlns="urn:hornetq">
        <clustered>false</clustered>
        <queues>
          <queue name="jms.queue.a"><address>jms.queue.a</address><durable>false</durable></queue>
          <queue name="sub"><address>jms.topic.t</address></queue>
        </queues>
        <address-settings><address-setting match="jms.topic.#"><expiry-address>jms.queue.e</expiry-address>
        </address-setting></address-settings>
        </configuration>""",
        """<configuration xmlns="urn:hornetq"><queue name="j"><entry name="/queue/j"/><durable>true</durable></queue>
        <topic name="jt"><entry name="/topic/jt"/></topic></configuration>""",
    )
    assert [(queue.name, queue.address, queue.exchange, queue.durable) for queue in configuration.queues] == [
        ("a", "a", "", False), ("sub", "t", "t", True), ("j", "j", "", True),
    ]  # fmt: skip
    assert [exchange.name for exchange in configuration.exchanges] == ["t", "jt"]
    assert configuration.repository.resolve("anything").expiry_address == "e"


def test_jms_queues_and_topics_of_one_name_are_one_match_here() -> None:
    """`jms.queue.#` and `jms.topic.#` are both `#`: fine where they say the same, ambiguous where not."""
    pair = """<address-settings>
    <address-setting match="jms.queue.#"><redelivery-delay>5</redelivery-delay></address-setting>
    <address-setting match="jms.topic.#"><redelivery-delay>{}</redelivery-delay></address-setting>
    </address-settings>"""
    assert load(pair.format(5)).repository.resolve("q").redelivery_delay_ms == 5
    (fault,) = faults_of(pair.format(6))
    assert fault == (
        "f.xml:3: match: 'jms.topic.#' is '#' without its JMS prefix, "
        "which is already declared at f.xml:2 with other settings"
    )


@pytest.mark.parametrize(
    "text, fault",
    [
        (
            "<address-settings><address-setting><no-expiry>1</no-expiry></address-setting></address-settings>",
            "f.xml:1: match: is missing",
        ),
        (
            "<address-setting match='a'>\n<redelivery_delay>1</redelivery_delay></address-setting>",
            "f.xml:2: redelivery_delay: unknown key in <address-setting>, did you mean 'redelivery-delay'?",
        ),
        (
            "<address-setting match='a'>\n<no-expiry>1</no-expiry>\n<no-expiry>1</no-expiry></address-setting>",
            "f.xml:3: no-expiry: is given twice in <address-setting>",
        ),
        (
            "<address-setting match='a'><default-last-value-queue>1</default-last-value-queue>"
            "<last-value-queue>1</last-value-queue></address-setting>",
            "the same as default-last-value-queue",
        ),
        (
            "<address-setting match='a'>no-expiry = true</address-setting>",
            "f.xml:1: address-setting: text means nothing in <address-setting>",
        ),
        ("<address-setting match='a.#.b'/>", "f.xml:1: match: 'a.#.b': '#' is allowed only as the last word"),
        ("<address-setting match=''/>", "an empty match covers nothing"),
        ("<address-setting match='a' math='b'/>", "math: unknown key in <address-setting>, did you mean 'match'?"),
        (
            "<address-setting match='a'><max-delivery-attempts>ten</max-delivery-attempts></address-setting>",
            "'ten' is invalid, expected an integer",
        ),
        (
            "<address-setting match='a'><max-delivery-attempts/></address-setting>",
            "'' is invalid, expected an integer",
        ),
        (
            "<address-setting match='a'><no-expiry>yes</no-expiry></address-setting>",
            "'yes' is invalid, expected true or false",
        ),
        ("<address><anycast/></address>", "name: is missing in <address>"),
        ("<queue name='q' ring-size='0'/>", "f.xml:1: ring-size: 0 is invalid, expected -1 or an integer from 1"),
        ("<queue name='q' ring-size='many'/>", "ring-size: 'many' is invalid"),
        ("<queue name='q' ringsize='3'/>", "ringsize: unknown key in <queue>, did you mean 'ring-size'?"),
        (
            "<queue name='q'>\n<filter string='x='/></queue>",
            "f.xml:2: filter: 'x=' is invalid, expected a selector: ",
        ),
        (
            "<divert name='d'><address>a</address><forwarding-address>b</forwarding-address>\n<transformer>"
            "<class-name>org.T</class-name></transformer></divert>",
            "f.xml:2: transformer: 'org.T': code that changes messages cannot run here",
        ),
        (
            "<divert name='d'><address>a</address><filter>x=</filter>"
            "<forwarding-address>b</forwarding-address></divert>",
            "filter: 'x=' is invalid, expected a selector",
        ),
        ("<divert name='d'><address>a</address></divert>", "forwarding-address: is missing in <divert>"),
        ("<core><adress-settings/></core>", "adress-settings: unknown key in <core>, did you mean 'address-settings'?"),
        ("<core><addresses/><addresses/></core>", "addresses: is given twice in <core>"),
        ("<chapter/>", "f.xml:1: chapter: unknown root"),
        ("<literal-match-markers>(</literal-match-markers>", "expected two characters"),
        (
            "<core xmlns:xi='http://www.w3.org/2001/XInclude'><xi:include href='x'/></core>",
            "f.xml:1: xi:include: other files cannot be included here",
        ),
        ("<address-setting>", "f.xml:1: XML: not well-formed"),
        ("<a></b>", "XML: not well-formed: mismatched tag"),
    ],
)
def test_faults(text: str, fault: str) -> None:
    """FILE:LINE: KEY: what is wrong, what was expected."""
    (found,) = faults_of(text)
    assert fault in found, found


def test_all_faults_at_once() -> None:
    """Schema, values and matches in one go, by line."""
    text = """<address-settings>
<address-setting match="a.#.b"><no-expiry>perhaps</no-expiry></address-setting>
<address-setting match="b"><expiry-dely>5</expiry-dely>
<redelivery-delay>-5</redelivery-delay></address-setting>
</address-settings>"""
    assert [fault.split(":")[1] for fault in faults_of(text)] == ["2", "2", "3", "4"]


def test_all_faults_of_a_divert() -> None:
    """A wrong value hides neither the next one nor that the name is taken."""
    divert = "<divert name='d'><address>a</address><forwarding-address>b</forwarding-address>{}</divert>"
    first, again = divert.format(""), divert.format("<exclusive>maybe</exclusive><filter string='x='/>")
    expected = (
        "divert: 'd' is already declared at f.xml:1",
        "exclusive: 'maybe' is invalid",
        "filter: 'x=' is invalid",
    )
    found = faults_of(f"<diverts>{first}{again}</diverts>")
    assert len(found) == len(expected)
    assert all(part in fault for part, fault in zip(expected, found)), found


# -- hostile ----------------------------------------------------------------------------------------------------------

LAUGHS = """<?xml version="1.0"?>
<!DOCTYPE lolz [
<!ENTITY lol "lol">
<!ENTITY lol1 "&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;">
<!ENTITY lol2 "&lol1;&lol1;&lol1;&lol1;&lol1;&lol1;&lol1;&lol1;&lol1;&lol1;">
]>
<address-setting match="&lol2;"/>"""


@pytest.mark.parametrize(
    "text, fault",
    [
        (LAUGHS, "f.xml:2: XML: document types (DOCTYPE) are refused"),
        ('<!DOCTYPE x SYSTEM "file:///etc/passwd"><x/>', "document types (DOCTYPE) are refused"),
        ('<!DOCTYPE x [<!ENTITY % p SYSTEM "http://127.0.0.1/x">%p;]><x/>', "document types (DOCTYPE) are refused"),
        ('<!DOCTYPE chapter PUBLIC "-//OASIS//DTD DocBook XML V4.5//EN" "x">\n<chapter/>', "(DOCTYPE) are refused"),
        ("<address-setting match='&unknown;'/>", "XML: not well-formed: undefined entity"),
        ("<queue name='q'>" * 5000, "nested deeper than 32"),
        (f"<address-setting match='{'a' * 70_000}'/>", "an attribute of more than 65536 characters"),
        (f"<literal-match-markers>{'a' * 70_000}</literal-match-markers>", "more than 65536 characters of text"),
        ("<core>" + "<a/>" * 100_001 + "</core>", "more than 100000 elements"),
        (
            "<?xml version='1.0' encoding='ISO-8859-1'?><address-setting match='\u00e9'/>",
            "says it is 'ISO-8859-1', expected UTF-8",
        ),
        ("<address-setting match='\ud800'/>", "XML: not well-formed"),
        ("<a" + " x='1'" * 2, "not well-formed"),
        ("<" * 1000, "not well-formed"),
        ("<a>\0</a>", "not well-formed"),
        (" " * (16 * 1024**2 + 1), "FILE: is longer than"),
    ],
    ids=lambda value: value[:24] if value.isascii() else "text",
)
def test_hostile_xml_is_one_clear_fault(text: str, fault: str) -> None:
    """No document types, no entities, no depth, no bulk; never an exception."""
    (found,) = faults_of(text)
    assert fault in found, found


@given(st.text(alphabet="<>/ab='\"&;!-[]?\n", max_size=80).map(lambda text: "<" + text))
def test_no_text_makes_the_xml_loader_fail(text: str) -> None:
    """Faults, never exceptions."""
    load_configuration([("f.xml", text)])
