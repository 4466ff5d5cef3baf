"""Native configuration files: address-settings page 6.5; what is refused: 6.3; byte notation: 6.4.

The ids are the rows of address-settings page 8.2, or sections.
"""

import re
import tomllib
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.settings import Configuration, load_configuration
from leveret.settings.files.toml_source import lines_of
from leveret.settings.rows.address_settings import BY_KEY, SETTINGS
from leveret.settings.values import size_bytes


def load(*texts: str) -> Configuration:
    """Texts that have no faults."""
    configuration, faults = load_configuration((f"{number}.toml", text) for number, text in enumerate(texts))
    assert not faults, faults
    return configuration


def faults_of(*texts: str) -> list[str]:
    """Texts that have some."""
    _, faults = load_configuration((f"{number}.toml", text) for number, text in enumerate(texts))
    return [str(fault) for fault in faults]


def setting(key: str, value: object) -> str:
    """One address-setting with one key, on line 3."""
    return f'[[address-setting]]\nmatch = "q"\n{key} = {value}\n'


def of_queue(keys: str) -> str:
    """A queue of one address with these keys, from line 5 on."""
    return f'[[address]]\nname="q"\n[[address.queue]]\nname="q"\n{keys}'


def test_no_files_and_empty_files_are_the_same_configuration() -> None:
    """Without files the loaders are not even imported."""
    without, empty = load(), load("")
    repositories = without.repository, empty.repository
    assert replace(without, repository=empty.repository) == empty
    assert repositories[0].entries == repositories[1].entries == ()
    for name in ("wildcards", "attempts", "id_cache_size", "uuid_namespace"):
        assert getattr(repositories[0], name) == getattr(repositories[1], name)
    assert repositories[0].resolve("a") == repositories[1].resolve("a")


NATIVE = """\
[wildcard-addresses]            # all optional
delimiter = "."
any-words = "#"
single-word = "*"
literal-match-markers = "()"

[broker]
configuration-file-refresh-period = 5000

[[address-setting]]
match = "#"
dead-letter-address = "DLA"
max-delivery-attempts = 10

[[address-setting]]
match = "ring.#"
default-ring-size = 3

[[address-setting]]
match = "exampleQueue"
vhost = "/"                     # optional; default every vhost
redelivery-delay = 5000         # int ms, or "5s"
redelivery-delay-multiplier = 1.5
max-redelivery-delay = "50s"
max-size-bytes = "10MB"
address-full-policy = "drop"

[[address]]
name = "myRing"
  [[address.queue]]             # routing-type = "anycast" is the default
  name = "myRing"
  ring-size = 3
  durable = true

[[address]]
name = "news"
routing-type = "multicast"
  [[address.queue]]
  name = "news.archive"
  arguments = { x-max-length = 1000, x-queue-mode = "lazy" }

[[divert]]
name = "copy"
address = "news"
forwarding-address = ["audit", "mirror"]
exclusive = true

[[vhost]]
name = "other"
"""


def test_the_native_form() -> None:
    """Address-settings page 6.5, with the tables that belong to it."""
    configuration = load(NATIVE)
    assert findings(configuration) == []
    example = configuration.repository.resolve("exampleQueue", "/")
    assert (example.redelivery_delay_ms, example.redelivery_delay_multiplier) == (5000, 1.5)
    assert (example.max_redelivery_delay_ms, example.max_size_bytes) == (50_000, 10 * 1024**2)
    assert example.address_full_policy == "DROP"
    assert configuration.repository.resolve("exampleQueue", "elsewhere").redelivery_delay_ms == 0
    assert configuration.repository.resolve("ring.a").default_ring_size == 3
    ring, archive = configuration.queues
    assert (ring.name, ring.address, ring.durable, ring.exchange) == ("myRing", "myRing", True, "")
    assert dict(ring.arguments) == {"x-ring-size": 3}
    assert (archive.address, archive.exchange) == ("news", "news")
    assert dict(archive.arguments) == {"x-max-length": 1000, "x-queue-mode": "lazy", "x-address": "news"}
    assert [(exchange.name, exchange.type) for exchange in configuration.exchanges] == [("news", "fanout")]
    (divert,) = configuration.diverts
    assert (divert.address, divert.forwarding_addresses, divert.is_exclusive) == ("news", ("audit", "mirror"), True)
    assert divert.routing_name == "copy"
    assert configuration.vhosts == ("other",)


def test_the_same_match_of_two_virtual_hosts() -> None:
    """Each has its own settings."""
    text = "".join(f"[[address-setting]]\nmatch = 'q'\nvhost = '{v}'\nredelivery-delay = {ord(v)}\n" for v in "ab")
    repository = load(text).repository
    assert [repository.resolve("q", vhost).redelivery_delay_ms for vhost in ("a", "b", "c")] == [97, 98, 0]


def test_a_file_that_ends_too_early() -> None:
    """The fault has its last line."""
    (fault,) = faults_of("[broker]\nheartbeat = 5\nlisten = [")
    assert fault.startswith("0.toml:3: TOML: ")


def test_provenance_has_file_line_and_match() -> None:
    """Each field knows its own line."""
    configuration = load(NATIVE)
    sources = configuration.repository.sources("exampleQueue")
    one = sources["max_redelivery_delay_ms"]
    assert (one.match.text, str(one.origin_of("max_redelivery_delay_ms"))) == ("exampleQueue", "0.toml:24")
    assert str(sources["dead_letter_address"].origin_of("dead_letter_address")) == "0.toml:12"
    assert str(configuration.queues[0].origin_of("x-ring-size")) == "0.toml:32"


@pytest.mark.parametrize(
    "row, text, fault",
    [
        ("C01", '[[address-setting]]\nmatch = "a.#.b"\n', ":1: match: 'a.#.b': '#' is allowed only as the last word"),
        (
            "C05",
            setting("redelivery-collision-avoidance-factor", 1.1),
            ":3: redelivery-collision-avoidance-factor: 1.1",
        ),
        ("C05", setting("redelivery-collision-avoidance-factor", -0.1), "expected a number from 0 to 1"),
        ("C06", setting("no-expiry", "true") * 2, ":4: match: 'q' is already declared at 0.toml:1"),
        (
            "C07",
            setting("redelivery_delay", 5),
            ":3: redelivery_delay: unknown key in [[address-setting]], did you mean 'redelivery-delay'?",
        ),
        (
            "C10",
            setting("default-ring-size", 0),
            ":3: default-ring-size: 0 is invalid, expected -1 or an integer from 1",
        ),
        ("C10", setting("default-ring-size", -2), ":3: default-ring-size: -2 is invalid"),
        ("C10", of_queue("ring-size = 0"), ":5: ring-size: 0 is invalid, expected -1 or"),
        ("6.3", setting("page-size-bytes", 0), "expected a size"),
        ("6.3", setting("page-size-bytes", 2**31), "expected a size"),
        ("6.3", setting("max-read-page-messages", 0), "expected -1 or"),
        ("6.3", setting("prefetch-page-bytes", -2), "expected a size"),
        ("6.3", setting("page-limit-bytes", 0), "expected a size"),
        ("6.3", setting("page-limit-messages", -2), "expected -1 or"),
        ("6.3", setting("slow-consumer-threshold", 0), "expected -1 or"),
        ("6.3", setting("slow-consumer-check-period", 0), "expected an integer from 1"),
        ("6.3", setting("auto-delete-queues-delay", -1), "expected a duration"),
        ("6.3", setting("retroactive-message-count", -1), "expected an integer from 0"),
        ("6.3", setting("id-cache-size", -1), "expected an integer from 0"),
        ("6.3", setting("auto-delete-queues-message-count", -2), "expected an integer from -1"),
        ("6.3", setting("default-max-consumers", -2), "expected an integer from -1"),
        ("6.3", setting("redelivery-delay", -1), "expected a duration"),
        ("6.3", setting("redelivery-delay-multiplier", 0), "expected a number above 0"),
        ("6.3", setting("redelivery-delay-multiplier", "nan"), "expected a number above 0"),
        ("6.3", setting("redelivery-delay-multiplier", "inf"), "expected a number above 0"),
        ("6.3", setting("max-redelivery-delay", -1), "expected a duration"),
        ("6.3", setting("expiry-delay", -2), "expected a duration"),
        ("6.3", setting("max-delivery-attempts", -2), "expected an integer from -1"),
        ("6.3", setting("max-delivery-attempts", '"many"'), "'many' is invalid, expected an integer"),
        ("6.3", setting("max-delivery-attempts", "true"), "True is invalid"),
        ("6.3", setting("address-full-policy", '"SPILL"'), "expected one of PAGE, DROP, FAIL, BLOCK"),
        ("6.3", setting("no-expiry", 1), "1 is invalid, expected true or false"),
        ("6.3", '[[address-setting]]\nmatch = ""\n', ":2: match: '' is invalid"),
        ("6.3", "[[address-setting]]\n", ":1: match: is missing in [[address-setting]]"),
        (
            "6.3",
            '[wildcard-addresses]\nliteral-match-markers = "("',
            ":2: literal-match-markers: '(' is invalid, expected two",
        ),
        ("6.3", '[wildcard-addresses]\ndelimiter = ".."', "expected a single character"),
        (
            "6.3",
            '[wildcard-addresses]\ndelimiter = "#"',
            "wildcard-addresses: delimiter, any-words and single-word must be",
        ),
        ("6.3", "[wildcard-addresses]\ndelimeter = 1", "did you mean 'delimiter'?"),
        ("6.7", of_queue("ring-size=1\narguments={x-max-length=2}"), "contradicts x-max-length"),
        ("6.5", of_queue("ring-syze=1"), "ring-syze: unknown key in [[address.queue]], did you mean 'ring-size'?"),
        ("6.5", of_queue('filter="x="'), ":5: filter: 'x=' is invalid, expected a selector: "),
        (
            "6.5",
            of_queue(f"arguments={{x-later={2**63}}}"),
            ":5: x-later: 9223372036854775808 is invalid, expected an integer of 64 bits",
        ),
        ("6.5", of_queue(f"arguments={{x-later={-(2**70)}}}"), "expected an integer of 64 bits"),
        ("6.5", '[[address]]\nname="q"\n[[address.queue]]\n', ":3: name: is missing in [[address.queue]]"),
        ("6.5", "[address]\nname = 'q'", ":1: address: expected tables [[address]]"),
        ("6.5", "[[policy]]\nname = 'x'", ":1: pattern: is missing in [[policy]]"),
        ("6.5", "[[divert]]\nname='d'\naddress='a'", "forwarding-address: is missing"),
        (
            "3.4",
            of_queue("exclusive=true\nsingle-active-consumer=false"),
            ":6: single-active-consumer: sets x-single-active-consumer, which another key sets as well",
        ),
        ("6.5", "[[vhost]]\nname='d'\nlimit=1", ":3: limit: unknown key in [[vhost]]"),
        (
            "6.5",
            "[[address]]\nname='q'\nmax-delivery-attempts=3",
            ":3: max-delivery-attempts: unknown key in [[address]] (it is a key of [[address-setting]])",
        ),
        (
            "6.5",
            setting("ring-size", 3),
            "did you mean 'default-ring-size'? (it is a key of [[queue]] and [[address.queue]])",
        ),
        (
            "6.5",
            "[broker]\nheartbeat = '24h'",
            ":2: heartbeat: '24h' is invalid, expected a duration of at most 65535s",
        ),
        (
            "6.5",
            "[broker]\nheartbeat = 65535001",  # 65,536 seconds, in whole ones
            ":2: heartbeat: 65535001 is invalid, expected a duration of at most 65535s",
        ),
        ("6.5", "[broker]\nlisten = []", ":2: listen: [] is invalid, expected a list of texts that is not empty"),
        (
            "6.5",
            "[broker]\nmechanisms = []",
            ":2: mechanisms: [] is invalid, expected a list of texts that is not empty",
        ),
        ("6.5", "[limits]\nhandshake-timeout = 0", ":2: handshake-timeout: 0 is invalid, expected a duration above 0"),
        (
            "6.5",
            "[limits]\nfirst-octet-timeout = 0",
            ":2: first-octet-timeout: 0 is invalid, expected a duration above 0",
        ),
        (
            "6.5",
            "[[queue]]\nname='q'\nmax-length=3",
            ":3: max-length: unknown key in [[queue]], expected arguments = { x-max-length = ... }",
        ),
        (
            "6.5",
            "[[queue]]\nname='q'\nx-max-length=3",
            ":3: x-max-length: unknown key in [[queue]], expected arguments = { x-max-length = ... }",
        ),
        ("6.5", "[journal]\nheartbeat = 9", "unknown key in [journal] (it is a key of [broker])"),
        ("TOML", "[broker]\nheartbeat = " + "9" * 5000, "holds a number or date that cannot be read"),
        ("TOML", "x = " + "[" * 5000, ":1: TOML: nested too deep"),
        ("JSON", '{"addressSettings": {}}', ":1: FILE: looks like JSON"),
    ],
)
def test_faults(row: str, text: str, fault: str) -> None:
    """FILE:LINE: KEY: what is wrong, what was expected."""
    (found,) = faults_of(text)
    assert found.startswith("0.toml:")
    assert fault in found, found


def test_all_faults_of_all_files_in_one_go() -> None:
    """Nobody mends a configuration one fault at a time; faults come by file and line."""
    faults = faults_of(
        setting("redelivery-dely", 5) + "no-expiry = 3\n",
        '[broker]\nprofile = "x"\n\n' + setting("match2", 1),
    )
    assert [fault.split(" ")[0] for fault in faults] == [
        "0.toml:3:",
        "0.toml:4:",
        "1.toml:2:",
        "1.toml:4:",
        "1.toml:6:",
    ]
    assert len(faults) == 5
    assert "is already declared" in " ".join(faults)


def test_a_match_may_stand_in_one_file_only_but_in_each_virtual_host() -> None:
    """Address-settings page 6.5: later files may not repeat a (vhost, match)."""
    here = '[[address-setting]]\nmatch = "q"\nvhost = "v"\n'
    load(setting("no-expiry", "true"), here)
    assert "is already declared at 0.toml:1" in faults_of(here, here)[0]


def test_later_files_go_over_earlier_ones_key_by_key() -> None:
    """The wildcard syntax of the last file holds for the matches of all."""
    configuration = load(
        '[[address-setting]]\nmatch = "a/>"\ndefault-ring-size = 2\n',
        '[wildcard-addresses]\ndelimiter="/"\nany-words=">"\n',
    )
    assert configuration.repository.resolve("a/b").default_ring_size == 2


def findings(configuration: Configuration) -> list[str]:
    """Warnings, but for those about what this version does not do yet."""
    return [warning for warning in configuration.warnings if not warning.endswith("without effect in this version")]


@pytest.mark.parametrize(
    "text, warning",
    [
        (
            setting("page-size-bytes", '"1MB"'),
            "0.toml:3: page-size-bytes: accepted, but means nothing here: What is paged out is in the journal, see "
            "`segment-size`.",
        ),
        (setting("max-delivery-attempts", 0), "0.toml:3: max-delivery-attempts: 0 means unlimited, as -1 does"),
        (setting("max-delivery-attempts", 3), "0.toml:1: match 'q': limit without dead-letter address: after 3 failed"),
        (setting("redelivery-delay", 3), "0.toml:1: match 'q': limit without dead-letter address: after 10 failed"),
        (
            setting("max-size-bytes-reject-threshold", 3),
            "0.toml:3: match 'q': max-size-bytes-reject-threshold has no effect with address-full-policy PAGE, not "
            "BLOCK",
        ),
        (
            setting("page-limit-bytes", 3)
            + 'page-full-policy = "DROP"\naddress-full-policy = "FAIL"\nmax-size-bytes = 9',
            "0.toml:3: match 'q': page-limit-bytes has no effect with address-full-policy FAIL, not PAGE",
        ),
        (setting("page-limit-messages", 3), "page-limit-messages has no effect without page-full-policy"),
        (
            setting("page-full-policy", '"DROP"'),
            "page-full-policy has no effect without page-limit-bytes and page-limit-messages",
        ),
        (
            setting("max-size-messages", 3) + 'cursor = "vm"\n',
            "match 'q': address-full-policy is PAGE, but with the cursor vm messages beyond the limit stay in memory",
        ),
        (
            setting("dead-letter-address", '"D"') + "redelivery-delay = 9\nmax-redelivery-delay = 3\n",
            "0.toml:5: match 'q': max-redelivery-delay 3 is below redelivery-delay 9",
        ),
        ("[broker]\nheartbeat = 60\n", "0.toml:2: heartbeat: 60 is in milliseconds, so clients are offered 1 s"),
        (
            setting("dead-letter-address", '"D"') + "redelivery-delay-multiplier = 0.5\n",
            "0.toml:4: redelivery-delay-multiplier: 0.5 makes",
        ),
        (
            of_queue("max-delivery-attempts=3"),
            "0.toml:3: queue 'q': limit without dead-letter address",
        ),
        (  # earlier releases loaded it
            "[[policy]]\nname = 'x'\npattern = 'q'\n[policy.definition]\nha-mode = 'all'\nha-params = 2",
            '0.toml:4: definition: ha-mode="all" does not take parameters; it has no effect',
        ),
    ],
)
def test_warnings(text: str, warning: str) -> None:
    """Usable, but worth a word: once."""
    found, *others = findings(load(text)) or load(text).warnings
    assert not others
    assert warning in found


def test_no_warning_where_the_dead_letter_address_is_inherited_or_switched_off_on_purpose() -> None:
    """`check` warns of what nobody said; an empty address is said."""
    wide = '[[address-setting]]\nmatch = "#"\ndead-letter-address = "D"\n'
    assert load(wide + setting("max-delivery-attempts", 3)).warnings == ()
    assert load(setting("dead-letter-address", '""') + "max-delivery-attempts = 3\n").warnings == ()


def test_keys_without_effect_warn_once_each() -> None:
    """Not once for every entry."""
    entries = "".join(
        f'[[address-setting]]\nmatch = "{name}"\npage-size-bytes = 1\nredistribution-delay = 1\n' for name in "abc"
    )
    assert len(load(entries).warnings) == 2


@pytest.mark.parametrize(
    "written, octets",
    [
        ("1024", 1024), ("10MB", 10_485_760), ("10 mb", 10_485_760), ("10M", 10_485_760), ("10MiB", 10_485_760),
        ("10mi", 10_485_760), ("5b", 5), ("1GiB", 2**30), ("1 G", 2**30), ("1gb", 2**30), ("10K", 10_240),
        ("10 kb", 10_240), ("10KiB", 10_240), ("817M", 856_686_592), ("0", 0), ("-1", -1),
        ("2TiB", 2**41), ("2 tb", 2**41),
    ],
)  # fmt: skip
def test_byte_notation(written: str, octets: int) -> None:
    """Address-settings page 6.4 and 8.2, row C03: powers of 1024, any case."""
    settings = load(setting("max-size-bytes", f'"{written}"') + 'address-full-policy = "FAIL"\n').repository
    assert settings.resolve("q").max_size_bytes == octets


@pytest.mark.parametrize(
    "written",
    ["x", "", "1.5G", "-1K", "10T", "1_000", "10 M B", "10MBs", "0x10", "9999999999G", "5ib", "-2", "1e3", "٣"],
)
def test_byte_notation_that_is_refused(written: str) -> None:
    """And nothing beyond 2^63 - 1."""
    assert "max-size-bytes" in faults_of(setting("max-size-bytes", f'"{written}"'))[0]
    with pytest.raises(ValueError):
        size_bytes(written)


@pytest.mark.parametrize("field", SETTINGS, ids=lambda field: field.key)
def test_every_field_reads_its_default_and_refuses_a_date(field: Any) -> None:
    """The default can be written down, and what is no value of the field's kind cannot."""
    default = field.default
    if default == "":
        default = "DROP" if field.key in ("page-full-policy", "disk-full-policy") else default
    elif field.key == "address-full-policy":
        default = "FAIL"
    written = (
        str(default).lower() if isinstance(default, bool) else f'"{default}"' if isinstance(default, str) else default
    )
    resolved = load(setting(field.key, written)).repository.resolve("q")
    assert getattr(resolved, field.attribute) == default
    assert f":3: {field.key}: " in faults_of(setting(field.key, "2020-01-01"))[0]


@given(st.sampled_from(sorted(BY_KEY)), st.data())
def test_a_misspelt_key_gets_the_nearest(name: str, data: st.DataObject) -> None:
    """One letter dropped, doubled or replaced: the hint names a key that is as near."""
    at = data.draw(st.integers(0, len(name) - 1))
    how = data.draw(
        st.sampled_from(
            [name[:at] + name[at + 1 :], name[:at] + name[at] + name[at:], name[:at] + "x" + name[at + 1 :]]
        )
    )
    if how in BY_KEY or how.startswith("-") or not how:
        return
    (fault,) = faults_of(setting(how, 1))
    hint = re.search("did you mean '(.*)'", fault)
    assert hint is not None
    assert likeness(how, hint[1]) >= likeness(how, name)


#: What people have typed: table, key, and what they meant.
_TYPED = (
    ("address-setting", "max-delivery-attemps", "max-delivery-attempts"),
    ("address-setting", "max_delivery_attempts", "max-delivery-attempts"),
    ("address-setting", "max-deliveries", "max-delivery-attempts"),
    ("address-setting", "redelivery-dealy", "redelivery-delay"),
    ("address-setting", "redelivery-multiplier", "redelivery-delay-multiplier"),
    ("address-setting", "collision-avoidance", "redelivery-collision-avoidance-factor"),
    ("address-setting", "deadletter-address", "dead-letter-address"),
    ("address-setting", "expiry-adress", "expiry-address"),
    ("address-setting", "max-size", "max-size-bytes"),
    ("address-setting", "max-bytes", "max-size-bytes"),
    ("address-setting", "address-full", "address-full-policy"),
    ("address-setting", "autocreate-queues", "auto-create-queues"),
    ("address-setting", "auto-delete-queue", "auto-delete-queues"),
    ("address-setting", "slow-consumer-treshold", "slow-consumer-threshold"),
    ("address-setting", "ring-size", "default-ring-size"),
    ("address-setting", "last-value-key", "default-last-value-key"),
    ("address-setting", "group-rebalance", "default-group-rebalance"),
    ("broker", "heartbeet", "heartbeat"),
    ("broker", "heart-beat", "heartbeat"),
    ("broker", "listner", "listen"),
    ("broker", "frame_max", "frame-max"),
    ("limits", "memmory", "memory"),
    ("limits", "conections", "connections"),
    ("broker", "port", ""),
    ("broker", "ssl", ""),
    ("broker", "default-user", ""),
    ("limits", "disk", ""),
    ("limits", "file-descriptors", ""),
    ("address-setting", "ttl", ""),
    ("address-setting", "consumers", ""),
    ("address-setting", "compression", ""),
    ("address-setting", "replication-factor", ""),
    ("address-setting", "vhost-limits", ""),
)


@pytest.mark.parametrize("table, typed, meant", _TYPED)
def test_a_hint_names_what_was_meant_or_is_not_given(table: str, typed: str, meant: str) -> None:
    """A hint that is not similar (`compression`: `message-eviction`) sends the reader to the wrong key."""
    (fault,) = faults_of(setting(typed, 1) if table == "address-setting" else f"[{table}]\n{typed} = 1\n")
    hint = re.search("did you mean '(.*?)'", fault)
    assert (hint[1] if hint else "") == meant


@pytest.mark.parametrize(
    "typed, meant",
    [("brokr", "broker"), ("adress-setting", "address-setting"), ("queues", "queue"), ("managment", "management"),
     ("policies", "policy"), ("server", ""), ("logging", ""), ("storage", "")],
)  # fmt: skip
def test_a_hint_for_a_table(typed: str, meant: str) -> None:
    """As for keys."""
    (fault,) = faults_of(f"[{typed}]\n")
    hint = re.search("did you mean '(.*?)'", fault)
    assert (hint[1] if hint else "") == meant


def likeness(one: str, other: str) -> float:
    """From 0 to 1."""
    return SequenceMatcher(None, other, one).ratio()


# -- lines ------------------------------------------------------------------------------------------------------------

LINES = '''\
# a comment with [brackets] and "quotes"
a.b = 1
"c d" = { e = 2, "f.g" = [1, { h = "]" }] }

[t]   # comment
x = """
y = 1
[z]
""" # end
w = [
  1, # one
  { v = 2 },
]
[[r]]
k = 'it''s'
[[r.s]]
n = 1
[[r.s]]
n = 2
[[r]]
k = 2
[r.u]
m = 2020-01-01T00:00:00
'''.replace("'it''s'", '"it\'s"')


def test_lines_of_keys() -> None:
    """Strings, comments, inline tables and arrays of tables do not confuse it."""
    lines = lines_of(LINES)
    expected: dict[tuple[str | int, ...], int] = {
        ("a", "b"): 2, ("c d", "e"): 3, ("c d", "f.g", 1, "h"): 3, ("t",): 5, ("t", "x"): 6, ("t", "w"): 10,
        ("t", "w", 0): 11, ("t", "w", 1, "v"): 12, ("r", 0): 14, ("r", 0, "k"): 15, ("r", 0, "s", 0, "n"): 17,
        ("r", 0, "s", 1): 18, ("r", 0, "s", 1, "n"): 19, ("r", 1): 20, ("r", 1, "k"): 21, ("r", 1, "u", "m"): 23,
    }  # fmt: skip
    assert {path: lines.get(path) for path in expected} == expected
    assert ("t", "y") not in lines and ("z",) not in lines


def paths(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every path in a document."""
    found = [path] if path else []
    if isinstance(value, dict):
        for key, inner in value.items():
            found += paths(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found += paths(inner, (*path, index))
    return found


@given(st.text(alphabet="ab.=[]{}\"'#\n\\, 1", max_size=60))
def test_every_path_of_a_valid_document_has_its_line(text: str) -> None:
    """Whatever tomllib accepts, and nothing that it accepts makes the scanner fail."""
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, ValueError):
        return
    lines = lines_of(text)
    assert set(paths(document)) <= set(lines)
    assert all(1 <= line <= text.count("\n") + 1 for line in lines.values())


@given(st.text(max_size=200))
def test_no_text_makes_the_loader_fail(text: str) -> None:
    """Faults, never exceptions."""
    load_configuration([("any", text)])


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("v4.1", "rabbitmq-4.0"),
        ("RabbitMQ-4.2", "rabbitmq-4.0"),
        ("rabbitmq-4.3.1", "rabbitmq-4.3"),
        ("3.12", "rabbitmq-3.10"),
    ],
)
def test_names_of_versions_that_users_try(name: str, profile: str) -> None:
    """Each follows the profile that begins before it."""
    configuration, faults = load_configuration([("f", f'[broker]\nprofile = "{name}"\n')])
    assert not faults and configuration.broker.profile == profile


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("artemis", "leave profile out"),
        ("ActiveMQ", "leave profile out"),
        ("rabbitmq", "did you mean"),
        ("9.9", "4.3'?"),
    ],
)
def test_names_of_profiles_that_are_none(name: str, hint: str) -> None:
    """The fault says what to do instead."""
    _, faults = load_configuration([("f", f'[broker]\nprofile = "{name}"\n')])
    assert [hint in str(fault) for fault in faults] == [True], faults
