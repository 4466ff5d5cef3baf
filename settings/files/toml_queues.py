"""Queues and logged topics in native files: `[[queue]]`, `[[address.queue]]`, `[[logged-topic]]`.

A queue's attributes are arguments of queue.declare without `x-`. Source: interfaces page; address-settings page 6.5;
queues page A.3.
"""

from types import MappingProxyType
from typing import Any

from ..declared.declarations import ANYCAST, LoggedTopic, QueueDeclaration
from ..declared.tables import LOGGED_TOPIC_OPTIONS
from ..queue_types import CLASSIC, OWN_TYPES, QUEUE_TYPES, own_type
from ..rows.queue_attributes import QUEUE_ATTRIBUTES
from ..values import LONG_MAX, ROUTING_TYPE, boolean, name_text, word
from .toml_source import Path, TomlSource, home_of

QUEUE_TYPE = "x-queue-type"
_OTHERS = ("name", "type", "routing-type", "durable", "enabled", "arguments", "user")
_ALONE = ("name", "type", "vhost", "durable", "enabled", "arguments")


class QueueTables(TomlSource):
    """Reads these tables."""

    def queue_alone(self, path: Path, item: dict[str, Any]) -> None:
        """`[[queue]]`: its address is its name."""
        vhost = self.optional(path, item, "vhost", name_text, "/")
        own = {key: value for key, value in item.items() if key != "vhost"}
        self.queue(path, own, None, vhost, ANYCAST)

    def queue(self, path: Path, item: dict[str, Any], address: str | None, vhost: str, routing_type: str) -> None:
        """One queue. `address`: of the table around it; None: there is none."""
        table, others = ("[[queue]]", _ALONE) if address is None else ("[[address.queue]]", _OTHERS)
        name = self.required(path, item, "name")
        own_routing = self.optional(path, item, "routing-type", ROUTING_TYPE.read, routing_type)
        durable = self.optional(path, item, "durable", boolean, True)
        is_enabled = self.optional(path, item, "enabled", boolean, True)
        arguments: dict[str, object] = {}
        in_file: dict[str, str] = {}
        if "type" in item:
            arguments[QUEUE_TYPE] = self.optional(path, item, "type", word(*QUEUE_TYPES), CLASSIC)
            in_file[QUEUE_TYPE] = "type"
        given = item.get("arguments", {})
        own = own_type(arguments) or own_type(given if isinstance(given, dict) else {})
        known = QUEUE_ATTRIBUTES if own is None else own.attributes
        for key, value in item.items():
            origin = self.at(*path, key)
            if key in known:
                argument = known[key]
                if argument in arguments:
                    self.builder.fault(origin, key, f"says {argument}, which is given as well")
                arguments[argument] = value
                in_file[argument] = key
            elif own is not None and key in QUEUE_ATTRIBUTES:
                beside = f", but a {own.instead[key]}" if key in own.instead else ""
                self.builder.fault(origin, key, f'no queue with type = "{own.name}" has it{beside}')
            elif types := [one.name for one in OWN_TYPES.values() if key in one.attributes]:
                self.builder.fault(origin, key, f'only with type = "{types[0]}"')
            elif key == "user" and address is not None:
                self.builder.no_effect(origin, key)
            elif key not in others:
                self.builder.unknown(origin, key, table, (*known, *others), home_of(key))
        self.raw_arguments(path, given, arguments)
        if name is None:
            return
        origins = {
            argument: self.at(*path, *((in_file[argument],) if argument in in_file else ("arguments", argument)))
            for argument in arguments
        }
        if own is not None:
            for argument, value in list(arguments.items()):
                if expected := own.why_not(argument, value):
                    self.builder.wrong(origins[argument], in_file.get(argument, argument), value, expected)
                    del arguments[argument]
        if address is not None and name != address:
            arguments["x-address"] = address
        queue = QueueDeclaration(
            name,
            address or name,
            vhost,
            own_routing,
            durable,
            is_enabled,
            MappingProxyType(arguments),
            self.at(*path),
            MappingProxyType(origins),
        )
        if own is not None:
            unset = {argument: key for key, argument in known.items() if argument not in arguments}
            in_file = {"name": "name", **unset, **in_file}
        self.builder.add_queue(queue, in_file)

    def raw_arguments(self, path: Path, given: object, arguments: dict[str, object]) -> None:
        """`arguments = { x-max-length = 5 }`: as a client would send them."""
        if not isinstance(given, dict):
            self.builder.wrong(self.at(*path, "arguments"), "arguments", given, "a table of queue arguments")
            return
        for key, value in given.items():
            origin = self.at(*path, "arguments", key)
            if key == "x-address":
                self.builder.fault(origin, key, "the address is the name of the [[address]] around the queue")
            elif key in arguments:
                self.builder.fault(origin, key, "is given twice")
            elif not key.startswith("x-"):
                self.builder.fault(origin, key, "a queue argument starts with x-")
            elif not isinstance(value, str | int | float | bool):
                self.builder.wrong(origin, key, value, "text, a number, true or false")
            elif isinstance(value, int) and not ~LONG_MAX <= value <= LONG_MAX:  # TOML has integers of any size
                self.builder.wrong(origin, key, value, "an integer of 64 bits")
            else:
                arguments[key] = value

    # -- logged topics ------------------------------------------------------------------------------------------------

    def logged_topic(self, path: Path, item: dict[str, Any]) -> None:
        """`[[logged-topic]]`: `name`, or `pattern` of several."""
        values = self.values(path, item, LOGGED_TOPIC_OPTIONS, "name", "pattern")
        if "name" in item and "pattern" in item:
            self.builder.fault(self.at(*path, "pattern"), "pattern", "contradicts name, expected one of the two")
            return
        key = "pattern" if "pattern" in item else "name"
        name = self.required(path, item, key)
        if name is None:
            return
        topic = LoggedTopic(name, key == "pattern", **values, origin=self.at(*path))
        self.builder.add_logged_topic(topic, key)
