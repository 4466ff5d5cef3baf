"""The console's interfaces, imported and made for its first client: an idle broker saves 0.5 MB.

Source: management page 21.
"""

from collections.abc import Callable
from dataclasses import dataclass
from operator import is_not
from typing import TYPE_CHECKING

import trio

from ..settings import Configuration
from .frontends import find_frontend
from .listeners import Listeners
from .runtime import Runtime
from .tls_files import NO_TLS, TlsFiles

if TYPE_CHECKING:
    from ..amqp_frontend.edge.server import Arrivals
    from ..console.metrics.buckets import Buckets
    from ..console.metrics.facts import MetricsFacts
    from ..console.options import ConsoleOptions
    from ..console.sampler import Sampler
    from ..journal import Journal
    from ..operator.control import ControlTable


@dataclass(slots=True)
class ConsoleParts:
    """Makes the options and the facts of the console when they are needed, and serves it.

    `data`: the directory of the journal.
    """

    control: "Callable[[], ControlTable]"
    configuration: Callable[[], Configuration]
    started_ms: int
    data: str | None
    listeners: Listeners
    journal: "Callable[[], Journal | None]"
    tls: Callable[[], TlsFiles] = lambda: NO_TLS
    files: Callable[[], tuple[str, ...]] = tuple
    _is_loaded: bool = False
    _sampler: "Sampler | None" = None
    _made: "ConsoleOptions | None" = None
    _made_of: tuple[object, ...] = ()

    def options(self) -> "ConsoleOptions":
        """The options now. A request reads them a dozen times, so they are made again only when something changed.

        That is: another table of commands, another configuration, other certificates, or another list of files.
        """
        made_of = (self.control(), self.configuration(), self.tls(), *self.files())
        if self._made is None or len(made_of) != len(self._made_of) or any(map(is_not, made_of, self._made_of)):
            self._made, self._made_of = self._make_options(), made_of
        return self._made

    def _make_options(self) -> "ConsoleOptions":
        from .console import console_options, listening

        if not self._is_loaded:
            self._is_loaded = True
            self.control().load()  # imports the commands now: a later client would wait for that
        self.control().operator.sampler = self._sampler  # the table of another broker does not have it yet
        return console_options(
            self.control(),
            self.configuration(),
            self.started_ms,
            self.data,
            lambda: listening(self.listeners),
            self.tls(),
            self.files(),
        )

    def facts(self, delays: "Buckets") -> "MetricsFacts":
        """The facts for /metrics that the engine does not have. `delays`: of the event loop."""
        from .metrics_facts import metrics_facts

        return metrics_facts(self.configuration, self.data, self.journal, delays)

    def _sampled_by(self, sampler: "Sampler") -> None:
        self._sampler = self.control().operator.sampler = sampler

    async def serve(
        self,
        runtime: Runtime,
        stopping: trio.Event,
        arrivals: "Arrivals | None" = None,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve the console until `stopping`. `arrivals`: clients that were accepted elsewhere."""
        http, metrics = self.listeners.console, self.listeners.metrics
        await find_frontend("console")(
            runtime,
            list(http),
            self.options,
            metrics_listeners=list(metrics),
            tls_listeners=[one for one, address in {**http, **metrics}.items() if address.is_tls],
            arrivals=arrivals,
            facts=self.facts,
            on_sampler=self._sampled_by,
            stopping=stopping,
            task_status=task_status,
        )
