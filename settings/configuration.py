"""The configuration of a broker, from TOML: one row a key, all faults in one go.

A key that is not in the table is an error that names the nearest one; a key whose feature this version does not have
yet is accepted with a warning. Source: interfaces page, "Configuration keys".
"""

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from .values import Reader, boolean, duration_ms, integer, size_bytes, text, texts, word

PROFILES = ("leveret", "rabbitmq-3.10", "rabbitmq-3.13", "rabbitmq-4.0", "rabbitmq-4.3")


@dataclass(slots=True, frozen=True)
class Key:
    """How a key is read, what it is when unsaid, and whether this version heeds it."""

    read: Reader
    default: Any
    is_heeded: bool = True


_COUNT = integer(0, 2**31)

#: Table -> key -> how it is read.
KEYS: dict[str, dict[str, Key]] = {
    "broker": {
        "listen": Key(texts, ("127.0.0.1:5672",)),
        "data": Key(text, "leveret-data"),
        "profile": Key(word(*PROFILES), "leveret"),
        "heartbeat": Key(duration_ms, 60_000),
        "channel-max": Key(integer(1, 65535), 2047),
        "frame-max": Key(integer(4096, 2**31 - 1), 131072),
        "mechanisms": Key(texts, ("PLAIN", "AMQPLAIN")),
        "anonymous-user": Key(text, "guest"),
        "refused-login-delay": Key(duration_ms, 3_000),
        "product": Key(text, "RabbitMQ"),
        "product-version": Key(text, "3.10.8"),
        "cluster-name": Key(text, "leveret@localhost"),
        "nack-counts": Key(boolean, True, False),
        "reject-counts": Key(boolean, True, False),
        "delay-on-connection-loss": Key(boolean, False, False),
        "default-max-delivery-attempts": Key(integer(-1, 2**31), None, False),
        "message-address": Key(word("exchange", "exchange-and-key", "key"), "exchange", False),
        "persist-delivery-count-before-delivery": Key(boolean, False, False),
        "max-redelivery-records": Key(integer(-1, 2**31), 10, False),
        "configuration-file-refresh-period": Key(duration_ms, 5_000, False),
    },
    "journal": {
        "fsync": Key(word("commit", "interval", "never"), "commit", False),
        "fsync-interval": Key(duration_ms, 200, False),
        "scope": Key(word("durable", "all"), "durable", False),
        "segment-size": Key(size_bytes, 64 * 1024**2, False),
        "segment-age": Key(duration_ms, 3_600_000, False),
        "retain": Key(duration_ms, None, False),
    },
    "limits": {
        "memory": Key(size_bytes, 256 * 1024**2, False),
        "unsent-per-connection": Key(size_bytes, 1024**2),
        "handshake-timeout": Key(duration_ms, 10_000),
        "half-open-connections": Key(integer(1, 2**31), 256),
        "connections": Key(_COUNT, 0),
        "channels-per-connection": Key(integer(1, 65535), None),
        "queues": Key(_COUNT, 0, False),
        "bindings": Key(_COUNT, 0, False),
        "consumers-per-channel": Key(_COUNT, 0),
        "message-size": Key(size_bytes, 128 * 1024**2),
        "table-depth": Key(integer(1, 64), 64, False),
        "history-events": Key(_COUNT, 100_000, False),
    },
    "tls": {
        "certificate": Key(text, None, False),
        "key": Key(text, None, False),
        "client-ca": Key(text, None, False),
        "verify": Key(word("none", "optional", "required"), "none", False),
        "minimum": Key(word("1.2", "1.3"), "1.2", False),
    },
}

#: Arrays of tables that later versions read; refusing them by name is clearer than "unknown".
LATER_TABLES = frozenset({"user", "vhost", "address", "address-setting", "policy"})


@dataclass(slots=True, frozen=True, order=True)
class Fault:
    """One thing wrong in a file; `line` counts from 1."""

    file: str
    line: int
    key: str
    problem: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.key}: {self.problem}"


@dataclass(slots=True, frozen=True)
class Configuration:
    """What all files together say; `value` gives defaults for what they don't."""

    said: Mapping[tuple[str, str], Any] = field(default_factory=lambda: MappingProxyType({}))
    warnings: tuple[str, ...] = field(default=())

    def value(self, table: str, key: str) -> Any:
        """The value of `[table] key`, or its default."""
        return self.said.get((table, key), KEYS[table][key].default)


def load_configuration(files: Iterable[tuple[str, str]]) -> tuple[Configuration, list[Fault]]:
    """Read (name, text) of files in order, later ones over earlier ones.

    Returns: the configuration and all faults, in order of file and line; with faults it must not be used.
    """
    said: dict[tuple[str, str], Any] = {}
    faults: list[Fault] = []
    warnings: list[str] = []
    for name, content in files:
        try:
            document = tomllib.loads(content)
        except tomllib.TOMLDecodeError as error:
            line, problem = _syntax_fault(error)
            faults.append(Fault(name, line, "TOML", problem))
            continue
        except RecursionError:
            faults.append(Fault(name, 1, "TOML", "nested too deep"))
            continue
        lines = content.splitlines()
        for table, entries in document.items():
            faults += _read_table(name, lines, table, entries, said, warnings)
    return Configuration(MappingProxyType(said), tuple(warnings)), sorted(faults)


def _read_table(
    file: str,
    lines: list[str],
    table: str,
    entries: object,
    said: dict[tuple[str, str], Any],
    warnings: list[str],
) -> Iterable[Fault]:
    known = KEYS.get(table)
    if known is None:
        where = _line_of_table(lines, table)
        if table in LATER_TABLES:
            yield Fault(file, where, table, "this version does not have it yet; it reads " + _listed(KEYS))
        else:
            yield Fault(
                file, where, table, "unknown table" + _nearest(table, KEYS) + ", expected one of " + _listed(KEYS)
            )
        return
    if not isinstance(entries, dict):
        yield Fault(file, _line_of_table(lines, table), table, f"expected a table [{table}]")
        return
    for key, value in entries.items():
        line = _line_of_key(lines, table, key)
        row = known.get(key)
        if row is None:
            yield Fault(file, line, key, f"unknown key in [{table}]" + _nearest(key, known))
            continue
        try:
            said[table, key] = row.read(value)
        except ValueError as error:
            yield Fault(file, line, key, f"{value!r} is not right, expected {error}")
            continue
        if not row.is_heeded:
            warnings.append(f"{file}:{line}: {key}: accepted, but without effect in this version")


def _nearest(word_: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word_, list(known), n=1, cutoff=0.5)
    return f", did you mean {close[0]!r}?" if close else ""


def _listed(tables: Iterable[str]) -> str:
    return ", ".join(f"[{name}]" for name in tables)


def _syntax_fault(error: tomllib.TOMLDecodeError) -> tuple[int, str]:
    message = str(error)
    where = re.search(r"\(at line ([0-9]+), column [0-9]+\)", message)
    return (int(where[1]) if where else 1), message


def _line_of_table(lines: list[str], table: str) -> int:
    pattern = re.compile(rf"""\s*(\[\[?\s*["']?{re.escape(table)}["']?\s*[\].]|["']?{re.escape(table)}["']?\s*[.=])""")
    return next((number for number, line in enumerate(lines, 1) if pattern.match(line)), 1)


def _line_of_key(lines: list[str], table: str, key: str) -> int:
    """Where a key stands: in its table, or dotted, or in an inline table; the table's line when it can't be found."""
    start = _line_of_table(lines, table)
    pattern = re.compile(rf"""(^|[\s.{{,])["']?{re.escape(key)}["']?\s*=""")
    for number, line in enumerate(lines[start - 1 :], start):
        if number > start and line.lstrip().startswith("["):
            break
        if pattern.search(line.split("#")[0]):
            return number
    return start
