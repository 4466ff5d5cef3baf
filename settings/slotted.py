"""Classes with slots, whose constructors are compiled when they are first called.

`@dataclass(slots=True)` compiles at least one method for each class, and a start of the broker makes 150 classes, of
which it uses a third. With this decorator and `frozen` a start takes 10 % fewer instructions (benchmarks/README.md).
"""

from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(eq_default=False, field_specifiers=(field,))
def slotted(cls: type[T]) -> type[T]:
    """A dataclass with slots, compared by identity, and printed without its fields. It has no `InitVar`."""
    made: Any = dataclass(slots=True, eq=False, repr=False, init=False)(cls)
    if "__init__" not in cls.__dict__:

        def compile_and_call(self: Any, *args: Any, **kwargs: Any) -> None:
            made.__init__ = _constructor(made)
            made.__init__(self, *args, **kwargs)

        made.__init__ = compile_and_call
    return made  # type: ignore[no-any-return]


def _constructor(cls: type) -> Any:
    """`__init__` as a dataclass has it, without annotations."""
    names: dict[str, Any] = {"MISSING": MISSING}
    positional, keywords, body = ["self"], list[str](), list[str]()
    for one in fields(cls):
        name, default, value = one.name, f"default_{one.name}", one.name
        parameter = name
        if one.default is not MISSING:
            names[default] = one.default
            parameter, value = f"{name}={default}", name if one.init else default
        elif one.default_factory is not MISSING:
            names[default] = one.default_factory
            parameter = f"{name}=MISSING"
            value = f"{default}() if {name} is MISSING else {name}" if one.init else f"{default}()"
        elif not one.init:
            continue  # __post_init__ sets it
        if one.init:
            (keywords if one.kw_only else positional).append(parameter)
        body.append(f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join([*positional, *(["*", *keywords] if keywords else [])])
    exec(f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"]), names)
    names["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    return names["__init__"]
