"""Messages and queues as plain values that are equal in each run, for snapshot tests and for JSON.

Tools that compare or print dicts (syrupy, inline-snapshot) take them unchanged. Ids, times, names of connections and
counters are left out. A body is its JSON if that is an object or an array, else its text, else its octets.
"""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from .snapshots import Content, Properties, QueueSnapshot, json_content


def plain_message(message: Content) -> dict[str, Any]:
    """Exchange, routing key, body, and the set properties of a message."""
    form: dict[str, Any] = {"exchange": message.exchange, "routing_key": message.routing_key}
    form["body"] = plain_body(message.body)
    if properties := plain_properties(message.properties):
        form["properties"] = properties
    return form


def plain_queue(queue: QueueSnapshot) -> dict[str, Any]:
    """The messages of a queue, and its declaration: flags that are set, and arguments."""
    form: dict[str, Any] = {"name": queue.name}
    form |= {flag: True for flag in ("durable", "exclusive", "auto_delete") if getattr(queue, flag)}
    if queue.arguments:
        form["arguments"] = plain_value(queue.arguments)
    for state in ("ready", "unacked", "scheduled"):
        if messages := getattr(queue, state):
            form[state] = [plain_message(message) for message in messages]
    if queue.consumers:
        form["consumers"] = len(queue.consumers)
    return form


def plain_properties(properties: Properties) -> dict[str, Any]:
    """The set properties by name, without timestamps and times of deaths."""
    form: dict[str, Any] = {}
    for name in Properties.__dataclass_fields__:
        value = getattr(properties, name)
        if value is None or name == "timestamp" or (name == "headers" and not value):
            continue
        form[name] = plain_value(value)
    for death in form.get("headers", {}).get("x-death", ()):
        if isinstance(death, dict):
            death.pop("time", None)
    return form


def plain_body(body: bytes) -> Any:
    """JSON, text or octets."""
    content = json_content(body)
    if isinstance(content, dict | list):
        return content
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body


def plain_value(value: Any) -> Any:
    """Dicts, lists, text, numbers, octets."""
    if isinstance(value, Mapping):
        return {key: plain_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value
