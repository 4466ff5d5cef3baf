"""The options of `leveret serve`, as the command line and the configuration give them."""

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any

from ..settings import Configuration
from ..settings.printable import printable
from ..settings.slotted import slotted
from .addresses import Address, ConsoleAddresses
from .file_watch import FileWatch
from .reloading import Load
from .tls_files import NO_TLS, TlsFiles

if TYPE_CHECKING:
    from ..operator.json_file import JsonFile


@slotted
class ServeOptions:
    """The options of `leveret serve`.

    `load`: reads the configuration files again. `watch`: knows their state at the start.
    `tls`: the result of the configuration's `[tls]`.
    `definitions`: a file in RabbitMQ's form that is imported at the start.
    `console`: the addresses of the console; None: no console.
    `is_forced`, `rebuilds_queues`: see `build_broker`. `log_lines`: the last lines of the log.
    `checks_invariants`: check the invariants of the engine, and stop when one is broken.
    """

    configuration: Configuration
    listen: list[Address]
    data: str | None = None  # a directory for the journal; None: everything in memory
    load: Load | None = None
    watch: FileWatch | None = None
    tls: TlsFiles = NO_TLS
    definitions: "JsonFile | None" = None
    console: ConsoleAddresses | None = None
    is_forced: bool = False
    rebuilds_queues: bool = False
    checks_invariants: bool = False
    log_lines: Callable[[], list[dict[str, Any]]] | None = None
    ready: Callable[[str], None] = field(default=lambda line: print(printable(line), flush=True))
