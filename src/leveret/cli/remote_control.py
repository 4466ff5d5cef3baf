"""`leveret ctl --url http://...`: operations of a test server from the command line. See docs/test-server.md."""

import http.client
import json
import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from ..operator.command_error import CommandError
from ..settings.json_values import value_of_json
from .control_client import ControlFailed

#: As in `leveret test-server`.
TOKEN_VARIABLE = "LEVERET_TEST_TOKEN"
#: Default of the longest wait, in seconds, for a piece of the answer: advancing the clock may take long.
TIMEOUT_S = 600.0
ANSWER_MAX = 256 << 20
_NO_TEST_SERVER = (http.client.HTTPException, ConnectionResetError, BrokenPipeError)


def remote_request(url: str, operation: str, items: Sequence[str], timeout_s: float | None = None) -> Any:
    """The result of one operation, with arguments as NAME=VALUE; a value is JSON, or else text.

    Args: url: http://HOST:PORT, or http://:TOKEN@HOST:PORT; without a token in it, that of LEVERET_TEST_TOKEN is sent.
    Raises: CommandError (the command line); ControlFailed (no answer, or a refusal).
    """
    arguments: dict[str, Any] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals:
            raise CommandError(f"{item!r}: expected NAME=VALUE")
        try:
            arguments[key] = value_of_json(value)
        except (ValueError, RecursionError):
            arguments[key] = value
    try:
        where = urlsplit(url)
        host, port = where.hostname, where.port
    except ValueError:
        host, port = None, None
    if host is None or port is None:
        raise CommandError("--url: expected http://HOST:PORT")
    token = unquote(where.password or "") or os.environ.get(TOKEN_VARIABLE, "")
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s or TIMEOUT_S)
    try:
        headers = {"Authorization": f"Bearer {token}"}
        connection.request("POST", f"/v1/{operation}", json.dumps(arguments), headers)
        answer = connection.getresponse()
        content = json.loads(answer.read(ANSWER_MAX))
        if "result" in content:
            return content["result"]
        raise ControlFailed(content["error"])
    except (*_NO_TEST_SERVER, ValueError, LookupError, TypeError, RecursionError):
        raise ControlFailed(f"{host}:{port} is not a test server") from None
    except OSError as error:
        raise ControlFailed(f"{host}:{port}: {error.strerror or error}") from None
    finally:
        connection.close()
