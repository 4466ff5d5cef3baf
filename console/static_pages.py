"""The files of the console's page, the vendored uPlot, and two short pages about the API and the command line.

All paths are in a table that is made on first use: the path of a request never becomes that of a file.
Source: management page 1.1, 18, 20.
"""

import html
from collections.abc import Iterable
from pathlib import Path

from ..vendored import FOLDER as SHARED
from ..vendored import UPLOT
from .dispatcher import Route
from .http_messages import Answer

#: The directory with the files of the page.
FOLDER = Path(__file__).with_name("page")
_TEXT = "text/plain; charset=utf-8"
_HTML = "text/html; charset=utf-8"
_TYPES = {
    ".html": _HTML,
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class StaticPages:
    """The pages by their paths."""

    def __init__(self) -> None:
        self._known: dict[str, Answer] = {}

    def get(self, path: str, routes: Iterable[Route]) -> Answer | None:
        """The page at a path; None: there is none."""
        if not self._known:
            self._known = {
                **_files(),
                "/api/index.html": _page("HTTP API", _table(routes)),
                "/cli/index.html": _page("Command line", _COMMANDS),
            }
        return self._known.get(path)


_COMMANDS = "<p>The same commands are at the command line: <code>leveret ctl --help</code>.</p>"


def _files() -> dict[str, Answer]:
    found = {}
    for file in sorted(FOLDER.rglob("*")):
        if file.is_file():
            path = "/" + file.relative_to(FOLDER).as_posix().removesuffix("index.html")
            found[path] = _answer(_TYPES.get(file.suffix, _TEXT), file.read_bytes())
    for name in UPLOT:
        found[f"/vendor/{name}"] = _answer(_TYPES.get(Path(name).suffix, _TEXT), (SHARED / name).read_bytes())
    return found


def _answer(content_type: str, body: bytes) -> Answer:
    return Answer(200, headers=(("content-type", content_type),), body=body)


def _page(title: str, content: str) -> Answer:
    text = (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>\n'
        f"<body><h1>{title}</h1>\n{content}\n</body></html>\n"
    )
    return _answer(_HTML, text.encode())


def _table(routes: Iterable[Route]) -> str:
    rows = "\n".join(
        f"<tr><td>{html.escape(route.allow)}</td><td>/api/{html.escape(route.pattern)}</td></tr>"
        for route in sorted(routes, key=lambda one: one.pattern)
    )
    return f"<p>Words in capitals are names, percent-encoded.</p>\n<table>\n{rows}\n</table>"
