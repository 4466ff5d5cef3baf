"""Native configuration files: TOML with the names that Artemis uses.

Source: interfaces page, "Configuration keys"; address-settings page 6.5.
"""

import re
import tomllib
from collections.abc import Callable
from functools import partial
from typing import Any

from ..declared.declarations import MULTICAST, Divert, ExchangeDeclaration
from ..declared.tables import ADDRESS, DIVERT
from ..faults import Origin, nearest
from ..rows.address_settings import BY_KEY
from ..rows.broker_keys import KEYS
from ..values import name_text
from .builder import NO_TRANSFORMER, WILDCARD_KEYS, ConfigurationBuilder, RawEntry
from .toml_queues import read_logged_topic, read_queue, read_top_level_queue
from .toml_source import Path, TomlSource, lines_of, tables_with
from .toml_users import read_policy, read_user, read_vhost

#: Arrays of tables.
ARRAYS = ("address-setting", "address", "queue", "logged-topic", "divert", "vhost", "user", "policy", "operator-policy")

#: Every table that a file may have.
TABLES = (*KEYS, "wildcard-addresses", *ARRAYS)

_SIGNIFICANT = re.compile(r"^[ \t]*([^\s#!].*)$", re.MULTILINE)

TRANSFORMER = "transformer-class-name"


def begins_as_toml(content: str) -> bool:
    """Whether the first significant line begins with `[` or the name of a table, or the file has no such line."""
    line = first_line(content)
    return not line or line.startswith("[") or first_name(line) in TABLES


def first_line(content: str) -> str:
    """The first line that is neither empty nor a comment; empty if there is none."""
    found = _SIGNIFICANT.search(content)
    return "" if found is None else found[1]


def first_name(line: str) -> str:
    """The first name of a line, up to a dot or the separator of key and value."""
    return re.split(r"[.=:\s\"]", line, maxsplit=1)[0]


def load_toml(builder: ConfigurationBuilder, file: str, content: str) -> None:
    """Read one file into the builder."""
    try:
        document = tomllib.loads(content)
        lines = lines_of(content)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        found = re.search(r"\(at line ([0-9]+), column [0-9]+\)", message)
        line = int(found[1]) if found else content.count("\n") + 1  # else: "(at end of document)"
        builder.fault(Origin(file, line), "TOML", message)
        _load_before(builder, file, content, line)
    except ValueError:  # an integer of thousands of digits, an invalid date
        builder.fault(Origin(file, 1), "TOML", "holds a number or date that cannot be read")
    except RecursionError:
        builder.fault(Origin(file, 1), "TOML", "nested too deep")
    else:
        Loader(builder, file, lines).read(document)


def _load_before(builder: ConfigurationBuilder, file: str, content: str, line: int) -> None:
    """Read the tables before the invalid one, so that their faults are reported, too."""
    lines = content.split("\n")[:line]
    headers = [index for index, text in enumerate(lines) if text.lstrip().startswith("[")]
    before = "\n".join(lines[: headers[-1]]) if headers else ""
    try:
        document, key_lines = tomllib.loads(before), lines_of(before)
    except (ValueError, RecursionError):
        return
    Loader(builder, file, key_lines).read(document)


class Loader(TomlSource):
    """Reads one document."""

    def read(self, document: dict[str, Any]) -> None:
        for table, content in document.items():
            if table in KEYS and "." not in table:
                self.broker_table((table,), content)
            elif table == "wildcard-addresses":
                self.wildcards(table, content)
            elif table in ARRAYS:
                self.array(table, content)
            else:
                self.unknown_table(table, content)

    def unknown_table(self, table: str, content: object) -> None:
        if not isinstance(content, (dict, list)) or table in KEYS["broker"]:
            owner = tables_with(table)
            if owner:
                self.builder.fault(self.origin_of(table), table, f"is above every table, expected in {owner}")
                return
        listed = ", ".join(f"[{name}]" for name in TABLES)
        problem = f"unknown table{nearest(table, TABLES)}, expected one of {listed}"
        self.builder.fault(self.origin_of(table), table, problem)

    def broker_table(self, path: tuple[str, ...], content: object) -> None:
        table = ".".join(path)
        if not isinstance(content, dict):
            self.builder.fault(self.origin_of(*path), table, f"expected a table [{table}]")
            return
        if table == "system-usage":
            self.builder.has_system_usage = True  # an empty table also switches flow control on
        elif table == "cluster":
            self.builder.cluster_at = self.origin_of(*path)  # an empty table also makes the broker a node
        for key, value in content.items():
            if key in KEYS[table]:
                self.builder.broker_value(self.origin_of(*path, key), table, key, value)
            elif f"{table}.{key}" in KEYS:
                self.broker_table((*path, key), value)
            else:
                self.builder.unknown(self.origin_of(*path, key), key, f"[{table}]", KEYS[table], tables_with(key))

    def wildcards(self, table: str, content: object) -> None:
        if not isinstance(content, dict):
            self.builder.fault(self.origin_of(table), table, f"expected a table [{table}]")
            return
        for key, value in content.items():
            origin = self.origin_of(table, key)
            if key in WILDCARD_KEYS:
                self.builder.set_wildcard(origin, key, value)
            elif key != "routing-enabled":
                self.builder.unknown(origin, key, f"[{table}]", (*WILDCARD_KEYS, "routing-enabled"))
            elif not isinstance(value, bool):
                self.builder.invalid(origin, key, value, "true or false")
            else:
                self.builder.no_effect(origin, key)

    def array(self, table: str, content: object) -> None:
        readers: dict[str, Callable[[Path, dict[str, Any]], None]] = {
            "address-setting": self.address_setting,
            "address": self.address,
            "queue": partial(read_top_level_queue, self),
            "logged-topic": partial(read_logged_topic, self),
            "divert": self.divert,
            "vhost": partial(read_vhost, self),
            "user": partial(read_user, self),
            "policy": partial(read_policy, self, is_operator=False),
            "operator-policy": partial(read_policy, self, is_operator=True),
        }
        for path, item in self.tables((table,), table, content):
            readers[table](path, item)

    # -- the arrays ---------------------------------------------------------------------------------------------------

    def address_setting(self, path: Path, item: dict[str, Any]) -> None:
        match = self.required(path, item, "match")
        vhost = self.optional(path, item, "vhost", name_text, None)
        raw = RawEntry(match or "", vhost, self.origin_of(*path))
        for key, value in item.items():
            if key in ("match", "vhost"):
                continue
            row = BY_KEY.get(key)
            origin = self.origin_of(*path, key)
            if row is None:
                self.builder.unknown(origin, key, "[[address-setting]]", (*BY_KEY, "match", "vhost"), tables_with(key))
            else:
                self.builder.set_field(raw, origin, key, row, value, as_text=False)
        if match is not None:
            self.builder.add_entry(raw)

    def address(self, path: Path, item: dict[str, Any]) -> None:
        name, vhost, routing_type = self.values(path, item, ADDRESS, "queue", suggests_table=True).values()
        queues = self.tables((*path, "queue"), "address.queue", item.get("queue", []))
        if name is None:
            return
        if routing_type == MULTICAST:
            self.builder.add_exchange(ExchangeDeclaration(name, vhost, origin=self.origin_of(*path)))
        for inner, queue in queues:
            read_queue(self, inner, queue, name, vhost, routing_type)

    def divert(self, path: Path, item: dict[str, Any]) -> None:
        if TRANSFORMER in item:
            self.builder.fault(self.origin_of(*path, TRANSFORMER), TRANSFORMER, NO_TRANSFORMER)
        values = self.values(path, {key: value for key, value in item.items() if key != TRANSFORMER}, DIVERT)
        if not values["forwarding_addresses"]:
            self.builder.fault(
                self.origin_of(*path), "forwarding-address", "is missing, expected an address or a list of them"
            )
        elif values["name"] is not None and values["address"] is not None:
            values["routing_name"] = values["routing_name"] or values["name"]
            self.builder.add_divert(Divert(**values, origin=self.origin_of(*path)))
