"""`leveret check` on names that are nearly those of something declared; the rest is what applications declare."""

import pytest

from leveret.amqp_frontend.peer import login as sasl
from leveret.engine.exchanges.exchange import PREDECLARED
from leveret.settings import load_configuration
from leveret.settings.lint.misspelt_names import EXCHANGES, MECHANISMS
from leveret.settings.lint.similar_names import NAMES_MAX, looks_like, similar_names


@pytest.mark.parametrize(
    "name, other, is_slip",
    [
        ("faild", "failed", True),  # a letter is missing
        ("faailed", "failed", True),  # one too many
        ("foiled", "failed", True),  # another one
        ("fialed", "failed", True),  # two exchanged
        ("afiled", "failed", True),  # the first two as well
        ("Failed", "failed", True),
        ("dead-letters", "dead_letters", True),
        ("deadletters", "dead.letters", True),
        ("jobs.mial.high", "jobs.mail.high", True),
        ("order", "orders", True),
        ("failed", "failed", False),
        ("fled", "failed", False),  # two letters
        ("orders.eu", "orders.us", False),  # short words are names of their own
        ("DLA", "DLX", False),
        ("jobs1", "jobs2", False),  # so are numbers
        ("eu-1.jobs", "eu-2.jobs", False),
        ("jobs", "jobs1", False),
        ("dead", "read", False),  # first and last letters tell things apart
        ("shardA", "shardB", False),
        ("mails", "smail", False),
        ("invoices", "invoicing", False),
        ("", "jobs", False),
        ("\u00e4ndern", "\u00e4ndren", True),
    ],
)
def test_slips_of_the_pen(name: str, other: str, is_slip: bool) -> None:
    """Alike in both directions, and found among others."""
    assert looks_like(name, other) is looks_like(other, name) is is_slip
    assert similar_names([name], ["something", other, "else"]) == ({name: other} if is_slip else {})


def test_the_first_of_several() -> None:
    """By name."""
    assert similar_names(["faild"], ["failled", "failed"]) == {"faild": "failed"}


def test_names_by_the_thousand() -> None:
    """Nobody wrote them by hand, and a reload must not take long over them."""
    many = [f"customer.number{number}" for number in range(NAMES_MAX + 1)]
    assert similar_names(["custmer.number7"], many[:-1]) == {"custmer.number7": "customer.number7"}
    assert similar_names(["custmer.number7"], many) == similar_names(many, ["custmer.number7"]) == {}


FAILED = '[[address]]\nname = "failed"\n[[address.queue]]\nname = "failed"\n'
MAIL = '[[address]]\nname = "jobs.mail"\n[[address.queue]]\nname = "jobs.mail"\n'
NEWS = '[[address]]\nname = "news"\nrouting-type = "multicast"\n'
SHOP = '[[vhost]]\nname = "shop"\n'
SETTING = '[[address-setting]]\nmatch = "#"\n'
DIVERT = '[[divert]]\nname = "d"\naddress = "jobs.mail"\nforwarding-address = "failed"\n'
POLICY = '[[policy]]\nname = "p"\npattern = ""\ndefinition = {{ {} }}\n'
USER = '[[user]]\nname = "u"\n[[user.permission]]\nvhost = "{}"\nconfigure = ""\n'


def findings(text: str) -> list[str]:
    """KEY: NAME -> NAME of each near miss; other doubts as they are."""
    configuration, faults = load_configuration([("f.toml", text)])
    assert not faults, faults
    found = []
    for warning in configuration.warnings:
        where, key, rest = warning.split(": ", 2)
        assert where.startswith("f.toml:")
        if "did you mean" in rest:
            found.append(f"{key}: {rest.split(chr(39))[1]} -> {rest.split(chr(39))[-2]}")
    return found


@pytest.mark.parametrize(
    "text, found",
    [
        (FAILED + SETTING + 'dead-letter-address = "faild"', ["dead-letter-address: faild -> failed"]),
        (FAILED + SETTING + 'expiry-address = "queue:faild"', ["expiry-address: faild -> failed"]),
        (NEWS + SETTING + 'dead-letter-address = "exchange:nwes/key"', ["dead-letter-address: nwes -> news"]),
        (SETTING + 'dead-letter-address = "exchange:amq.dirct"', ["dead-letter-address: amq.dirct -> amq.direct"]),
        (FAILED + MAIL + 'dead-letter-address = "faild"', ["x-dead-letter-address: faild -> failed"]),
        (
            FAILED + MAIL + 'arguments = { x-dead-letter-exchange = "", x-dead-letter-routing-key = "faild" }',
            ["x-dead-letter-routing-key: faild -> failed"],
        ),
        (
            MAIL + 'arguments = { x-dead-letter-exchange = "amq.topci" }',
            ["x-dead-letter-exchange: amq.topci -> amq.topic"],
        ),
        (FAILED + MAIL + DIVERT.replace('"failed"', '["faild", "other"]'), ["forwarding-address: faild -> failed"]),
        (FAILED + MAIL + DIVERT.replace('"jobs.mail"', '"jobs.mial"'), ["address: jobs.mial -> jobs.mail"]),
        (NEWS + POLICY.format('alternate-exchange = "nwes"'), ["alternate-exchange: nwes -> news"]),
        (NEWS + POLICY.format('dead-letter-exchange = "nwes"'), ["dead-letter-exchange: nwes -> news"]),
        (FAILED + POLICY.format('dead-letter-address = "faild"'), ["dead-letter-address: faild -> failed"]),
        (SHOP + USER.format("shpo"), ["vhost: shpo -> shop"]),
        (SHOP + POLICY.format("max-length = 1") + 'vhost = "shpo"\n', ["vhost: shpo -> shop"]),
        (SHOP + SETTING + 'vhost = "shpo"\nredelivery-delay = 1', ["vhost: shpo -> shop"]),
        (SHOP + FAILED.replace("[[address.q", 'vhost = "shpo"\n[[address.q'), ["vhost: shpo -> shop"]),
        (FAILED.replace("[[address.q", 'vhost = "shop"\n[[address.q') + USER.format("shpo"), ["vhost: shpo -> shop"]),
        (
            USER.format("/") + '[[user.topic-permission]]\nexchange = "amq.topci"\n',
            ["topic-permission: amq.topci -> amq.topic"],
        ),
        (MAIL + SETTING.replace("#", "jbos.#") + "redelivery-delay = 1", ["match: jbos.# -> jobs.#"]),
        (MAIL + SETTING.replace("#", "jobs.mial") + "redelivery-delay = 1", ["match: jobs.mial -> jobs.mail"]),
        (MAIL + SETTING.replace("#", "jbos.*") + "redelivery-delay = 1", ["match: jbos.* -> jobs.*"]),
        ('[broker]\nmechanisms = ["PLAIN", "AMPQLAIN"]', ["mechanisms: AMPQLAIN -> AMQPLAIN"]),
        (
            '[broker]\nmechanisms = ["ANONYMOUS"]\nanonymous-user = "vistor"\n[[user]]\nname = "visitor"',
            ["anonymous-user: vistor -> visitor"],
        ),
    ],
)
def test_near_misses(text: str, found: list[str]) -> None:
    """With what was meant."""
    assert findings(text) == found


@pytest.mark.parametrize(
    "text",
    [
        FAILED + SETTING + 'dead-letter-address = "DLA"',
        FAILED + SETTING + 'dead-letter-address = "failed"\nexpiry-address = ""',
        FAILED + SETTING + 'dead-letter-address = "failures"',
        FAILED + SETTING + 'dead-letter-address = "faild"\n' + SETTING.replace("#", "faild") + "max-size-messages = 5",
        FAILED.replace('"failed"', '"failed1"') + SETTING + 'dead-letter-address = "failed2"',
        FAILED + MAIL + 'arguments = { x-dead-letter-exchange = "x", x-dead-letter-routing-key = "faild" }',
        FAILED + MAIL + DIVERT,
        SHOP + USER.format("shop") + '[[user.permission]]\nvhost = "/"\n',
        SHOP + SHOP.replace("shop", "shoop"),  # both declared: both meant
        MAIL + SETTING.replace("#", "jobs.#") + "redelivery-delay = 1",
        MAIL + SETTING.replace("#", "jobs.post.#") + "redelivery-delay = 1",
        MAIL + SETTING.replace("#", "*.mail") + "redelivery-delay = 1",
        SETTING.replace("#", "jbos.#") + "redelivery-delay = 1",  # nothing is declared
        POLICY.format('dead-letter-exchange = "dlx"'),
        '[broker]\nmechanisms = ["ANONYMOUS"]\nanonymous-user = "app"\n[[user]]\nname = "visitor"',
    ],
)
def test_no_false_alarms(text: str) -> None:
    """What applications declare, and what is right."""
    assert findings(text) == []


def test_a_virtual_host_of_its_own_has_its_own_names() -> None:
    """A near name elsewhere is not what is meant."""
    there = FAILED.replace("[[address.q", 'vhost = "shop"\n[[address.q')
    setting = SETTING + 'vhost = "{}"\ndead-letter-address = "faild"\n'
    assert findings(SHOP + there + setting.format("shop")) == ["dead-letter-address: faild -> failed"]
    assert findings(SHOP + there + setting.format("/")) == []


def test_what_a_broker_has_by_itself() -> None:
    """The names of the room that settings may not import."""
    assert set(EXCHANGES) == {name for name, _, _ in PREDECLARED if name} - {"amq.rabbitmq.trace"}
    assert set(MECHANISMS) == set(sasl.MECHANISMS)


def test_a_mechanism_that_nobody_knows() -> None:
    """It cannot be any application's."""
    configuration, _ = load_configuration([("f.toml", '[broker]\nmechanisms = ["PLAIN", "SCRAM"]')])
    known = "known are PLAIN, AMQPLAIN, EXTERNAL, ANONYMOUS"
    assert configuration.warnings == (f"f.toml:2: mechanisms: 'SCRAM' is unknown, so nobody can use it, {known}",)


def test_line_ends_in_names() -> None:
    """Clients take them out of what they declare, so they never say that name."""
    configuration, _ = load_configuration([("f.toml", FAILED.replace('"failed"', '"fai\\nled"'))])
    (warning,) = configuration.warnings
    assert warning.startswith("f.toml:3: queue 'fai\\nled': clients cannot declare, bind or delete it")
