"""All routes of the console: its own, and those of commands."""

from leveret.console.routes import routes_with
from leveret.operator.control import ControlTable
from leveret.serving.console import Commands

ROUTES = routes_with(Commands(ControlTable()).routes())
