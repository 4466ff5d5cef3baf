"""Values of `frozen` act like those of `@dataclass(slots=True, frozen=True)`."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from leveret.settings.frozen import frozen


def _classes(decorate: Callable[[type], Any]) -> Any:
    @decorate
    class Place:
        name: str
        password: str = field(default="", repr=False)
        line: int = field(default=0, compare=False)

    @decorate
    class Wide(Place):
        width: int = 1

    @decorate
    class Named:
        name: str

        def __repr__(self) -> str:
            return f"<{self.name}>"

    return Place, Wide, Named


@pytest.fixture(params=[frozen, dataclass(slots=True, frozen=True)], ids=["frozen", "dataclass"])
def classes(request: pytest.FixtureRequest) -> Any:
    return _classes(request.param)


def test_equality_and_hash_go_by_the_fields_that_are_compared(classes: Any) -> None:
    place, wide, named = classes
    assert place("a", "b", 1) == place("a", "b", 2) != place("a", "c", 1)
    assert len({place("a", "b", 1), place("a", "b", 2), place("a", "c", 1)}) == 2
    assert {wide("a", width=2): 1}.get(wide("a", width=3)) is None
    assert named("a") == named("a") and len({named("a"), named("a"), named("b")}) == 2


def test_values_of_two_classes_are_never_equal(classes: Any) -> None:
    place, wide, _ = classes
    assert place("a") != wide("a")
    assert place("a") != ("a", "", 0)


def test_text_has_the_fields_but_those_that_are_hidden(classes: Any) -> None:
    _, wide, named = classes
    assert repr(wide("a", "secret")).endswith("Wide(name='a', line=0, width=1)")
    assert repr(named("a")) == "<a>"


def test_a_changed_copy_has_slots_alone(classes: Any) -> None:
    _, wide, _ = classes
    one = replace(wide("a"), width=2)
    assert one == wide("a", width=2)
    assert not hasattr(one, "__dict__")


def test_a_class_that_cannot_share_the_methods_is_refused() -> None:
    class Equal:
        name: str

        def __eq__(self, other: object) -> bool:
            return True

    class Empty:
        pass

    class Hashed:
        name: str
        line: int = field(default=0, hash=False)

    for cls in (Equal, Empty, Hashed):
        with pytest.raises(TypeError, match=cls.__name__):
            frozen(cls)
