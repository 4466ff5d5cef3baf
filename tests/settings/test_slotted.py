"""Objects of `slotted` are made like those of `@dataclass(slots=True)`."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import pytest

from leveret.settings.slotted import slotted


def _classes(decorate: Callable[[type], Any]) -> Any:
    @decorate
    class Plain:
        name: str
        line: int = 1
        parts: list[str] = field(default_factory=list)

    @decorate
    class Derived(Plain):
        width: int = field(default=2, kw_only=True)
        height: int = field(kw_only=True)
        used: int = field(default=0, init=False)
        marks: list[int] = field(default_factory=list, init=False)
        area: int = field(init=False)

        def __post_init__(self) -> None:
            self.area = self.width * self.height

    @decorate
    class Own:
        name: str

        def __init__(self) -> None:
            self.name = "own"

    class Heir(Plain):  # type: ignore[misc,valid-type]
        def __init__(self) -> None:
            super().__init__("heir", 7)  # type: ignore[call-arg]

    return Plain, Derived, Own, Heir


@pytest.fixture(params=[slotted, dataclass(slots=True)], ids=["slotted", "dataclass"])
def classes(request: pytest.FixtureRequest) -> Any:
    return _classes(request.param)


def _values(one: Any) -> list[Any]:
    return [getattr(one, each.name) for each in fields(one)]


def test_arguments_and_defaults_become_attributes(classes: Any) -> None:
    plain, derived, own, heir = classes
    for _ in range(2):  # the constructor is compiled by the first call
        assert _values(plain("a")) == ["a", 1, []]
        assert _values(plain("a", parts=["x"], line=3)) == ["a", 3, ["x"]]
        assert _values(derived("a", 5, height=3)) == ["a", 5, [], 2, 3, 0, [], 6]
        assert _values(heir()) == ["heir", 7, []]
        assert own().name == "own"
        assert _values(replace(derived("a", height=3), height=4)) == ["a", 1, [], 2, 4, 0, [], 8]


def test_two_objects_share_no_default(classes: Any) -> None:
    plain, derived, *_ = classes
    for cls in (plain, lambda name: derived(name, height=1)):
        one, other = cls("a"), cls("b")
        one.parts.append("x")
        assert other.parts == []


@pytest.mark.parametrize("call", [
    lambda plain, derived: plain(),
    lambda plain, derived: plain("a", 1, [], 2),
    lambda plain, derived: plain("a", colour=1),
    lambda plain, derived: derived("a"),
    lambda plain, derived: derived("a", 1, [], 2, 3),
    lambda plain, derived: derived("a", height=1, used=1),
], ids=["missing", "too many", "unknown", "missing keyword", "not positional", "not an argument"])  # fmt: skip
def test_wrong_arguments_are_refused(classes: Any, call: Callable[..., object]) -> None:
    plain, derived, *_ = classes
    for _ in range(2):
        with pytest.raises(TypeError, match=r"(Plain|Derived)\.__init__\(\)"):
            call(plain, derived)


def test_objects_have_slots_alone(classes: Any) -> None:
    for one in (classes[0]("a"), classes[1]("a", height=1)):
        assert not hasattr(one, "__dict__")


def test_objects_are_compared_by_identity() -> None:
    plain = _classes(slotted)[0]
    one = plain("a")
    assert one == one and one != plain("a")
    assert len({one, plain("a")}) == 2
