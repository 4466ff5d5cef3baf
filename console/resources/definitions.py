"""Export and import of definitions, of the broker or of one virtual host. Source: management page 7."""

import re
from codecs import BOM_UTF8
from typing import Any

from ..api import Api
from ..bodies import content_type
from ..dispatcher import Action, Level, Route
from ..encoding import encoded_in_steps
from ..http_messages import JSON_TYPE, Answer, Refusal, Request, bad_request
from ..listing import Columns
from ..long_bodies import parsed_in_steps
from ..options import CommandRefused
from ..steps import Steps, free_in_steps
from .vhosts import give_all_permissions

JSON, MULTIPART = "application/json", "multipart/form-data"
_NOT_JSON = "failed_to_parse_json"  # also the answer to a form without a file
#: Maximum faults of an import that the answer lists.
FAULTS_MAX = 50
#: Maximum parts of a form, and maximum octets of the head of a part.
PARTS_MAX, PART_HEAD_MAX = 3, 16 * 1024
#: Redirects within this site: no scheme, no host, nothing that a browser could take for one, no line end.
_OWN_PATH = re.compile(r"(?!//)[A-Za-z0-9/#?&=%._~+-]{1,500}")
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.@+= ")


def _versions(api: Api) -> dict[str, str]:
    return {"rabbit_version": api.options.version, "rabbitmq_version": api.options.version}


def _export(api: Api, request: Request) -> Steps:
    found = yield from api.run("definitions export")
    named = {one["name"] for one in found["global_parameters"]}
    found["global_parameters"] += [one for one in api.ask("global-parameters list") if one["name"] not in named]
    return (yield from _download(request, {**_versions(api), **found}))


def _export_vhost(api: Api, request: Request) -> Steps:
    vhost = request.names["V"]
    if vhost not in api.broker.virtual_hosts:
        raise bad_request("vhost_not_found")
    found = yield from api.run("definitions export", vhost=vhost)
    sections = ("parameters", "policies", "queues", "exchanges", "bindings")
    return (yield from _download(request, {**_versions(api), **{name: found[name] for name in sections}}))


def _download(request: Request, value: dict[str, Any]) -> Steps:
    name = request.query.get("download")
    headers: tuple[tuple[str, str], ...] = (JSON_TYPE,)
    if name is not None:
        clean = "".join(c if c in _NAME_CHARACTERS else "_" for c in name)[:200]
        headers = (JSON_TYPE, ("content-disposition", f'attachment; filename="{clean}"'))
    parts = yield from encoded_in_steps(Columns(request).selected(value), is_own=True)
    return Answer(200, headers=headers, body=parts)


def _import(api: Api, request: Request) -> Steps:
    """Import into the broker, or into the virtual host in the path."""
    vhost = api.vhost_to_change(request).name if "V" in request.names else None
    body, redirect = _body_of(request)
    document = yield from _document(body)
    users = document.get("users")
    is_untagged = isinstance(users, list) and any(
        isinstance(user, dict) and not user.keys() & {"tags", "administrator"} for user in users
    )
    if vhost is None and is_untagged:
        raise bad_request("tags_not_present")
    all_or_nothing = request.flag("all-or-nothing") or None
    before = set(api.broker.virtual_hosts)
    arguments = {"definitions": document, "vhost": vhost, "all-or-nothing": all_or_nothing}
    try:
        done = yield from api.run("definitions import", **arguments)
    except CommandRefused as refused:
        raise bad_request(refused.reason) from None
    for name in [name for name in api.broker.virtual_hosts if name not in before]:
        yield from give_all_permissions(api, request, name)
    for rows in document.values():  # freeing a large document at once would take too long
        if isinstance(rows, list):
            yield from free_in_steps(rows)
    if done["faults"]:
        counts = ", ".join(f"{count} {what}" for what, count in done["imported"].items() if count)
        raise bad_request("\n".join([f"imported: {counts or 'nothing'}; not imported:", *done["faults"][:FAULTS_MAX]]))
    return Answer(303, headers=(("location", redirect),)) if _OWN_PATH.fullmatch(redirect) else Answer(204)


def _preview(api: Api, request: Request) -> Steps:
    """Show the changes that an import would make."""
    vhost = api.vhost_to_change(request).name if "V" in request.names else None
    document = yield from _document(_body_of(request)[0])
    return (yield from api.run("preview definitions", definitions=document, vhost=vhost))


def _document(body: bytes) -> Steps:
    """The steps to the JSON object in the body. Raises: Refusal."""
    value = yield from parsed_in_steps(body.removeprefix(BOM_UTF8), _NOT_JSON, is_strict=True)  # editors write a BOM
    if not isinstance(value, dict):
        raise bad_request(_NOT_JSON)
    return value


def _body_of(request: Request) -> tuple[bytes, str]:
    """The body, or the field `file` of a form; and the field `redirect`, where a browser goes then. Raises: Refusal."""
    if content_type(request) != MULTIPART:
        return request.body, ""
    # These modules take 1 MiB of memory, and are rarely needed.
    from email.parser import BytesParser
    from email.policy import compat32  # the other policies parse all headers, and fail at some malformed ones

    kind = request.headers["content-type"].encode("latin-1", "replace")
    message = BytesParser(policy=compat32).parsebytes(b"content-type: " + kind + b"\r\n\r\n" + request.body)
    parts: Any = message.get_payload() if message.is_multipart() else []
    fields: dict[object, bytes] = {}
    for part in parts if len(parts) <= PARTS_MAX else ():
        if sum(len(name) + len(str(value)) for name, value in part.items()) > PART_HEAD_MAX:
            raise Refusal(400, "bad_request", _NOT_JSON)
        payload = part.get_payload(decode=True)
        fields.setdefault(
            part.get_param("name", header="content-disposition"), payload if isinstance(payload, bytes) else b""
        )
    if "file" not in fields:
        raise Refusal(400, "bad_request", _NOT_JSON)
    return fields["file"], fields.get("redirect", b"").decode("latin-1")


_MEDIA = (JSON, MULTIPART)
_OF_BROKER = {"GET": Action(Level.ADMINISTRATOR, _export), "POST": Action(Level.ADMINISTRATOR, _import, _MEDIA)}
_PREVIEW = {"POST": Action(Level.ADMINISTRATOR, _preview, _MEDIA)}
ROUTES = [
    Route("definitions", _OF_BROKER),
    Route("all-configuration", _OF_BROKER),
    Route("leveret/preview/definitions", _PREVIEW),
    Route("leveret/preview/definitions/V", _PREVIEW),
    Route(
        "definitions/V",
        {"GET": Action(Level.ADMINISTRATOR, _export_vhost), "POST": Action(Level.ADMINISTRATOR, _import, _MEDIA)},
    ),
]
