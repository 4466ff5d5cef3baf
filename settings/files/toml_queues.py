"""Queues and logged topics in native files: `[[queue]]`, `[[address.queue]]`, `[[logged-topic]]`.

A queue's attributes are arguments of queue.declare without `x-`. Source: interfaces page; address-settings page 6.5;
queues page A.3.
"""

from collections.abc import Mapping
from typing import Any

from ..declared.declarations import ANYCAST, LoggedTopic, QueueDeclaration
from ..declared.tables import LOGGED_TOPIC_OPTIONS
from ..faults import Origin
from ..policies.policy_keys import POLICY_KEYS
from ..queue_types import ADDED_TYPES, CLASSIC, QUEUE_TYPES, QueueType, added_type
from ..rows.queue_attributes import QUEUE_ARGUMENTS, QUEUE_ATTRIBUTES
from ..values import LONG_MAX, ROUTING_TYPE, boolean, name_text, word
from .toml_source import Path, TomlSource, tables_with

QUEUE_TYPE = "x-queue-type"
#: Keys besides the attributes: of a queue of an address, and of one that is its own address.
_OF_ADDRESS = ("name", "type", "routing-type", "durable", "enabled", "arguments", "user")
_ALONE = ("name", "type", "vhost", "durable", "enabled", "arguments")


def read_top_level_queue(source: TomlSource, path: Path, item: dict[str, Any]) -> None:
    """`[[queue]]`: its address is its name."""
    vhost = source.optional(path, item, "vhost", name_text, "/")
    read_queue(source, path, {key: value for key, value in item.items() if key != "vhost"}, None, vhost, ANYCAST)


def read_queue(
    source: TomlSource, path: Path, item: dict[str, Any], address: str | None, vhost: str, routing_type: str
) -> None:
    """One queue. `address`, `routing_type`: of the table around it; address None: there is none."""
    builder = source.builder
    name = source.required(path, item, "name")
    routing_type = source.optional(path, item, "routing-type", ROUTING_TYPE.read, routing_type)
    durable = source.optional(path, item, "durable", boolean, True)
    is_enabled = source.optional(path, item, "enabled", boolean, True)
    arguments: dict[str, object] = {}
    in_file: dict[str, str] = {}  # argument -> its key
    if "type" in item:
        arguments[QUEUE_TYPE] = source.optional(path, item, "type", word(*QUEUE_TYPES), CLASSIC)
        in_file[QUEUE_TYPE] = "type"
    given = item.get("arguments", {})
    queue_type = added_type(arguments) or added_type(given if isinstance(given, dict) else {})
    known = QUEUE_ATTRIBUTES if queue_type is None else queue_type.attributes
    for key, value in item.items():
        if (argument := known.get(key)) is None:
            _check_other_key(source, path, key, queue_type, is_alone=address is None)
            continue
        if argument in arguments:
            builder.fault(source.origin_of(*path, key), key, f"sets {argument}, which another key sets as well")
        arguments[argument] = value
        in_file[argument] = key
    _read_arguments(source, path, given, arguments)
    if name is None:
        return
    origins: dict[str, Origin] = {}
    for argument in arguments:
        key_path = (in_file[argument],) if argument in in_file else ("arguments", argument)
        origins[argument] = source.origin_of(*path, *key_path)
    for argument, value in list(arguments.items()):
        if queue_type is not None:
            expected = _expected(value) or queue_type.expected_in_toml(argument, value)
        else:  # those of the table are read below
            expected = "" if argument in QUEUE_ARGUMENTS else _expected(value)
        if expected:
            builder.invalid(origins[argument], in_file.get(argument, argument), value, expected)
            del arguments[argument]
    if queue_type is not None:
        unset = {argument: key for key, argument in known.items() if argument not in arguments}
        in_file = {"name": "name", **unset, **in_file}
    if address is not None and name != address:
        arguments["x-address"] = address
    queue = QueueDeclaration(
        name, address or name, vhost, routing_type, durable, is_enabled, arguments, source.origin_of(*path), origins
    )
    builder.add_queue(queue, in_file)


def _check_other_key(source: TomlSource, path: Path, key: str, own: QueueType | None, *, is_alone: bool) -> None:
    """A key that is not an attribute of the queue's type: a fault, unless it is a key of every queue."""
    builder, origin = source.builder, source.origin_of(*path, key)
    table, others = ("[[queue]]", _ALONE) if is_alone else ("[[address.queue]]", _OF_ADDRESS)
    in_policies = POLICY_KEYS.get(key)
    argument = key if key.startswith("x-") else ""
    if in_policies is not None and not in_policies.on <= ADDED_TYPES.keys():
        argument = in_policies.argument
    if own is not None and key in QUEUE_ATTRIBUTES:
        beside = f", but a {own.replacements[key]}" if key in own.replacements else ""
        builder.fault(origin, key, f'no queue with type = "{own.name}" has it{beside}')
    elif types := [one.name for one in ADDED_TYPES.values() if key in one.attributes]:
        hint = f", expected arguments = {{ {argument} = ... }}" if argument else ""
        builder.fault(origin, key, f'only with type = "{types[0]}"{hint}')
    elif key == "user" and not is_alone:
        builder.no_effect(origin, key)
    elif argument:
        builder.fault(origin, key, f"unknown key in {table}, expected arguments = {{ {argument} = ... }}")
    elif key not in others:
        known: Mapping[str, str] = QUEUE_ATTRIBUTES if own is None else own.attributes
        builder.unknown(origin, key, table, (*known, *others), tables_with(key))


def _read_arguments(source: TomlSource, path: Path, given: object, arguments: dict[str, object]) -> None:
    """Add `arguments = { x-max-length = 5 }`: as a client would send them."""
    builder = source.builder
    if not isinstance(given, dict):
        builder.invalid(source.origin_of(*path, "arguments"), "arguments", given, "a table of queue arguments")
        return
    for key, value in given.items():
        origin = source.origin_of(*path, "arguments", key)
        if key == "x-address":
            builder.fault(origin, key, "the address is the name of the [[address]] around the queue")
        elif key in arguments:
            builder.fault(origin, key, "is given twice")
        elif not key.startswith("x-"):
            builder.fault(origin, key, "a queue argument starts with x-")
        elif expected := _expected(value):
            builder.invalid(origin, key, value, expected)
        else:
            arguments[key] = value


def _expected(value: object) -> str:
    """What an argument's value must be; empty if it is that."""
    if not isinstance(value, str | int | float | bool):
        return "text, a number, true or false"
    if isinstance(value, int) and not ~LONG_MAX <= value <= LONG_MAX:  # TOML has integers of any size
        return "an integer of 64 bits"
    return ""


def read_logged_topic(source: TomlSource, path: Path, item: dict[str, Any]) -> None:
    """`[[logged-topic]]`: `name`, or `pattern` of several."""
    values = source.values(path, item, LOGGED_TOPIC_OPTIONS, "name", "pattern")
    if "name" in item and "pattern" in item:
        source.builder.fault(source.origin_of(*path, "pattern"), "pattern", "contradicts name, expected one of the two")
        return
    key = "pattern" if "pattern" in item else "name"
    name = source.required(path, item, key)
    if name is not None:
        topic = LoggedTopic(name, key == "pattern", **values, origin=source.origin_of(*path))
        source.builder.add_logged_topic(topic, key)
