"""TLS options of commands that connect to a broker: trusted authorities, and the client's certificate."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl


def add_tls_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ca", metavar="FILE", help="with amqps: trusted authorities, instead of this machine's")
    parser.add_argument(
        "--certificate", metavar="FILE", help="with amqps: the client's own, if the broker asks for one"
    )
    parser.add_argument("--key", metavar="FILE", help="of that certificate, unless it is in the same file")


def context_of(options: argparse.Namespace) -> "ssl.SSLContext | None":
    """The context for `request`; None: no TLS option is given. Raises: ControlFailed."""
    from .control_client import tls_context

    files = (options.ca, options.certificate, options.key)
    return tls_context(*files) if any(files) else None
