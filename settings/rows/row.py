"""A row: all facts about one setting. A table is a class whose fields are rows."""

import re
from collections.abc import Iterator
from dataclasses import MISSING, field, fields
from typing import Any

from ..frozen import frozen
from ..lifetime import LIVE, WITHOUT_MEANING, Lifetime
from ..values import Kind, Reader

#: The default of a required key.
REQUIRED: Any = MISSING


@frozen
class Row:
    """One setting.

    `attribute`: its name in the table's class. `key`: its name in TOML and XML. `acts`: when a changed value takes
    effect. `help`: one sentence for docs/configuration.md. `reason`: why it is accepted without an effect here; empty:
    it has an effect. `default_text`: the text for a default that depends on other settings.
    """

    attribute: str
    key: str
    kind: Kind
    default: Any
    acts: Lifetime
    help: str
    reason: str = ""
    default_text: str = ""

    @property
    def default_in_words(self) -> str:
        """Text in place of the default, or empty."""
        return "required" if self.default is REQUIRED else self.default_text

    @property
    def read(self) -> Reader:
        return self.kind.read

    @property
    def is_supported(self) -> bool:
        """Whether it has an effect."""
        return self.acts is not WITHOUT_MEANING


def setting(
    kind: Kind, default: Any, acts: Lifetime = LIVE, *, help: str, is_secret: bool = False, **columns: Any
) -> Any:
    """A field of a table's class, which is a row. `is_secret`: its value is never printed. `columns`: other columns of
    the row; `key` defaults to the attribute without a unit.
    """
    return field(default=default, repr=not is_secret, metadata={"kind": kind, "acts": acts, "help": help, **columns})


def meaningless(kind: Kind, default: Any, reason: str, *, help: str, **columns: Any) -> Any:
    """A setting, usually of another broker, that is read, kept and explained, and has no effect here."""
    return setting(kind, default, WITHOUT_MEANING, help=help, reason=reason, **columns)


def columns_of(table: type) -> Iterator[dict[str, Any]]:
    """The columns of each row of a table's class, in order."""
    for one in fields(table):
        if one.metadata:
            key = re.sub(r"-(ms|s)$", "", one.name.replace("_", "-"))
            yield {"attribute": one.name, "key": key, "default": one.default, **one.metadata}
