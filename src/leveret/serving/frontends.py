"""Frontends by name: AMQP, the console, and those that other distributions register."""

from collections.abc import Awaitable, Callable

FRONTEND_GROUP = "leveret.frontends"

Frontend = Callable[..., Awaitable[None]]


class FrontendMissing(Exception):
    """No installed distribution offers the frontend; the message is for the operator."""


def find_frontend(name: str) -> Frontend:
    """The frontend with this name. Raises: FrontendMissing."""
    if name == "amqp":  # a search of the entry points would take a tenth of the start
        from ..amqp_frontend.edge.server import serve as serve_amqp

        return serve_amqp
    if name == "console":
        from ..console.server import serve as serve_console

        return serve_console
    from importlib.metadata import entry_points

    for entry_point in entry_points(group=FRONTEND_GROUP, name=name):
        frontend: Frontend = entry_point.load()
        return frontend
    raise FrontendMissing(f"no frontend {name!r} is installed (entry points {FRONTEND_GROUP})")
