"""Drafts: the effect that settings and policies would have on the broker's queues. Source: management page 16."""

from ..api import Api
from ..bodies import boolean, json_object, text
from ..dispatcher import Action, Level, Route
from ..http_messages import Request
from ..steps import Steps


def _draft(api: Api, request: Request) -> Steps:
    """Show the effect of a draft. Its settings are TOML or XML, in `text` or in several `files`."""
    given = json_object(request)
    files = [["draft", text(given["text"], "text")]] if "text" in given else given.get("files")
    return (
        yield from api.run(
            "draft",
            name=text(given.get("name", ""), "name") or None,
            files=files,
            included=given.get("included"),
            adds=boolean(given.get("adds", True)),
            policies=given.get("policies"),
            vhost=api.vhost(request).name if "V" in request.names else None,
        )
    )


_DRAFT = {"POST": Action(Level.ADMINISTRATOR, _draft)}
ROUTES = [Route("leveret/draft", _DRAFT), Route("leveret/draft/V", _DRAFT)]
