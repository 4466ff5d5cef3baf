"""Artemis' broker-properties: key=value lines whose keys are paths of bean names; they override all other files.

Source: address-settings page 6.2. Values are checked as in other files, which Artemis does not do.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from ..addresses.matching import parse_artemis_match
from ..addresses.queue_arguments import parse_argument
from ..declared.declarations import ANYCAST, MULTICAST, ExchangeDeclaration, QueueDeclaration
from ..faults import Origin, nearest
from ..files.builder import MARKERS, NO_TRANSFORMER, WILDCARD_KEYS, ConfigurationBuilder, RawEntry
from ..files.toml_loader import TABLES, begins_as_toml, first_line, first_name
from ..rows.address_settings import BY_BEAN, bean_name
from ..rows.queue_attributes import QUEUE_BEANS
from ..values import BOOLEAN, ROUTING_TYPE
from .artemis_diverts import DIVERT_ROWS, declare_divert, missing_keys
from .artemis_names import BEANS_WITHOUT_EFFECT, GLOBALS

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def logical_lines(content: str) -> Iterator[tuple[int, str, str]]:
    """(line, key, value) of each entry; a backslash at the end of a line continues it on the next."""
    lines = content.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    position = 0
    while position < len(lines):
        first = position
        text = lines[position].lstrip()
        position += 1
        if not text or text[0] in "#!":
            continue
        parts = [text]
        while _is_continued(parts[-1]) and position < len(lines):
            parts[-1] = parts[-1][:-1]
            parts.append(lines[position].lstrip())
            position += 1
        key, value = _split("".join(parts))
        yield first + 1, key, value


def _is_continued(text: str) -> bool:
    """Whether a line ends with a backslash that is not escaped itself."""
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


def _split(text: str) -> tuple[str, str]:
    """Split at the first `=`, `:` or space that is neither escaped nor quoted."""
    position, is_quoted = 0, False
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 2
            continue
        if character == '"':
            is_quoted = not is_quoted
        elif character in "=: \t\f" and not is_quoted:
            break
        position += 1
    value = text[position:].lstrip(" \t\f")
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(" \t\f")
    return _unescaped(text[:position]), _unescaped(value).rstrip()


def _unescaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        if match[1] is not None:
            return chr(int(match[1], 16))
        return _ESCAPES.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", one, text, flags=re.DOTALL)


def split_key(key: str, quote: str = '"') -> list[str] | None:
    """`a."b.c".d` -> a, b.c, d; None if a quotation does not end or a name is empty."""
    names: list[str] = []
    position = 0
    while True:
        if key.startswith(quote, position):
            end = key.find(quote, position + len(quote))
            if end < 0:
                return None
            names.append(key[position + len(quote) : end])
            position = end + len(quote)
        else:
            end = key.find(".", position)
            end = len(key) if end < 0 else end
            names.append(key[position:end])
            position = end
        if not names[-1]:
            return None
        if position == len(key):
            return names
        if key[position] != ".":
            return None
        position += 1


_GLOBAL_BEANS = {bean_name(name): name for name in GLOBALS} | {"IDCacheSize": "id-cache-size"}
_WILDCARD_BEANS = {bean_name(name): name for name in WILDCARD_KEYS if name != MARKERS}


def _divert_bean(key: str) -> str:
    return "filterString" if key == "filter" else bean_name(key)


_DIVERT_BEANS = {_divert_bean(row.key): row.key for row in DIVERT_ROWS}
_SETTINGS = ("addressSettings", "addressesSettings")
#: Beginnings of keys that name an object.
_STRUCTURES = (*_SETTINGS, "addressConfigurations", "divertConfigurations", "wildcardConfiguration")
#: Beginnings of all keys that are read.
_ROOTS = (*_STRUCTURES, *_GLOBAL_BEANS, "literalMatchMarkers", "key.surround", "remove.value")


def is_properties(content: str) -> bool:
    """Whether the first significant line begins with the name of a bean.

    A misspelt name counts if it resembles a bean's more than that of a TOML table.
    """
    if begins_as_toml(content):
        return False
    line = first_line(content)
    root = first_name(line)
    if root in _ROOTS or root in BEANS_WITHOUT_EFFECT or line.startswith(("key.surround", "remove.value")):
        return True
    meant = re.search("'(.*)'", nearest(root, (*TABLES, *_STRUCTURES, *_GLOBAL_BEANS)))
    return meant is not None and meant[1] not in TABLES


def load_properties(builder: ConfigurationBuilder, file: str, content: str) -> None:
    """Read one file into the builder, after the files of other formats."""
    _Loader(builder, file).read(content)


class _Loader:
    """Reads one file. Addresses, queues and diverts are declared after its last line."""

    def __init__(self, builder: ConfigurationBuilder, file: str) -> None:
        self.builder = builder
        self.file = file
        self.quote = '"'  # around names in keys
        self.removal = "-"  # the value that removes an object
        self.addresses: dict[str, Origin] = {}
        self.routing_types: dict[str, set[str]] = {}  # of addresses
        self.queues: dict[tuple[str, str], dict[str, tuple[str, Origin]]] = {}
        self.diverts: dict[str, dict[str, tuple[str, Origin]]] = {}

    def read(self, content: str) -> None:
        for line, key, value in logical_lines(content):
            origin = Origin(self.file, line)
            if key == "key.surround":
                self.quote = value or '"'
            elif key == "remove.value":
                self.removal = value or "-"
            elif (path := split_key(key, self.quote)) is None:
                self.builder.fault(origin, key, 'is not a path of names, expected name.name or name."quoted.name".name')
            else:
                self.read_entry(origin, key, path, value)
        for (address, name), attributes in self.queues.items():
            self.declare_queue(address, name, attributes)
        for address, origin in self.addresses.items():
            if MULTICAST in self.routing_types.get(address, ()):
                self.builder.add_exchange(ExchangeDeclaration(address, origin=origin))
        for name, attributes in self.diverts.items():
            self.declare_divert(name, attributes)

    def read_entry(self, origin: Origin, key: str, path: list[str], value: str) -> None:
        root, rest = path[0], path[1:]
        if root in _SETTINGS and len(rest) in (1, 2):
            self.read_setting(origin, key, rest, value)
        elif root == "addressConfigurations" and rest:
            self.read_address(origin, key, rest, value)
        elif root == "divertConfigurations" and len(rest) == 2:
            self.diverts.setdefault(rest[0], {})[rest[1]] = (value, origin)
        elif root == "divertConfigurations" and len(rest) == 1 and value == self.removal:
            self.builder.diverts.pop(("/", rest[0]), None)
        elif root == "wildcardConfiguration" and len(rest) == 1:
            if rest[0] in _WILDCARD_BEANS:
                self.builder.set_wildcard(origin, _WILDCARD_BEANS[rest[0]], value)
            elif rest[0] == "routingEnabled":
                self.builder.no_effect(origin, key)
            else:
                self.builder.unknown(origin, rest[0], root, (*_WILDCARD_BEANS, "routingEnabled"))
        elif root == "literalMatchMarkers" and not rest:
            self.builder.set_wildcard(origin, MARKERS, value)
        elif root in _GLOBAL_BEANS and not rest:
            name = _GLOBAL_BEANS[root]
            self.builder.broker_value(origin, "broker", name, GLOBALS[name].kind.parse(value))
        elif root in BEANS_WITHOUT_EFFECT:
            self.builder.no_effect(origin, root)
        elif root in _STRUCTURES:
            self.builder.fault(
                origin, key, 'is not a whole path, expected like addressSettings."orders.#".redeliveryDelay'
            )
        else:
            self.builder.unknown(origin, root, "broker properties", (*_ROOTS, *BEANS_WITHOUT_EFFECT))

    # -- address-settings ---------------------------------------------------------------------------------------------

    def read_setting(self, origin: Origin, key: str, rest: list[str], value: str) -> None:
        match = rest[0]
        if len(rest) == 1:
            if value == self.removal:
                self.builder.entries.pop((None, match), None)
            else:
                self.builder.fault(
                    origin, key, f"names no setting, expected one, or {self.removal} to remove the match"
                )
            return
        row = BY_BEAN.get(rest[1])
        if row is None:
            self.builder.unknown(origin, rest[1], "addressSettings", BY_BEAN)
            return
        raw = self.builder.entries.setdefault((None, match), RawEntry(match, None, origin, parse=parse_artemis_match))
        if value == self.removal:
            raw.values.pop(row.attribute, None)
            raw.origins.pop(row.attribute, None)
        else:
            self.builder.set_field(raw, origin, rest[1], row, value, as_text=True)

    # -- addresses, queues, diverts -----------------------------------------------------------------------------------

    def read_address(self, origin: Origin, key: str, rest: list[str], value: str) -> None:
        name, path = rest[0], rest[1:]
        self.addresses.setdefault(name, origin)
        if path == ["routingTypes"]:
            for word in value.split(","):
                try:
                    self.routing_types.setdefault(name, set()).add(ROUTING_TYPE.read_text(word))
                except ValueError as error:
                    self.builder.invalid(origin, "routingTypes", word, error)
        elif len(path) == 3 and path[0] == "queueConfigs":
            self.queues.setdefault((name, path[1]), {})[path[2]] = (value, origin)
        elif len(path) == 2 and path[0] == "queueConfigs" and value == self.removal:
            self.builder.queues.pop(("/", path[1]), None)
        elif not path and value == self.removal:
            for at in [at for at, queue in self.builder.queues.items() if at[0] == "/" and queue.address == name]:
                del self.builder.queues[at]
            self.builder.exchanges.pop(("/", name), None)
        elif path != ["name"]:
            self.builder.unknown(
                origin, ".".join(path) or key, "addressConfigurations", ("routingTypes", "queueConfigs")
            )

    def declare_queue(self, address: str, name: str, attributes: dict[str, tuple[str, Origin]]) -> None:
        origin = next(iter(attributes.values()))[1]
        earlier = self.builder.queues.pop(("/", name), None)
        default_type = MULTICAST if self.routing_types.get(address) == {MULTICAST} else ANYCAST
        queue = earlier or QueueDeclaration(name, address, routing_type=default_type, origin=origin)
        arguments = dict(queue.arguments)
        origins = dict(queue.origins)
        known = (*QUEUE_BEANS, "name", "address", "durable", "enabled", "routingType", "user")
        for key, (value, key_origin) in attributes.items():
            try:
                if key in QUEUE_BEANS:
                    argument = QUEUE_BEANS[key]
                    arguments[argument] = parse_argument(argument, value)
                    origins[argument] = key_origin
                elif key == "durable":
                    queue = replace(queue, durable=BOOLEAN.read_text(value))
                elif key == "enabled":
                    queue = replace(queue, is_enabled=BOOLEAN.read_text(value))
                elif key == "routingType":
                    queue = replace(queue, routing_type=ROUTING_TYPE.read_text(value))
                elif key == "user":
                    self.builder.no_effect(key_origin, key)
                elif key not in known:
                    self.builder.unknown(key_origin, key, "queueConfigs", known)
            except ValueError as error:
                self.builder.invalid(key_origin, key, value, error)
        arguments.pop("x-address", None)  # that of an earlier file
        if name != address:
            arguments["x-address"] = address
        queue = replace(queue, address=address, arguments=arguments, origins=origins)
        self.builder.add_queue(queue, {argument: bean for bean, argument in QUEUE_BEANS.items()})

    def declare_divert(self, name: str, attributes: dict[str, tuple[str, Origin]]) -> None:
        texts: dict[str, str] = {}
        for key, (value, key_origin) in attributes.items():
            if key in _DIVERT_BEANS:
                texts[_DIVERT_BEANS[key]] = value
            elif key.startswith("transformer"):
                self.builder.fault(key_origin, key, NO_TRANSFORMER)
            elif key != "name":
                self.builder.unknown(key_origin, key, "divertConfigurations", ("name", *_DIVERT_BEANS))
        origin = next(iter(attributes.values()))[1]
        if missing_keys(texts):
            self.builder.fault(origin, name, "a divert needs address and forwardingAddress")
            return
        self.builder.diverts.pop(("/", name), None)
        declare_divert(self.builder, name, origin, texts, _divert_bean)
