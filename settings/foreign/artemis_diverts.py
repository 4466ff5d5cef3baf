"""Diverts in Artemis' files: broker.xml and broker-properties have the same keys under different names."""

from collections.abc import Callable, Mapping
from typing import Any

from ..declared.declarations import Divert
from ..declared.tables import DIVERT
from ..faults import Origin
from ..files.builder import ConfigurationBuilder
from ..rows.row import REQUIRED

#: Rows of a divert besides its name; Artemis has one virtual host.
DIVERT_ROWS = tuple(row for row in DIVERT if row.key not in ("name", "vhost"))


def missing_keys(texts: Mapping[str, str]) -> list[str]:
    """The keys that a divert needs and does not have."""
    return [key for key in ("address", "forwarding-address") if not texts.get(key, "").strip(" ,")]


def declare_divert(
    builder: ConfigurationBuilder, name: str, origin: Origin, texts: Mapping[str, str], in_file: Callable[[str], str]
) -> None:
    """Declare a divert, none of whose keys is missing. Args: texts: by key; in_file: the name of a key in the file."""
    values: dict[str, Any] = {"name": name, "routing_name": name}
    for row in DIVERT_ROWS:
        if text := texts.get(row.key, "").strip():
            try:
                values[row.attribute] = row.kind.read_text(text)
            except ValueError as error:
                builder.invalid(origin, in_file(row.key), text, error)
                if row.default is REQUIRED:
                    return
    builder.add_divert(Divert(**values, origin=origin))
