"""Foreign files load as they stand: what their system accepts loads, with a warning where it means nothing here.

Each shape is one that the examples of Artemis, HornetQ or ActiveMQ have; what changes how messages are delivered is
done, or refused by name.
"""

import posixpath
from collections.abc import Callable, Mapping

import pytest

from leveret.configured.options import broker_options
from leveret.engine.rules.queue_rules import QueueRules, redelivery_delay_ms
from leveret.settings import Configuration, layer_of, load_configuration

XI = "xmlns:xi='http://www.w3.org/2001/XInclude'"


def within(files: Mapping[str, str]) -> Callable[[str, str], tuple[str, str]]:
    """Reads files that others include."""

    def fetch(file: str, path: str) -> tuple[str, str]:
        name = posixpath.normpath(posixpath.join(posixpath.dirname(file), path))
        if name not in files:
            raise ValueError("is not a file")
        return name, files[name]

    return fetch


def read(text: str, files: Mapping[str, str] | None = None, **environment: str) -> tuple[Configuration, list[str]]:
    """The configuration and the faults of etc/f.xml beside other files."""
    configuration, faults = load_configuration([("etc/f.xml", text)], environment, within(files or {}))
    return configuration, [str(fault) for fault in faults]


def load(text: str, files: Mapping[str, str] | None = None, **environment: str) -> Configuration:
    """Of a text that has no faults."""
    configuration, faults = read(text, files, **environment)
    assert not faults, faults
    return configuration


# -- matches ----------------------------------------------------------------------------------------------------------


def settings(*entries: tuple[str, str]) -> str:
    """<address-settings> with a line for each (match, children)."""
    lines = [f"<address-setting match='{match}'>{children}</address-setting>" for match, children in entries]
    return "<address-settings>\n" + "\n".join(lines) + "\n</address-settings>"


def test_the_match_that_artemis_create_wrote() -> None:
    """`activemq.management#` is `activemq.management.#`: the address itself and what is below it, nothing else."""
    text = settings(("activemq.management#", "<redelivery-delay>7</redelivery-delay>"))
    repository = load(text).repository
    delays = [
        repository.resolve(address).redelivery_delay_ms
        for address in ("activemq.management", "activemq.management.a.b", "activemq.managements", "activemq")
    ]
    assert delays == [7, 7, 0, 0]


def test_wildcards_inside_of_words() -> None:
    """`a*` is a word that begins with a and goes on, as in Artemis; a whole word is nearer."""
    given = {"a*.x": 1, "*b.#": 2, "a*c*": 3, "ab.x": 4}
    matches = ((key, f"<redelivery-delay>{at}</redelivery-delay>") for key, at in given.items())
    repository = load(settings(*matches)).repository
    expected = {"ab.x": 4, "ac.x": 1, "a.x": 0, "ab": 2, "b": 0, "xb.y": 2, "abcd": 3, "ac": 0, "a.c.": 0, "abcd.x": 1}
    assert {name: repository.resolve(name).redelivery_delay_ms for name in expected} == expected


def test_a_match_without_delimiter_beside_the_same_with_it() -> None:
    """Artemis merges both."""
    text = settings(("a#", "<redelivery-delay>7</redelivery-delay>"), ("a.#", "<no-expiry>true</no-expiry>"))
    resolved = load(text).repository.resolve("a.b")
    assert (resolved.redelivery_delay_ms, resolved.no_expiry) == (7, True)


@pytest.mark.parametrize("is_first", [True, False])
def test_everything_beside_all_jms_queues(is_first: bool) -> None:
    """`jms.queue.#` is the nearer of both, setting by setting, in any order."""
    pair = [
        ("#", "<redelivery-delay>5</redelivery-delay><max-delivery-attempts>3</max-delivery-attempts>"),
        ("jms.queue.#", "<redelivery-delay>9</redelivery-delay>"),
    ]
    configuration = load(settings(*(pair if is_first else pair[::-1])))
    resolved = configuration.repository.resolve("q")
    assert (resolved.redelivery_delay_ms, resolved.max_delivery_attempts) == (9, 3)


def test_queues_of_dead_letters_beside_files_of_artemis() -> None:
    """Artemis creates none, Leveret does: each entry is of its own file's mind."""
    xml = settings(("#", "<dead-letter-address>D</dead-letter-address>"))
    ours = "[[address-setting]]\nmatch = 'ours'\nexpiry-address = 'E'\n"
    configuration, faults = load_configuration([("f.xml", xml), ("f.toml", ours)])
    resolve = configuration.repository.resolve
    assert not faults
    assert [resolve(name).auto_create_missing_queues for name in ("ours", "theirs")] == [True, False]


def test_settings_of_topics_alone() -> None:
    """A name is one here: what `jms.topic.#` sets beside `#` holds for queues as well, and it says so."""
    pair = (
        ("#", "<max-delivery-attempts>3</max-delivery-attempts>"),
        ("jms.topic.#", "<redelivery-delay>9</redelivery-delay>"),
    )
    configuration = load(settings(*pair))
    assert configuration.repository.resolve("q").redelivery_delay_ms == 9
    assert "etc/f.xml:3: match: 'jms.topic.#' is '#' without its JMS prefix: it applies to queues, too" in (
        configuration.warnings
    )
    _, faults = read(settings(*pair, ("jms.queue.#", "<redelivery-delay>1</redelivery-delay>")))
    assert faults == [
        "etc/f.xml:3: match: 'jms.topic.#' is '#' without its JMS prefix, "
        "which is already declared at etc/f.xml:4 with other settings"
    ]
    contradicts = ("#", "<redelivery-delay>1</redelivery-delay>")
    agrees = ("jms.queue.#", "<max-delivery-attempts>3</max-delivery-attempts>")
    _, (fault,) = read(settings(contradicts, pair[1], agrees))
    assert fault.endswith("which is already declared at etc/f.xml:2 with other settings")


def test_a_match_that_stands_twice_in_a_file() -> None:
    """The last one holds, as in Artemis, and it says so."""
    configuration = load(
        settings(("a", "<redelivery-delay>5</redelivery-delay>"), ("a", "<no-expiry>true</no-expiry>"))
    )
    assert configuration.repository.resolve("a").redelivery_delay_ms == 0
    assert configuration.warnings == (
        "etc/f.xml:3: match: 'a' is already declared at etc/f.xml:2: only this one applies",
    )


# -- elements ---------------------------------------------------------------------------------------------------------


def test_a_queue_that_stands_twice_in_a_file() -> None:
    """As anycast and as multicast: the first one is there, as in Artemis."""
    queue = "<queue name='q'/>"
    text = f"<address name='q'><anycast>{queue}</anycast>\n<multicast>{queue}</multicast></address>"
    configuration = load(text)
    assert [one.routing_type for one in configuration.queues] == ["ANYCAST"]
    (warning,) = configuration.warnings
    assert warning == "etc/f.xml:2: queue: 'q' is already declared at etc/f.xml:1: only that one applies"


def test_queues_of_an_address_with_wildcards() -> None:
    """They get nothing of other addresses here, which it says."""
    (warning,) = load("<address name='news.#'>\n<multicast><queue name='all'/></multicast></address>").warnings
    assert warning.startswith("etc/f.xml:2: address: 'news.#' covers other addresses in Artemis; here its queues get")


def test_an_address_without_a_routing_type() -> None:
    """It makes nothing, and says so."""
    configuration = load("<addresses>\n<address name='a'/>\n<address name='b'></address></addresses>")
    assert (configuration.queues, configuration.exchanges) == ((), ())
    assert [warning.split(": ")[0] for warning in configuration.warnings] == ["etc/f.xml:2", "etc/f.xml:3"]


@pytest.mark.parametrize(
    "element",
    [
        "connection-routers",
        "broker-balancers",
        "backup-connector-ref",
        "mqtt-session-scan-interval",
        "page-sync-timeout",
    ],
)
def test_elements_of_some_version(element: str) -> None:
    """What a version of Artemis or HornetQ knows is a warning, also where it stands twice."""
    (warning,) = load(f"<core><{element}>${{nowhere}}</{element}>\n<{element}/></core>").warnings
    assert warning.startswith(f"etc/f.xml:1: {element}: accepted, but without effect")


@pytest.mark.parametrize("name", ["clustered", "distribution-policy-class"])
def test_settings_of_the_first_hornetq(name: str) -> None:
    """They concern clusters."""
    (warning,) = load(settings(("a", f"<{name}>true</{name}>"))).warnings
    assert warning.startswith(f"etc/f.xml:2: {name}: accepted, but without effect")


@pytest.mark.parametrize(
    "text, where, what",
    [
        (
            "<server xmlns='urn:jboss:domain:20.0'>\n<profile>\n"
            "<subsystem xmlns='urn:jboss:domain:messaging-activemq:13.0'/></profile></server>",
            "3: server",
            "a file of WildFly or JBoss",
        ),
        ("<broker xmlns='http://activemq.apache.org/schema'/>", "1: broker", "Artemis' bootstrap.xml"),
        ("<management-context xmlns='http://activemq.apache.org/schema'/>", "1: management-context", "Artemis'"),
        (
            "<configuration xmlns='urn:hornetq'><user name='a'/></configuration>",
            "1: configuration",
            "hornetq-users.xml",
        ),
        ("<deployment xmlns='urn:jboss:bean-deployer:2.0'/>", "1: deployment", "HornetQ's hornetq-beans.xml"),
        ("<project/>", "1: project", "Maven's pom.xml"),
        ("<subsystem xmlns='urn:jboss:domain:messaging:1.4'/>", "1: subsystem", "a file of WildFly or JBoss"),
    ],
)
def test_files_that_are_something_else(text: str, where: str, what: str) -> None:
    """They say what they are, and what is expected."""
    (fault,) = read(text)[1]
    assert fault.startswith(f"etc/f.xml:{where}: this is ") and what in fault and "expected broker.xml" in fault


# -- HornetQ's headers ------------------------------------------------------------------------------------------------

PREFIXED = (
    "<address-setting match='jms.queue.q'><dead-letter-address>jms.queue.d</dead-letter-address></address-setting>"
)


@pytest.mark.parametrize(
    "text, is_on",
    [
        ("<configuration xmlns='urn:hornetq'/>", True),
        (PREFIXED, True),  # a part of a file, as in HornetQ's manual
        (f"<core xmlns='urn:activemq:core'>{PREFIXED}</core>", False),  # Artemis 1
        ("<configuration xmlns='urn:activemq'/>", False),
        ("<core xmlns='urn:activemq:core'><legacy-hornetq-headers>true</legacy-hornetq-headers></core>", True),
        (
            "<configuration xmlns='urn:hornetq'><legacy-hornetq-headers>0</legacy-hornetq-headers></configuration>",
            False,
        ),
    ],
)
def test_who_gets_headers_of_hornetq(text: str, is_on: bool) -> None:
    """Dead letters of a broker with a HornetQ file have `_HQ_ORIG_QUEUE` and the like; other files can say so."""
    assert broker_options(load(text)).legacy_hornetq_headers is is_on


def test_a_file_can_switch_hornetqs_headers_off() -> None:
    """What is said explicitly wins over what a HornetQ file implies, in any order."""
    files = [("a.toml", "[broker]\nlegacy-hornetq-headers = false"), ("h.xml", "<configuration xmlns='urn:hornetq'/>")]
    for order in (files, files[::-1]):
        assert load_configuration(order)[0].broker.legacy_hornetq_headers is False


def test_properties_can_switch_hornetqs_headers_on() -> None:
    (configuration, faults) = load_configuration([("a.properties", "legacyHornetqHeaders=true")])
    assert not faults and configuration.broker.legacy_hornetq_headers is True


# -- variables --------------------------------------------------------------------------------------------------------


def test_variables_and_their_defaults() -> None:
    """`${NAME:default}` in values and attributes, of the environment or its default."""
    text = """<core><global-max-size>${size:7}</global-max-size>
    <acceptors><acceptor name="a">tcp://${nowhere}</acceptor></acceptors>
    <address-settings><address-setting match="${prefix:a}.#"><redelivery-delay>${ delay : 5 }</redelivery-delay>
    </address-setting></address-settings></core>"""
    plain, given = load(text), load(text, delay="6", prefix="b")
    assert plain.broker.global_max_size == 7
    assert plain.repository.resolve("a.x").redelivery_delay_ms == 5
    assert given.repository.resolve("b.x").redelivery_delay_ms == 6


def test_variables_of_activemq() -> None:
    """Spring's have the same form."""
    text = """<broker brokerName="${nowhere}"><systemUsage><systemUsage><memoryUsage>
    <memoryUsage limit="${memory:64 mb}"/></memoryUsage></systemUsage></systemUsage></broker>"""
    assert load(text).value("system-usage", "memory") == 64 * 1024**2
    assert load(text, memory="1 mb").value("system-usage", "memory") == 1024**2


@pytest.mark.parametrize(
    "value, environment, fault",
    [
        ("${nowhere}", {}, "etc/f.xml:1: global-max-size: the environment has no variable nowhere"),
        ("${x}" * 3, {"x": "1" * 60_000}, "has more than 65536 characters after variables are replaced"),
        ("${x}", {"x": "<b/>"}, "'<b/>' is invalid"),  # text, never markup
        ("${x}", {"x": "${x}"}, "'${x}' is invalid"),  # once
    ],
)
def test_variables_that_are_not_there(value: str, environment: dict[str, str], fault: str) -> None:
    """A fault where it stands; bounded."""
    _, faults = read(f"<global-max-size>{value}</global-max-size>", **environment)
    assert any(fault in one for one in faults), faults


# -- inclusions -------------------------------------------------------------------------------------------------------


def test_a_file_that_includes_others() -> None:
    """The root of the other file stands in the place of `xi:include`, at any depth; lines are those of its file."""
    files = {
        "etc/addresses.xml": "<addresses><address name='a'><anycast><queue name='a'/></anycast></address></addresses>",
        "etc/parts/settings.xml": f"<address-settings {XI}>\n<xi:include href='one.xml'/></address-settings>",
        "etc/parts/one.xml": "<address-setting match='a'>\n<redelivery-delay>5</redelivery-delay></address-setting>",
    }
    text = f"<core {XI}><xi:include href='addresses.xml'/><xi:include href='./parts/settings.xml' parse='xml'/></core>"
    configuration = load(text, files)
    assert [queue.name for queue in configuration.queues] == ["a"]
    assert configuration.repository.resolve("a").redelivery_delay_ms == 5
    assert configuration.included == tuple(files)
    files["etc/parts/one.xml"] = files["etc/parts/one.xml"].replace("5", "soon")
    (fault,) = read(text, files)[1]
    assert fault.startswith("etc/parts/one.xml:2: redelivery-delay: 'soon' is invalid")


@pytest.mark.parametrize(
    "included, fault",
    [
        ("<queue name='q'>\n<entry name='/q'/><durable>maybe</durable></queue>", "2: durable: 'maybe' is invalid"),
        ("<queue name='q'>\n<entry name='/q'/>\n<colour/></queue>", "3: colour: unknown key in <queue>"),
        ("<queue name='q'>\n<entry name='/q'/><filter string='('/></queue>", "2: filter: '(' is invalid"),
        ("<topic name='t'>\n<colour/></topic>", "2: colour: unknown key in <topic>"),
    ],
)
def test_faults_of_jms_objects_in_a_file_that_is_included(included: str, fault: str) -> None:
    """They name that file, not the one that includes it."""
    (found,) = read(f"<configuration {XI}><xi:include href='jms.xml'/></configuration>", {"etc/jms.xml": included})[1]
    assert found.startswith(f"etc/jms.xml:{fault}")


def test_what_stands_in_for_a_file_that_is_missing() -> None:
    """`xi:fallback`, with a warning."""
    instead = "<xi:fallback><id-cache-size>9</id-cache-size></xi:fallback>"
    text = f"<core {XI}>\n<xi:include href='x.xml'>{instead}</xi:include></core>"
    configuration = load(text)
    assert configuration.broker.id_cache_size == 9
    assert configuration.warnings == ("etc/f.xml:2: xi:include: 'x.xml' is not a file",)


def test_inclusions_where_nothing_is_read() -> None:
    """Of elements without a meaning here nothing is fetched."""
    assert load(f"<core {XI}><acceptors><xi:include href='../secret.xml'/></acceptors></core>").included == ()


@pytest.mark.parametrize(
    "href, fault",
    [
        ("../f.xml", "'../f.xml' is not in the directory of etc/f.xml"),
        ("a/../../x.xml", "is not in the directory of etc/f.xml"),
        ("/etc/passwd", "'/etc/passwd' is not in the directory of etc/f.xml"),
        ("file:///etc/passwd", "is not in the directory of etc/f.xml"),
        ("http://127.0.0.1/x.xml", "is not in the directory of etc/f.xml"),
        ("..\\x.xml", "is not in the directory of etc/f.xml"),
        ("${up:..}/x.xml", "is not in the directory of etc/f.xml"),
        ("f.xml", "'f.xml' includes itself"),
        ("", "names no file"),
        ("missing.xml", "'missing.xml' is not a file"),
    ],
)
def test_inclusions_that_are_refused(href: str, fault: str) -> None:
    """Nothing outside the directory of the file that is given, and no circle."""
    _, faults = read(f"<core {XI}>\n<xi:include href='{href}'/></core>", {"x.xml": "<core/>", "etc/f.xml": "<core/>"})
    assert len(faults) == 1 and faults[0].startswith("etc/f.xml:2: xi:include: ") and fault in faults[0], faults


def test_a_circle_of_inclusions_ends() -> None:
    """Each file is read once on the way round."""
    files = {
        "etc/a.xml": f"<core {XI}><xi:include href='b.xml'/></core>",
        "etc/b.xml": f"<core {XI}>\n<xi:include href='a.xml'/></core>",
    }
    configuration, faults = read(f"<core {XI}><xi:include href='a.xml'/></core>", files)
    assert faults == ["etc/b.xml:2: xi:include: 'a.xml' includes itself"]
    assert configuration.included == ("etc/a.xml", "etc/b.xml")


def test_bulk_by_inclusion_is_refused() -> None:
    """As many elements in all as one file may have, a hundred inclusions, eight deep."""
    big = "<core>" + "<queue name='q'/>" * 60_000 + "</core>"
    _, faults = read(
        f"<core {XI}><xi:include href='a.xml'/><xi:include href='b.xml'/></core>", {"etc/a.xml": big, "etc/b.xml": big}
    )
    assert "etc/b.xml:1: XML: more than 100000 elements" in faults
    many = f"<core {XI}>" + "<xi:include href='a.xml'/>" * 101 + "</core>"
    assert read(many, {"etc/a.xml": "<core/>"})[1] == ["etc/f.xml:1: xi:include: more than 100 inclusions"]
    deep = {f"etc/{n}.xml": f"<core {XI}><xi:include href='{n + 1}.xml'/></core>" for n in range(9)}
    assert read(deep["etc/0.xml"], deep)[1] == ["etc/8.xml:1: xi:include: included files are nested more than 8 deep"]


@pytest.mark.parametrize("attributes", ["parse='text'", "xpointer='element(/1)'"])
def test_parts_of_files_are_not_included(attributes: str) -> None:
    """Only whole files."""
    (fault,) = read(f"<core {XI}><xi:include href='a.xml' {attributes}/></core>", {"etc/a.xml": "<core/>"})[1]
    assert "only whole XML files" in fault


def test_an_included_file_may_not_declare_entities() -> None:
    """As any other."""
    bomb = '<!DOCTYPE a [<!ENTITY b "c">]><core>&b;</core>'
    (fault,) = read(f"<core {XI}><xi:include href='a.xml'/></core>", {"etc/a.xml": bomb})[1]
    assert fault == "etc/a.xml:1: XML: document types (DOCTYPE) are refused"


# -- ActiveMQ ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "attributes",
    [
        "destroyApplicationContextOnStop='true'", "destroyApplicationContextOnShutdown='true'",
        "masterConnectorURI='tcp://a:1'", "persistenceAdapter='#store'", "maxUncommittedCount='5'", "clustered='false'",
    ],
)  # fmt: skip
def test_attributes_of_some_activemq(attributes: str) -> None:
    """What a version knows is a warning."""
    (warning,) = load(f"<beans>\n<broker {attributes}/></beans>").warnings
    assert warning.startswith("etc/f.xml:2: ") and "accepted, but without effect" in warning


def test_several_destinations_in_one_entry() -> None:
    """With commas between them."""
    text = '<policyEntry queue="a, queue://b.>" memoryLimit="5"/>'
    repository = load(text).repository
    limits = [repository.resolve_queue(name, "/", layer_of()).memory_limit for name in ("a", "b.c", "c")]
    assert limits == [5, 5, -1]


def test_an_entry_that_stands_twice() -> None:
    """The last one holds."""
    text = (
        '<policyEntries>\n<policyEntry topic=">" memoryLimit="5"/>\n<policyEntry topic=">" cursor="x" memoryLimit="6"/>'
    )
    text = text.replace(' cursor="x"', "") + "</policyEntries>"
    configuration = load(text)
    assert configuration.repository.resolve_topic("a").memory_limit == 6
    (warning,) = configuration.warnings
    assert warning.startswith("etc/f.xml:3: topic: '>' is already declared at etc/f.xml:2: only this one applies")


def test_destinations_that_are_there_from_the_start() -> None:
    """Queues, and a fanout exchange for each topic."""
    text = (
        "<destinations><queue physicalName='q'/>\n<topic physicalName='t'/><tempQueue physicalName='x'/></destinations>"
    )
    configuration = load(f"<broker>{text}</broker>")
    assert [queue.name for queue in configuration.queues] == ["q"]
    assert [(exchange.name, exchange.origin.line) for exchange in configuration.exchanges] == [("t", 2)]


@pytest.mark.parametrize(
    "attribute, field, value",
    [
        ('allConsumersExclusiveByDefault="true"', "default_exclusive_queue", True),
        ('consumersBeforeDispatchStarts="2"', "default_consumers_before_dispatch", 2),
        ('timeBeforeDispatchStarts="5"', "default_delay_before_dispatch_ms", 5),
    ],
)
def test_attributes_that_concern_delivery(attribute: str, field: str, value: object) -> None:
    """They have counterparts."""
    configuration = load(f'<policyEntry queue="q" {attribute}/>')
    assert getattr(configuration.repository.resolve_queue("q", "/", layer_of()), field) == value
    assert configuration.warnings == ()


def test_plugins_that_are_not_read_may_name_what_is_not_there() -> None:
    """Passwords of a file that Spring would read."""
    user = "<simpleAuthenticationPlugin><users><authenticationUser password='${guest.password}'/></users>"
    (warning,) = load(f"<broker><plugins>{user}</simpleAuthenticationPlugin></plugins></broker>").warnings
    assert warning.startswith("etc/f.xml:1: simpleAuthenticationPlugin: accepted, but without effect")


def redelivery(policies: str, flags: str = "", others: str = "") -> str:
    """A broker with a redeliveryPlugin."""
    return f"""<broker schedulerSupport="true"><plugins>{others}<redeliveryPlugin {flags}><redeliveryPolicyMap>
    <redeliveryPolicyMap>{policies}</redeliveryPolicyMap></redeliveryPolicyMap></redeliveryPlugin></plugins></broker>"""


def waits(configuration: Configuration, queue: str) -> list[int]:
    """The first four waits of a message."""
    resolved = configuration.repository.resolve_queue(queue, "/", layer_of())
    rules = QueueRules(
        redelivery_delay_ms=resolved.redelivery_delay_ms,
        redelivery_delay_multiplier=resolved.redelivery_delay_multiplier,
        max_redelivery_delay_ms=resolved.max_redelivery_delay_ms,
    )
    return [redelivery_delay_ms(rules, attempts, 0.5) or 0 for attempts in range(1, 5)]


@pytest.mark.parametrize(
    "policy, attempts, expected",
    [
        ("", 7, [1000, 1000, 1000, 1000]),
        ("maximumRedeliveries='4' redeliveryDelay='10000'", 5, [1000, 10_000, 10_000, 10_000]),
        ("maximumRedeliveries='0' initialRedeliveryDelay='3000' redeliveryDelay='7000'", 1, [3000, 7000, 7000, 7000]),
        ("maximumRedeliveries='-1' initialRedeliveryDelay='5000' redeliveryDelay='5000'", -1, [5000] * 4),
        ("useExponentialBackOff='true' backOffMultiplier='2'", 7, [1000, 2000, 4000, 8000]),
        ("useExponentialBackOff='true'", 7, [1000, 5000, 25_000, 125_000]),
        (
            "useExponentialBackOff='true' backOffMultiplier='3' maximumRedeliveryDelay='5000'",
            7,
            [1000, 3000, 5000, 5000],
        ),
        ("useExponentialBackOff='true' backOffMultiplier='1'", 7, [1000, 1000, 1000, 1000]),
    ],
)
def test_a_redelivery_policy(policy: str, attempts: int, expected: list[int]) -> None:
    """As ActiveMQ's RedeliveryPlugin waits; then the message goes to ActiveMQ's queue for dead letters."""
    entry = f"<redeliveryPolicyEntries><redeliveryPolicy queue='a.>' {policy}/></redeliveryPolicyEntries>"
    configuration = load(redelivery(entry))
    resolved = configuration.repository.resolve_queue("a.b", "/", layer_of())
    assert (resolved.max_delivery_attempts, resolved.dead_letter_address) == (attempts, "ActiveMQ.DLQ")
    assert waits(configuration, "a.b") == expected
    assert [queue.name for queue in configuration.queues] == ["ActiveMQ.DLQ"]
    assert configuration.repository.resolve_queue("b", "/", layer_of()).max_delivery_attempts == -1


def test_the_nearest_redelivery_policy_rules() -> None:
    """Alone: what it does not say is ActiveMQ's default, not that of the wider one."""
    text = redelivery(
        """<redeliveryPolicyEntries><redeliveryPolicy queue="a" maximumRedeliveries="1" useCollisionAvoidance="true"/>
        <redeliveryPolicy queue=">" maximumRedeliveries="2" initialRedeliveryDelay="2000" redeliveryDelay="2000"/>
        </redeliveryPolicyEntries><defaultEntry><redeliveryPolicy maximumRedeliveries="9"/></defaultEntry>"""
    )
    configuration = load(text)
    near, wide = (configuration.repository.resolve_queue(name, "/", layer_of()) for name in "ab")
    assert (near.max_delivery_attempts, near.redelivery_delay_ms) == (2, 1000)
    assert near.redelivery_collision_avoidance_factor == 0.15
    assert (wide.max_delivery_attempts, wide.redelivery_delay_ms) == (3, 2000)
    assert wide.redelivery_collision_avoidance_factor == 0


def test_redelivery_beside_policies_of_destinations() -> None:
    """A policyEntry says where dead letters go, the redelivery policy when; settings of other files stay."""
    policies = """<broker><destinationPolicy><policyMap><policyEntries><policyEntry queue=">"><deadLetterStrategy>
    <individualDeadLetterStrategy queuePrefix="DLQ."/></deadLetterStrategy></policyEntry></policyEntries></policyMap>
    </destinationPolicy>"""
    text = redelivery("<defaultEntry><redeliveryPolicy maximumRedeliveries='2'/></defaultEntry>")
    both = text.replace('<broker schedulerSupport="true">', policies)
    toml = '[[address-setting]]\nmatch = "#"\nno-expiry = true\nmax-delivery-attempts = 50'
    configuration, faults = load_configuration([("a.xml", both), ("b.toml", toml)])
    assert not faults
    resolved = configuration.repository.resolve_queue("q", "/", layer_of())
    assert (resolved.dead_letter_address, resolved.dead_letter_queue_prefix) == ("DLQ.", "DLQ.")
    assert resolved.no_expiry is True


def test_messages_that_are_discarded_in_the_end() -> None:
    """`sendToDlqIfMaxRetriesExceeded` false, or the plugin that discards dead letters."""
    policies = "<defaultEntry><redeliveryPolicy maximumRedeliveries='2'/></defaultEntry>"
    for text in (
        redelivery(policies, "sendToDlqIfMaxRetriesExceeded='false'"),
        redelivery(policies, others="<discardingDLQBrokerPlugin dropAll='true'/>"),
    ):
        configuration = load(text)
        resolved = configuration.repository.resolve_queue("q", "/", layer_of())
        assert (resolved.max_delivery_attempts, resolved.dead_letter_address) == (3, "")
        assert configuration.queues == ()


def test_plugins_that_become_settings() -> None:
    """How long messages live, and what is on disk."""
    text = "<plugins><timeStampingBrokerPlugin zeroExpirationOverride='1000' ttlCeiling='60000' futureOnly='true'/>"
    text += "<forcePersistencyModeBrokerPlugin persistenceFlag='true'/></plugins>"
    configuration = load(text)
    resolved = configuration.repository.resolve("q")
    assert (resolved.expiry_delay_ms, resolved.max_expiry_delay_ms) == (1000, 60_000)
    assert configuration.journal.scope == "all"


@pytest.mark.parametrize(
    "text, warning",
    [
        (
            redelivery("<redeliveryPolicyEntries><redeliveryPolicy topic='>'/></redeliveryPolicyEntries>"),
            "etc/f.xml:2: topic: no effect: the queues of subscribers have their own names",
        ),
        (
            redelivery("<defaultEntry><redeliveryPolicy initialRedeliveryDelay='5000'/></defaultEntry>"),
            "etc/f.xml:2: redeliveryDelay: every wait is 5000 ms; ActiveMQ's would be 1000 ms from the second on",
        ),
        ("<plugins>\n<loggingBrokerPlugin/></plugins>", "etc/f.xml:2: loggingBrokerPlugin: accepted, but without"),
    ],
)
def test_what_plugins_say(text: str, warning: str) -> None:
    """What is not quite the same, and what means nothing."""
    assert any(one.startswith(warning) for one in load(text).warnings), load(text).warnings


@pytest.mark.parametrize(
    "text, fault",
    [
        ("<plugins><discardingDLQBrokerPlugin dropOnly='a.*'/></plugins>", "dropOnly: is not done here"),
        ("<plugins><camelRoutesBrokerPlugin/></plugins>", "camelRoutesBrokerPlugin: is not done here"),
        (
            "<plugins><forcePersistencyModeBrokerPlugin/></plugins>",
            "forcePersistencyModeBrokerPlugin: is not done here",
        ),
        (
            "<plugins><bean class='o.a.RedeliveryPlugin'/></plugins>",
            "bean: is not read; write it as <redeliveryPlugin>",
        ),
        (
            redelivery("<defaultEntry><redeliveryPolicy maximumRedelivery='2'/></defaultEntry>"),
            "maximumRedelivery: unknown key in <redeliveryPolicy>, did you mean 'maximumRedeliver",
        ),
        (
            redelivery("<defaultEntry><redeliveryPolicy redeliveryDelay='soon'/></defaultEntry>"),
            "redeliveryPolicy/redeliveryDelay: 'soon' is invalid, expected an integer",
        ),
        (
            redelivery("<redeliveryPolicyEntries><redeliveryPolicy/></redeliveryPolicyEntries>"),
            "queue: is missing, expected queue or topic in <redeliveryPolicy>",
        ),
        (
            redelivery("<redeliveryPolicyEntries><redeliveryPolicy queue='a.>.b'/></redeliveryPolicyEntries>"),
            "'a.>.b': '>' is allowed only as the last word",
        ),
        ("<destinationInterceptors><mirroredQueue/></destinationInterceptors>", "mirroredQueue: is not done here"),
        (
            "<destinationInterceptors><compositeQueue name='a.>'/></destinationInterceptors>",
            "name: 'a.>' covers several",
        ),
        (
            "<destinationInterceptors><compositeQueue name='a'><forwardTo><filteredDestination selector='x='"
            " queue='q'/></forwardTo></compositeQueue></destinationInterceptors>",
            "filter: 'x=' is invalid, expected a selector",
        ),
        (redelivery("<redeliveryPolicies/>"), "redeliveryPolicies: unknown key in <redeliveryPolicyMap>"),
        (redelivery("", "sendToDlqIfMaxRetriesExceeded='perhaps'"), "'perhaps' is invalid, expected true or false"),
    ],
)
def test_plugins_that_are_refused(text: str, fault: str) -> None:
    """By name."""
    assert any(fault in one for one in read(text)[1]), read(text)[1]
