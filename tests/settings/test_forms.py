"""One configuration, three forms: TOML, XML and broker-properties mean the same."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.settings import Layer, layer_of, load_configuration
from leveret.settings.rows.address_settings import BY_ATTRIBUTE, SETTINGS, Setting, bean_name


def toml(name: str, value: Any) -> str:
    """`name = value`."""
    return f"{name} = {str(value).lower() if isinstance(value, bool) else repr(value)}\n"


def read(form: str, settings: dict[Setting, Any]) -> Layer:
    """The settings of `a.#` as some form writes them."""
    if form == "toml":
        text = "[[address-setting]]\nmatch = 'a.#'\n" + "".join(toml(one.key, value) for one, value in settings.items())
    elif form == "xml":
        inner = "".join(f"<{one.key}> {value} </{one.key}>" for one, value in settings.items())
        text = f"<address-settings><address-setting match='a.#'>{inner}</address-setting></address-settings>"
    else:
        text = "".join(f'addressSettings."a.#".{bean_name(one.key)}={value}\n' for one, value in settings.items())
    configuration, faults = load_configuration([("f", text)])
    assert not faults, faults
    return configuration.repository.merged("a.b")


def candidates(field: Setting) -> list[Any]:
    """Values that a field may have."""
    possible = [
        True,
        False,
        1,
        5,
        -1,
        0.5,
        "vm",
        "oldest",
        "DROP",
        "MULTICAST",
        "FORCE",
        "KILL",
        "MESSAGES_PER_HOUR",
        "some.address",
    ]
    kept = []
    for value in possible:
        try:
            if type(field.kind.read(value)) is type(value):
                kept.append(value)
        except ValueError:
            continue
    return kept


CANDIDATES = {field: candidates(field) for field in SETTINGS}


@pytest.mark.parametrize("form", ["toml", "xml", "properties"])
@pytest.mark.parametrize("field", SETTINGS, ids=lambda field: field.key)
def test_each_field_in_each_form(field: Setting, form: str) -> None:
    """What is written is what is read."""
    assert CANDIDATES[field]
    for value in CANDIDATES[field]:
        assert read(form, {field: value}) == layer_of(**_with_implied(form, {field.attribute: value}))


def _with_implied(form: str, said: dict[str, Any]) -> dict[str, Any]:
    """Who names an address for dead letters in a form of Artemis' says what Artemis does if nothing is bound to it."""
    if form != "toml" and (said.get("dead_letter_address") or said.get("expiry_address")):
        return {"auto_create_missing_queues": False, **said}
    return said


SAID = st.fixed_dictionaries(
    {}, optional={attribute: st.sampled_from(CANDIDATES[field]) for attribute, field in BY_ATTRIBUTE.items()}
)


@given(SAID)
def test_three_forms_mean_the_same(said: dict[str, Any]) -> None:
    """Any settings at all."""
    settings = {BY_ATTRIBUTE[attribute]: value for attribute, value in said.items()}
    if settings:
        for form in ("toml", "xml", "properties"):
            assert read(form, settings) == layer_of(**_with_implied(form, said))
