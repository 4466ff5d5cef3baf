"""Merging and resolving: address-settings page 2.4, 3.8, the rows of address-settings page 8.1; ruling 9."""

from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.settings import Layer, ResolvedSettings, SettingsRepository, Wildcards, entry, layer_of
from leveret.settings.addresses.repository import CACHE_MAX
from leveret.settings.rows.address_settings import NOTHING_SET, SETTINGS, merge


def repository(said: dict[str, dict[str, Any]], **options: Any) -> SettingsRepository:
    """S{match -> values} of the page."""
    wildcards = options.pop("wildcards", Wildcards())
    return SettingsRepository(
        [entry(match, None, wildcards, **one) for match, one in said.items()], wildcards, **options
    )


RING = "default_ring_size"


@pytest.mark.parametrize(
    "row, said, expected",
    [
        ("M01", {"#": 5, "ring.#": 3}, {"ring.a": 3, "ring": 3, "rings": 5, "x": 5}),
        ("M02", {"a.*": 2, "a.#": 4}, {"a.b": 2, "a.b.c": 4, "a": 4}),
        ("M03", {"*.*.*": 1, "orders.eu.#": 9}, {"orders.eu.x": 1}),
        ("M05", {"orders.*": 1, "*.eu": 2}, {"orders.eu": 1}),
        ("M06", {"orders.#": 1, "*.eu.#": 2}, {"orders.eu.k": 1}),
        ("M11", {"(w.#)": 1, "w.#": 2}, {"w.#": 1, "w.x": 2}),
        ("M13", {"$sys.#": 1}, {"$sys": 1, "$sys.a": 1, "$sysx": -1}),
        ("M17", {"a.*.b": 1}, {"a..b": -1, "a.x.b": 1}),
        ("M18", {"A.#": 1}, {"a.b": -1}),
    ],
)
def test_ring_sizes(row: str, said: dict[str, int], expected: dict[str, int]) -> None:
    """Those that show by ring-size."""
    settings = repository(
        {match: {RING: size} for match, size in said.items()}, wildcards=Wildcards(literal_markers="()")
    )
    assert {address: settings.resolve(address).default_ring_size for address in expected} == expected


def test_m07_merging_changes_no_entry() -> None:
    """M07, and address-settings page 2.3, row 30: looked up again, in any order, the results stay."""
    settings = repository(
        {
            "foo.*": {"max_redelivery_delay_ms": 10_000},
            "foo.0.#": {"max_redelivery_delay_ms": 20_000, "max_expiry_delay_ms": 20_000},
            "foo.1.#": {"max_redelivery_delay_ms": 30_000, "max_expiry_delay_ms": 30_000},
        }
    )
    expected = {"foo.x": (10_000, -1), "foo.0": (10_000, 20_000), "foo.1": (10_000, 30_000)}
    for address in ("foo.x", "foo.0", "foo.x", "foo.1", "foo.0", "foo.x"):
        resolved = settings.resolve(address)
        assert (resolved.max_redelivery_delay_ms, resolved.max_expiry_delay_ms) == expected[address]


def test_m10_empty_text_unsets_an_address() -> None:
    """`dead-letter-address = ""`: none, whatever the wider entries say."""
    settings = repository(
        {"#": {"dead_letter_address": "D", "max_delivery_attempts": 1}, "quiet": {"dead_letter_address": ""}}
    )
    assert settings.resolve("quiet").dead_letter_address == ""
    assert settings.resolve("quiet").max_delivery_attempts == 1
    assert settings.resolve("loud").dead_letter_address == "D"


@pytest.mark.parametrize(
    "row, said, address, expected",
    [
        ("M14", {}, "q", -1),
        ("M14 an entry of other fields", {"#": {RING: 3}}, "q", -1),
        ("M14 expiry is no redelivery", {"#": {"expiry_address": "E"}}, "q", -1),
        ("M15", {"q": {"redelivery_delay_ms": 0}}, "q", 10),
        ("dead letters alone", {"#": {"dead_letter_address": "D"}}, "q", 10),
        ("empty address", {"#": {"dead_letter_address": ""}}, "q", 10),
        ("said", {"#": {"max_delivery_attempts": 3}}, "q", 3),
        ("0 is unlimited", {"#": {"max_delivery_attempts": 0}}, "q", -1),
        ("-1", {"#": {"max_delivery_attempts": 3}, "q": {"max_delivery_attempts": -1}}, "q", -1),
    ],
)
def test_attempts(row: str, said: dict[str, dict[str, Any]], address: str, expected: int) -> None:
    """Ruling 9: unlimited, unless a matching entry rules redelivery or dead letters; then Artemis' 10."""
    assert repository(said).resolve(address).max_delivery_attempts == expected


@pytest.mark.parametrize(
    "default, expected", [(None, (-1, 10, 3)), (5, (5, 5, 3)), (-1, (-1, -1, 3)), (0, (-1, -1, 3))]
)
def test_default_max_delivery_attempts(default: int | None, expected: tuple[int, int, int]) -> None:
    """[broker] default-max-delivery-attempts stands wherever nobody says a number."""
    said = {"ruled": {"redelivery_delay_ms": 5}, "said": {"max_delivery_attempts": 3}}
    settings = repository(said, default_max_delivery_attempts=default)
    assert tuple(settings.resolve(name).max_delivery_attempts for name in ("plain", "ruled", "said")) == expected


def test_worked_example_of_derived_defaults() -> None:
    """Address-settings page 2.4: the cap is inherited (3000), not ten times the nearer delay."""
    settings = repository(
        {
            "#": {"redelivery_delay_ms": 1000, "max_redelivery_delay_ms": 3000, "max_delivery_attempts": 5},
            "jobs.#": {"redelivery_delay_ms": 2000},
            "jobs.slow": {"redelivery_delay_multiplier": 2.0},
        }
    )
    slow = settings.resolve("jobs.slow")
    assert (slow.redelivery_delay_ms, slow.redelivery_delay_multiplier) == (2000, 2.0)
    assert (slow.max_redelivery_delay_ms, slow.max_delivery_attempts) == (3000, 5)


@pytest.mark.parametrize(
    "said, attribute, expected",
    [
        ({"redelivery_delay_ms": 700}, "max_redelivery_delay_ms", 7000),
        ({"redelivery_delay_ms": 2**63 - 1}, "max_redelivery_delay_ms", 2**63 - 1),
        ({"page_size_bytes": 100}, "max_read_page_bytes", 200),
        ({"page_size_bytes": 100}, "prefetch_page_bytes", 200),
        ({"max_read_page_bytes": 7}, "prefetch_page_bytes", 7),
        ({"max_read_page_messages": 7}, "prefetch_page_messages", 7),
    ],
)
def test_derived_defaults(said: dict[str, Any], attribute: str, expected: int) -> None:
    """They follow from merged values."""
    assert getattr(repository({"#": said}).resolve("q"), attribute) == expected


@pytest.mark.parametrize(
    "row, said, expected",
    [
        (
            "28",
            {"#": ("D0", "E0"), "foo.#": "D1", "foo.*": "D2", "(foo.#)": "D3"},
            {"foo.#": "D3", "foo.bar": "D2", "foo.bar.too": "D1", "too.#": "D0"},
        ),
        ("32", {"addressA": "A", "#": "B"}, {"addressA": "A", "addressB": "B"}),
        ("33", {"addressA": "A", "*": "B"}, {"addressB": "B"}),
        ("34", {"add.addressA": "A", "add.*": "B", "#": "C"},
         {"add.addressA": "A", "add.addressB": "B", "addressC": "C"}),
        ("35", {"add.addressA": None, "add.*": None, "#": "C"},
         {"add.addressA": "C", "add.addressB": "C", "addressC": "C"}),
        ("36", {"*": "X", "prefix.address": "Y"}, {"prefix.address": "Y"}),
    ],
)  # fmt: skip
def test_dead_letter_addresses(row: str, said: dict[str, Any], expected: dict[str, str]) -> None:
    """Address-settings page 2.3, rows 28 to 36; the expiry address of row 28 is inherited everywhere."""
    entries = {
        match: {"dead_letter_address": target[0], "expiry_address": target[1]}
        if isinstance(target, tuple)
        else {"max_delivery_attempts": 1} | ({} if target is None else {"dead_letter_address": target})
        for match, target in said.items()
    }
    settings = repository(entries, wildcards=Wildcards(literal_markers="()"))
    assert {address: settings.resolve(address).dead_letter_address for address in expected} == expected
    if row == "28":
        assert {settings.resolve(address).expiry_address for address in expected} == {"E0"}


def test_row_31_through_empty_levels() -> None:
    """Entries that say nothing hide nothing."""
    settings = repository({"test.foo.bar": {}, "test.foo.#": {}, "test.#": {"page_size_bytes": 102_400}})
    assert settings.resolve("test.foo.bar").page_size_bytes == 102_400


# -- virtual hosts, caching -------------------------------------------------------------------------------------------


def test_broker_wide_entries_lie_beneath_those_of_the_virtual_host() -> None:
    """An exact broker-wide entry yields to any entry of the virtual host, field by field."""
    settings = SettingsRepository(
        [
            entry("q", default_ring_size=1, dead_letter_address="D"),
            entry("#", "v", default_ring_size=2),
            entry("q", "w", default_max_consumers=7),
        ]
    )
    assert [one.match.text for one in settings.matches("q", "v")] == ["#", "q"]
    assert settings.resolve("q", "v").default_ring_size == 2
    assert settings.resolve("q", "v").dead_letter_address == "D"
    assert (settings.resolve("q", "w").default_ring_size, settings.resolve("q", "w").default_max_consumers) == (1, 7)
    assert settings.resolve("q").default_ring_size == 1
    assert settings.resolve("other", "v").default_ring_size == 2
    assert settings.vhosts == ["v", "w"]


def test_equal_matches_give_the_same_object_and_the_cache_is_bounded() -> None:
    """A million addresses do not make a million objects, nor a million cache entries."""
    settings = repository({"a.#": {RING: 3}})
    first = settings.resolve("a.0")
    for number in range(CACHE_MAX + 100):
        assert settings.resolve(f"a.{number}") is first
    assert len(settings._by_address) == CACHE_MAX
    assert settings.resolve("a.0") is first


def test_server_named_queues_are_looked_up_in_the_uuid_namespace() -> None:
    """Address-settings page 1.1: for settings only."""
    settings = repository({"temp.#": {RING: 3}}, uuid_namespace="temp")
    assert settings.resolve("amq.gen-abc").default_ring_size == 3
    assert settings.resolve("abc").default_ring_size == -1
    assert repository({"temp.#": {RING: 3}}).resolve("amq.gen-abc").default_ring_size == -1


def test_id_cache_size_of_the_broker() -> None:
    """The global value stands where no entry says one."""
    settings = repository({"a": {"id_cache_size": 5}}, id_cache_size=7)
    assert (settings.resolve("a").id_cache_size, settings.resolve("b").id_cache_size) == (5, 7)
    assert repository({}).resolve("b").id_cache_size == 20_000


# -- the table, and laws ----------------------------------------------------------------------------------------------


def test_a_resolved_setting_is_never_none() -> None:
    """And it has the value of its row."""
    assert [(one.default, one.default is None) for one in SETTINGS] == [
        (getattr(ResolvedSettings(), one.attribute), False) for one in SETTINGS
    ]


def test_a_layer_has_only_settings_that_there_are() -> None:
    assert layer_of(no_expiry=True) == {"no_expiry": True} and layer_of() is NOTHING_SET
    with pytest.raises(TypeError, match="no_expire"):
        layer_of(no_expire=True)


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "default_ring_size": st.integers(1, 9),
    "redelivery_delay_ms": st.integers(0, 9),
    "max_redelivery_delay_ms": st.integers(0, 99),
    "max_delivery_attempts": st.integers(-1, 9),
    "dead_letter_address": st.sampled_from(["", "D", "E"]),
    "no_expiry": st.booleans(),
}
LAYERS = st.fixed_dictionaries({}, optional=VALUES).map(lambda said: layer_of(**said))
MATCHES = st.sampled_from(["#", "a.#", "a.b.#", "a.*", "*.b", "a.b", "a", "*", "*.*"])


@given(st.lists(LAYERS, max_size=5))
def test_merging_is_a_fold_from_the_widest(layers: list[Layer]) -> None:
    """Per setting: the first value in order of precedence."""
    assert merge(layers) == reduce(lambda wide, near: merge((near, wide)), reversed(layers), NOTHING_SET)
    for attribute in VALUES:
        said = [layer[attribute] for layer in layers if attribute in layer]
        assert merge(layers).get(attribute) == (said[0] if said else None)


@given(LAYERS, LAYERS, LAYERS)
def test_layers_can_be_merged_in_any_grouping(one: Layer, two: Layer, three: Layer) -> None:
    """`merge` is associative, and a layer that sets nothing changes nothing."""
    assert merge((merge((one, two)), three)) == merge((one, merge((two, three)))) == merge((one, two, three))
    assert merge((one, NOTHING_SET)) == merge((NOTHING_SET, one)) == one


@given(
    st.dictionaries(st.tuples(st.sampled_from([None, "/"]), MATCHES), LAYERS),
    st.sampled_from(["a", "a.b", "c", "a.b.c"]),
)
def test_the_source_of_a_value_is_the_entry_that_gave_it(
    said: dict[tuple[str | None, str], Layer], address: str
) -> None:
    """Provenance is the truth: the named entry matches, says the value, and none before it says the field."""
    settings = SettingsRepository([entry(match, vhost, **layer) for (vhost, match), layer in said.items()])
    merged, sources = settings.merged(address), settings.sources(address)
    assert set(sources) == set(merged)
    order = settings.matches(address)
    for attribute, source in sources.items():
        assert source.settings[attribute] == merged[attribute]
        before = order[: order.index(source)]
        assert all(attribute not in one.settings for one in before)


@given(st.dictionaries(MATCHES, LAYERS), st.sampled_from(["a", "a.b"]))
def test_an_exact_match_beats_every_wildcard(said: dict[str, Layer], address: str) -> None:
    """What the exact entry says, holds."""
    said[address] = layer_of(default_ring_size=77)
    settings = SettingsRepository([entry(match, **layer) for match, layer in said.items()])
    assert settings.resolve(address).default_ring_size == 77
