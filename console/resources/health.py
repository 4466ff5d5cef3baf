"""Health checks: 200 or 503, with the reason. Source: management page 3, 9."""

from datetime import UTC, datetime
from typing import Any

from ..api import Api
from ..dispatcher import Action, Level, Route
from ..messages import Answer, Request, bad_request, not_found
from ..views.nodes import is_disk_alarm, is_memory_alarm, is_replication_alarm

_DAY_MS = 86_400_000
_UNITS = {"days": 1, "weeks": 7, "months": 30, "years": 365}
#: Other names of protocols of listeners.
_FOLDED = {
    "amqp091": "amqp",
    "amqp0-9-1": "amqp",
    "amqp0.9.1": "amqp",
    "amqp10": "amqp",
    "amqps": "amqp/ssl",
    "http_api": "http",
    "management": "http",
    "ui": "http",
}
OK = {"status": "ok"}


def _failed(reason: str, **more: Any) -> Answer:
    return Answer(503, {"status": "failed", "reason": reason, **more})


def _alarms(api: Api, request: Request) -> Any:
    return _alarmed(api, "There are alarms in effect in the cluster")


def _local_alarms(api: Api, request: Request) -> Any:
    return _alarmed(api, "There are alarms in effect on the node")


def _alarmed(api: Api, reason: str) -> Any:
    broker, node = api.broker, api.options.node
    resources = (
        ("memory", is_memory_alarm(broker)),
        ("disk", is_disk_alarm(broker)),
        ("replication", is_replication_alarm(broker)),
    )
    found = [{"node": node, "resource": resource} for resource, is_on in resources if is_on]
    return _failed(reason, alarms=found) if found else OK


def _certificates(api: Api, request: Request) -> Any:
    within, unit = request.names["WITHIN"], request.names["UNIT"]
    if not within.isascii() or not within.isdigit() or len(within) > 6:
        raise bad_request("Invalid expiration value.")
    if unit not in _UNITS:
        raise bad_request("Time unit not recognised. Supported units: days, weeks, months, years.")
    until_ms = api.broker.context.clock.wall_ms() + int(within) * _UNITS[unit] * _DAY_MS
    expired = [
        {
            "node": api.options.node,
            "protocol": one.listening.protocol,
            "interface": one.listening.ip_address,
            "port": one.listening.port,
            "certfile": one.file,
            "cacertfile": one.authority,
            "certfile_expires_on": list(map(_moment, one.expires_ms)),
            "cacertfile_expires_on": list(map(_moment, one.authority_expires_ms)),
        }
        for one in api.options.certificates()
        if min((*one.expires_ms, *one.authority_expires_ms), default=until_ms + 1) <= until_ms
    ]
    return _failed("Certificates expiring", expired=expired) if expired else OK


def _moment(wall_ms: int) -> str:
    return f"{datetime.fromtimestamp(wall_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def _port(api: Api, request: Request) -> Any:
    text = request.names["PORT"]
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise bad_request("Invalid port")
    port, ports = int(text), [one.port for one in api.options.listeners()]
    if port in ports:
        return {"status": "ok", "port": port}
    return _failed("No active listener", missing=port, ports=ports)


def _protocol(api: Api, request: Request) -> Any:
    """The protocol in the path, or several with commas, as in 4.2."""
    protocols = sorted({one.protocol for one in api.options.listeners()})
    names = request.names["PROTOCOL"].split(",")
    wanted = [_FOLDED.get(name.lower(), name.lower()) for name in names]
    missing = [name for name in wanted if name not in protocols]
    if len(names) > 1:
        if missing:
            return _failed("No active listener", missing=missing, protocols=protocols)
        return {"status": "ok", "protocols": wanted}
    if missing:
        return _failed("No active listener", missing=missing[0], protocols=protocols)
    return {"status": "ok", "protocol": wanted[0]}


def _fine(api: Api, request: Request) -> Any:
    """Checks that cannot fail while the one node answers."""
    return OK


def _single(api: Api, request: Request) -> Any:
    return {"status": "ok", "reason": "single node cluster"}


def _node(api: Api, request: Request) -> Any:
    if "N" in request.names and not api.is_node(request.names["N"]):
        raise not_found()
    answer = _alarmed(api, "resource alarm(s) in effect")
    return answer if isinstance(answer, Answer) else OK


def _below_limit(api: Api, request: Request) -> Any:
    machine = api.options.machine()
    if machine.descriptors_max and machine.descriptors >= machine.descriptors_max:
        return _failed("the limit of connections is reached")
    return OK


_ANY, _OPEN = Level.ANY, Level.OPEN
_CHECKS = {
    "alarms": (_ANY, _alarms),
    "local-alarms": (_ANY, _local_alarms),
    "certificate-expiration/WITHIN/UNIT": (_ANY, _certificates),
    "port-listener/PORT": (_ANY, _port),
    "protocol-listener/PROTOCOL": (_ANY, _protocol),
    "virtual-hosts": (_ANY, _fine),
    "node-is-mirror-sync-critical": (_ANY, _single),
    "node-is-quorum-critical": (_ANY, _single),
    "metadata-store/initialized": (_ANY, _fine),
    "metadata-store/initialized/with-data": (_ANY, _fine),
    "quorum-queues-without-elected-leaders/all-vhosts": (_ANY, _fine),
    "quorum-queues-without-elected-leaders/all-vhosts/pattern/P": (_ANY, _fine),
    "quorum-queues-without-elected-leaders/vhost/V": (_ANY, _fine),
    "quorum-queues-without-elected-leaders/vhost/V/pattern/P": (_ANY, _fine),
    "is-in-service": (_OPEN, _fine),
    "below-node-connection-limit": (_OPEN, _below_limit),
    "ready-to-serve-clients": (_OPEN, _alarms),
    "reached-target-cluster-size": (_OPEN, _fine),
}
ROUTES = [
    *(Route(f"health/checks/{path}", {"GET": Action(*how, is_probe=True)}) for path, how in _CHECKS.items()),
    Route("healthchecks/node", {"GET": Action(_ANY, _node, is_probe=True)}),
    Route("healthchecks/node/N", {"GET": Action(_ANY, _node, is_probe=True)}),
]
