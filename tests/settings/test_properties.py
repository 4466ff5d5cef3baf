"""Artemis' broker-properties: address-settings page 6.2."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.settings import Configuration, load_configuration
from leveret.settings.foreign.properties import is_properties, logical_lines, split_key
from leveret.settings.rows.address_settings import SETTINGS, bean_name


def load(*texts: str) -> Configuration:
    """Texts that have no faults."""
    configuration, faults = load_configuration((f"{number}.any", text) for number, text in enumerate(texts))
    assert not faults, faults
    return configuration


def faults_of(text: str) -> list[str]:
    """The faults of one text."""
    return [str(fault) for fault in load_configuration([("b.properties", text)])[1]]


def test_settings_queues_and_diverts() -> None:
    """Keys are bean paths; names with dots are quoted."""
    configuration = load(
        """\
# a comment
! another
addressSettings.jobs.redeliveryDelay=5000
addressSettings."orders.#".maxDeliveryAttempts = 3
addressesSettings."orders.#".deadLetterAddress : \\
    DLQ
addressSettings.jobs.redeliveryMultiplier=1.5
addressSettings.jobs.sendToDLAOnNoRoute=true
addressSettings.jobs.sendToDlaOnNoRoute=true
addressSettings.jobs.maxSizeBytes=10M
addressSettings.jobs.addressFullMessagePolicy=FAIL
addressConfigurations."LB.TEST".queueConfigs."LB.TEST".routingType=ANYCAST
addressConfigurations."LB.TEST".queueConfigs."LB.TEST".ringSize=3
addressConfigurations.news.routingTypes=MULTICAST
addressConfigurations.news.queueConfigs.archive.durable=false
divertConfigurations.d.address=news
divertConfigurations.d.forwardingAddress=x,y
IDCacheSize=17
persistDeliveryCountBeforeDelivery=false
wildcardConfiguration.singleWord=+
criticalAnalyzer=false
"""
    )
    settings = configuration.repository
    jobs = settings.resolve("jobs")
    assert (jobs.redelivery_delay_ms, jobs.redelivery_delay_multiplier, jobs.max_size_bytes) == (
        5000,
        1.5,
        10 * 1024**2,
    )
    assert (jobs.send_to_dla_on_no_route, jobs.address_full_policy, jobs.id_cache_size) == (True, "FAIL", 17)
    assert (settings.resolve("orders.x").max_delivery_attempts, settings.resolve("orders").dead_letter_address) == (
        3,
        "DLQ",
    )
    ring, archive = configuration.queues
    assert (ring.name, ring.exchange, dict(ring.arguments)) == ("LB.TEST", "", {"x-ring-size": 3})
    assert (archive.exchange, archive.durable, dict(archive.arguments)) == ("news", False, {"x-address": "news"})
    assert [exchange.name for exchange in configuration.exchanges] == ["news"]
    assert configuration.diverts[0].forwarding_addresses == ("x", "y")
    assert settings.wildcards.single_word == "+"
    source = settings.sources("orders.x")["dead_letter_address"]
    assert str(source.origin_of("dead_letter_address")) == "0.any:5"


def test_properties_go_over_xml_field_by_field_wherever_they_are_given() -> None:
    """Applied after the XML; `-` takes a field or a match away."""
    xml = """<address-settings><address-setting match="q">
    <redelivery-delay>1</redelivery-delay><no-expiry>true</no-expiry>
    <max-delivery-attempts>3</max-delivery-attempts></address-setting><address-setting match="r"/></address-settings>"""
    properties = "addressSettings.q.redeliveryDelay=2\naddressSettings.q.noExpiry=-\naddressSettings.r=-\n"
    configuration = load(properties, xml)
    q = configuration.repository.resolve("q")
    assert (q.redelivery_delay_ms, q.no_expiry, q.max_delivery_attempts) == (2, False, 3)
    assert [one.match.text for one in configuration.repository.entries] == ["q"]


DECLARED = """
[[address]]
name = "a"
queue = [{ name = "kept", ring-size = 3 }, { name = "gone" }]
[[address]]
name = "b"
queue = [{ name = "b1" }, { name = "b2" }]
[[divert]]
name = "d"
address = "a"
forwarding-address = "b"
"""


def test_what_other_files_declare_is_changed_or_removed() -> None:
    """A queue keeps its other arguments; a divert is another one; `-` removes a queue, or all of an address."""
    text = "divertConfigurations.d.address=a\ndivertConfigurations.d.forwardingAddress=c\n"
    for one in ("a.queueConfigs.kept.maxConsumers=2", "a.queueConfigs.gone=-", "b=-"):
        text += f"addressConfigurations.{one}\n"
    configuration = load(text, DECLARED)
    (kept,) = configuration.queues
    assert (kept.name, dict(kept.arguments)["x-ring-size"], dict(kept.arguments)["x-max-consumers"]) == ("kept", 3, 2)
    assert [divert.forwarding_addresses for divert in configuration.diverts] == [("c",)]


def test_an_address_that_is_removed() -> None:
    """Goes with its exchange, in the only virtual host that these files know."""
    address = '[[address]]\nname = "a"\nrouting-type = "multicast"\nqueue = [{ name = "q" }]\n'
    configuration = load(address + address.replace("queue", "vhost = 'v'\nqueue"), "addressConfigurations.a=-")
    assert [(one.vhost, one.name) for one in configuration.queues] == [("v", "q")]
    assert [(one.vhost, one.name) for one in configuration.exchanges] == [("v", "a")]


def test_a_divert_that_is_removed() -> None:
    """As addresses and queues are."""
    assert load(DECLARED).diverts and not load("divertConfigurations.d=-\n", DECLARED).diverts
    (fault,) = faults_of("divertConfigurations.d=x\n")
    assert "is not a whole path" in fault


def test_a_queue_that_moves_to_the_address_of_its_own_name() -> None:
    """The argument with the address of the other file goes: the engine would still take that one."""
    before = '[[address]]\nname = "a"\n[[address.queue]]\nname = "q"\n'
    configuration = load(before, "addressConfigurations.q.queueConfigs.q.durable=false")
    (queue,) = configuration.queues
    assert (queue.address, queue.durable, dict(queue.arguments)) == ("q", False, {})


@pytest.mark.parametrize("types, exchange", [("MULTICAST", "a"), ("ANYCAST,MULTICAST", ""), ("ANYCAST", "")])
def test_the_routing_type_of_a_queue_that_names_none(types: str, exchange: str) -> None:
    """That of its address, where that has one alone."""
    text = f"addressConfigurations.a.routingTypes={types}\naddressConfigurations.a.queueConfigs.q.durable=true\n"
    (queue,) = load(text).queues
    assert queue.exchange == exchange


def test_another_quotation_and_another_word_for_removal() -> None:
    """key.surround and remove.value."""
    text = "key.surround=%%\nremove.value=gone\naddressSettings.%%a.b%%.ringSize=1\naddressSettings.%%a.b%%=gone\n"
    (fault,) = faults_of(text)
    assert "ringSize: unknown key in addressSettings, did you mean 'defaultRingSize'?" in fault
    assert load(text.replace("ringSize", "defaultRingSize")).repository.entries == ()


@pytest.mark.parametrize(
    "text, fault",
    [
        (
            "addressSettings.q.redeliveryDelai=5",
            "b.properties:1: redeliveryDelai: unknown key in addressSettings, did you mean",
        ),
        (
            "addressSettings.q.redeliveryDelay=soon",
            "b.properties:1: redeliveryDelay: 'soon' is invalid, expected a duration",
        ),
        (
            "\naddressSettings.q.redeliveryCollisionAvoidanceFactor=5.0",
            "b.properties:2: redeliveryCollisionAvoidanceFactor: '5.0'",
        ),
        ("addressSettings.q.defaultRingSize=-2", "defaultRingSize: '-2' is invalid"),
        ("addressSettings.q=5", "names no setting"),
        ('addressSettings."q=5', "is not a path of names"),
        ("addressSettings..x=5", "is not a path of names"),
        ('addressSettings."a.#.b".noExpiry=true', "match: 'a.#.b'"),
        (
            "addresSettings.q.noExpiry=true",
            "addresSettings: unknown key in broker properties, did you mean 'addressSettings'?",
        ),
        ("addressConfigurations.a.queueConfigs.q.ringSize=0", "ringSize: 0 is invalid, expected -1 or"),
        ("addressConfigurations.a.queueConfigs.q.filterString=x =", "filterString: 'x =' is invalid, expected a sel"),
        ("divertConfigurations.d.transformerConfiguration.className=T", "transformerConfiguration"),
        ("addressConfigurations.a.queueConfigs.q.wringSize=1", "did you mean 'ringSize'?"),
        ("addressConfigurations.a.routingTypes=BROADCAST", "expected one of ANYCAST, MULTICAST"),
        ("divertConfigurations.d.address=a", "needs address and forwardingAddress"),
        ("globalMaxSize=x", "global-max-size: 'x' is invalid"),
    ],
)
def test_faults(text: str, fault: str) -> None:
    """Checked like every other form."""
    (found,) = faults_of(text)
    assert fault in found, found


def test_all_faults_of_a_divert() -> None:
    """Each is told with the line of the divert and the name of its bean."""
    beans = {"address": "a", "forwardingAddress": "b", "exclusive": "maybe", "routingType": "BOTH"}
    found = faults_of("\n".join(f"divertConfigurations.d.{bean}={value}" for bean, value in beans.items()))
    assert [fault.split(" ")[:2] for fault in found] == [
        ["b.properties:1:", "exclusive:"],
        ["b.properties:1:", "routingType:"],
    ]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("addressSettings.x.y=1", True),
        ("adressSettings.x.y=1", True),
        ("# c\n\n  idCacheSize = 5", True),
        ("key.surround = %", True),
        ("[broker]\n", False),
        ("broker.heartbeat = 5", False),
        ("brokr.heartbeat = 5", False),
        ("address-setting = []", False),
        ("", False),
        ("# nothing", False),
    ],
)
def test_the_form_is_seen_by_its_first_key(text: str, expected: bool) -> None:
    """TOML has tables of ours, properties have beans of theirs."""
    assert is_properties(text) is expected


@pytest.mark.parametrize("field", SETTINGS, ids=lambda field: field.key)
def test_every_field_has_a_bean(field: "object") -> None:
    """`a-b` is `aB`; those with names of their own have both."""
    from leveret.settings.rows.address_settings import BY_BEAN, Setting

    assert isinstance(field, Setting)
    for bean in (bean_name(field.key), *field.beans):
        assert BY_BEAN[bean] is field


def test_lines_continue_and_unescape() -> None:
    """java.util.Properties: continuation, escapes, `=`, `:` or space."""
    text = 'a\\ b = c\\\n   d\n# x\\\ne:f\\u0041\\t\ng h\n"q=r".s=t\ni\nj=k\\\\\nl\n'
    assert list(logical_lines(text)) == [
        (1, "a b", "cd"), (4, "e", "fA"), (5, "g", "h"), (6, '"q=r".s', "t"), (7, "i", ""), (8, "j", "k\\"),
        (9, "l", ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "key, names",
    [
        ("a.b", ["a", "b"]),
        ('a."b.c".d', ["a", "b.c", "d"]),
        ('"a"', ["a"]),
        ("a.", None),
        ('a."b', None),
        ('a."b"c', None),
        ("", None),
    ],
)
def test_split_key(key: str, names: list[str] | None) -> None:
    """Paths of names, quoted where they hold dots."""
    assert split_key(key) == names


@given(st.text(alphabet='ab.="\\- \n#:', max_size=60).map(lambda text: "addressSettings." + text))
def test_no_text_makes_the_properties_loader_fail(text: str) -> None:
    """Faults, never exceptions."""
    load_configuration([("b", text)])
