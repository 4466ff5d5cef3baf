"""`leveret test-server`: a test broker in its own process, for tests in any language. See docs/test-server.md."""

import argparse
import json
import os
import secrets
import signal
import sys
import threading
from pathlib import Path
from typing import Any

EXIT_OK, EXIT_UNUSABLE = 0, 2
#: The variable of the token: command lines are visible to all users.
TOKEN_VARIABLE = "LEVERET_TEST_TOKEN"
CLIENTS = {"go": "leverettest.go", "node": "leveret.mjs", "java": "LeveretTest.java"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", default=None, help="configuration of the broker")
    parser.add_argument("--profile", metavar="NAME", default=None, help="RabbitMQ version to follow")
    parser.add_argument("--clock", choices=("real", "virtual"), default="virtual", help="how time passes (virtual)")
    parser.add_argument("--host", default="127.0.0.1", help="address of both ports (127.0.0.1)")
    parser.add_argument("--port", type=int, default=0, help="of AMQP (a free one)")
    parser.add_argument("--control-port", type=int, default=0, help="of HTTP (a free one)")
    parser.add_argument("--quiet-ms", type=float, default=None, help="real time that clients have to react (3)")
    parser.add_argument("--with-parent", action="store_true", help="end when standard input does")
    parser.add_argument("--client", choices=CLIENTS, default=None, help="print the client for a language, and end")


def run(options: argparse.Namespace) -> int:
    """Run until a signal arrives or, with --with-parent, standard input ends."""
    if options.client is not None:
        print((Path(__file__).parent / "clients" / CLIENTS[options.client]).read_text(), end="")
        return EXIT_OK
    from ...serving.addresses import AddressTaken
    from ..broker import RunningBroker
    from ..host import Host
    from ..options import QUIET_MS_DEFAULT, BrokerOptionsError, read_options
    from .http_server import ControlServer
    from .operations import Operations

    try:
        broker_options = read_options(
            clock=options.clock,
            config=options.config,
            profile=options.profile,
            host=options.host,
            port=options.port,
            quiet_ms=QUIET_MS_DEFAULT if options.quiet_ms is None else options.quiet_ms,
        )
        broker = RunningBroker(Host(broker_options)).start()
    except (BrokerOptionsError, AddressTaken, OSError) as error:
        print(f"leveret test-server: {error}", file=sys.stderr)
        return EXIT_UNUSABLE
    token = os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(24)
    try:
        control = ControlServer(Operations(broker), token, options.host, options.control_port)
    except OSError as error:
        broker.stop()
        print(f"leveret test-server: {options.host}:{options.control_port}: {error.strerror}", file=sys.stderr)
        return EXIT_UNUSABLE
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: _end(control))
    if options.with_parent:
        threading.Thread(target=_follow_parent, args=(control,), daemon=True).start()
    print(json.dumps({"url": broker.url, "control": control.url, "token": token}), flush=True)
    try:
        control.serve_forever(poll_interval=0.25)
    finally:
        control.server_close()
        broker.stop()
    return EXIT_OK


def _end(control: Any) -> None:
    """Shut the server down in another thread, because `shutdown` waits for the loop that this thread may run."""
    threading.Thread(target=control.shutdown, daemon=True).start()


def _follow_parent(control: Any) -> None:
    while sys.stdin.buffer.read(4096):
        pass
    control.shutdown()
