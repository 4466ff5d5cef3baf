"""The requests of programs that cannot run here: KEDA's scaler, health checks of Helm charts, monitoring agents.

They are from management page 11. The status and the fields that the program reads are compared.
"""

from __future__ import annotations

import json
import urllib.error
from pathlib import Path
from typing import Any

from .brokers import HttpBroker
from .http import ask
from .results import Result, Run

#: Program -> path, and the fields of the answer that it reads; `items.`: of each entry of a list.
REQUESTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "KEDA, a queue": ("queues/%2F/watched", ("messages", "messages_unacknowledged", "name")),
    "KEDA, queues by regular expression": (
        "queues/%2F?page=1&use_regex=true&pagination=false&name=%5Ewat.*&page_size=100",
        ("items.messages", "items.messages_unacknowledged", "items.name", "items.vhost"),
    ),
    "KEDA, rates of a queue": (
        "queues/%2F/watched?lengths_age=60&lengths_incr=60",
        ("message_stats.publish_details.rate",),
    ),
    "Helm, liveness": ("health/checks/virtual-hosts", ("status",)),
    "Helm, readiness": ("health/checks/local-alarms", ("status",)),
    "Telegraf, overview": ("overview", (
        "object_totals.channels", "object_totals.connections", "object_totals.consumers", "object_totals.exchanges",
        "object_totals.queues", "queue_totals.messages", "queue_totals.messages_ready",
        "queue_totals.messages_unacknowledged", "listeners.protocol",
    )),
    "Telegraf, nodes": ("nodes", (
        "items.disk_free", "items.disk_free_limit", "items.fd_total", "items.fd_used", "items.mem_limit",
        "items.mem_used", "items.proc_total", "items.proc_used", "items.run_queue", "items.sockets_total",
        "items.sockets_used", "items.running", "items.uptime", "items.mem_alarm", "items.disk_free_alarm",
        "items.gc_num", "items.gc_num_details.rate", "items.gc_bytes_reclaimed", "items.mem_used_details.rate",
        "items.disk_free_details.rate", "items.fd_used_details.rate", "items.sockets_used_details.rate",
    )),
    "Telegraf, queues": ("queues", (
        "items.consumers", "items.consumer_utilisation", "items.memory", "items.message_bytes", "items.node",
        "items.message_bytes_persist", "items.message_bytes_ram", "items.message_bytes_ready", "items.state",
        "items.messages_ready", "items.durable", "items.auto_delete", "items.vhost", "items.name",
    )),
    "Datadog, connections": ("connections", ("items.state", "items.vhost", "items.user", "items.channels")),
    "Zabbix, aliveness": ("aliveness-test/%2F", ("status",)),
    "health checks of Docker": ("healthchecks/node", ("status",)),
    "Spring Cloud, bindings of an exchange": ("exchanges/%2F/amq.default/bindings/source", ("items.destination",)),
}  # fmt: skip


def run_requests(broker: HttpBroker, directory: Path, work: Path) -> Run:
    """Send the requests. Each is a check of the status and the types of the fields."""
    run = Run()
    for who, (path, fields) in REQUESTS.items():
        try:
            answer: Any = json.loads(ask(broker.url, "GET", path))
        except urllib.error.HTTPError as error:
            run.results[who] = Result(False, reason=f"{error.code}")
            continue
        if isinstance(answer, list):
            answer = {"items": answer}
        run.results[who] = Result(True, {field: _kinds(answer, field.split(".")) for field in fields})
    return run


def _kinds(value: Any, path: list[str]) -> list[str]:
    """The JSON types of a field, or `missing`. Integers and floats are numbers."""
    values = value if isinstance(value, list) else [value]
    if path:
        inner = [one.get(path[0], ...) if isinstance(one, dict) else ... for one in values]
        return sorted({kind for one in inner for kind in (["missing"] if one is ... else _kinds(one, path[1:]))})
    return sorted({_kind(one) for one in values})


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else type(value).__name__
