"""A pytest plugin that sets the AMQP port in amqpstorm's own tests, which have no option for it."""

import os
from typing import Any

from amqpstorm import connection

PORT_USUAL = 5672
_make = connection.Connection.__init__


def _with_port(self: Any, hostname: str, username: str, password: str, port: int = PORT_USUAL, **more: Any) -> None:
    _make(
        self, hostname, username, password, int(os.environ["TOOLS_AMQP_PORT"]) if port == PORT_USUAL else port, **more
    )


connection.Connection.__init__ = _with_port  # type: ignore[method-assign, unused-ignore]  # where it is installed
