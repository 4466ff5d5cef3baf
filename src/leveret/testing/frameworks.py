"""Workers of task frameworks for the time of a block, on a test broker instead of the URL that the application has.

Nothing of them is imported before one is asked for, and none is a dependency. Each works for one virtual host: that of
the broker it is given, so that a fixture of any scope can hold it:

    @pytest.fixture(scope="module")
    def worker(amqp_module_broker):
        with celery_worker(app, amqp_module_broker):
            yield
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from importlib import import_module
from typing import Any

from .broker import RunningBroker
from .nearest_names import nearest_keywords
from .typos import check_settings

#: How often the loop of a Celery worker turns when nothing happens, in real seconds.
TURN_S = 0.05
#: The application whose worker `celery_worker` runs now.
_CELERY_AT_WORK: list[str] = []


@contextmanager
def celery_app(app: Any, broker: RunningBroker, **conf: Any) -> Iterator[Any]:
    """A Celery application that publishes to this broker; `conf`: more of its configuration. No worker.

    Raises: TypeError for a setting that Celery does not have, and that is called nearly as one that it has.
    """
    check_settings(conf, import_module("celery.app.defaults").SETTING_KEYS)
    conf = {"broker_url": broker.url, "broker_read_url": None, "broker_write_url": None, **conf}
    before = {key: app.conf.get(key) for key in conf}
    app.conf.update(conf)
    _forget_celery(app)
    try:
        yield app
    finally:
        _forget_celery(app)
        app.conf.update(before)


def _forget_celery(app: Any) -> None:
    """Connections and result backends that it has made."""
    pools: Any = import_module("kombu.pools")
    app._after_fork()  # its own way of forgetting its pool
    pools.reset()
    backends: tuple[Any, ...] = (app._backend_cache, getattr(app._local, "backend", None))
    for backend in backends:
        with suppress(Exception):  # it has consumed nothing, or is gone
            backend.result_consumer.stop()
    app._backend_cache = None
    app._local.__dict__.clear()


@contextmanager
def celery_worker(
    app: Any, broker: RunningBroker, *, conf: "dict[str, Any] | None" = None, **options: Any
) -> Iterator[Any]:
    """A worker of a Celery application in a thread, which is ready when the block begins.

    `conf`: configuration of the application for that time, such as `result_backend`. `options`: as those of
    `celery.contrib.testing.worker.start_worker`: pool ("threads": "solo" acknowledges late what comes from a retry),
    concurrency (1), queues, ... Raises: RuntimeError when one runs in this process; Celery can't have two there.
    """
    from celery.contrib.testing.worker import start_worker
    from celery.worker import state

    if _CELERY_AT_WORK:  # both would turn the one event loop that Celery has in a process: the second is never ready
        raise RuntimeError(
            f"a worker of {_CELERY_AT_WORK[0]} runs, and Celery can't have two in a process: let one take all queues "
            "(queues=[...]), end that one first, or run the other as a command (amqp_worker)"
        )
    options = {"pool": "threads", "perform_ping_check": False, "shutdown_timeout": 30.0, **options}
    with celery_app(app, broker, **(conf or {})):
        _CELERY_AT_WORK.append(f"{app.main!r}")
        try:
            with _awake(app), start_worker(app, **options) as worker:
                try:
                    yield worker
                finally:
                    state.should_terminate = 0
        finally:
            _CELERY_AT_WORK.clear()


@contextmanager
def _awake(app: Any) -> Iterator[None]:
    """Have the loop of the application's worker turn all the time. Without anything to read it sleeps for up to 10 s,
    also when it has the room for another message still to ask for (a task with an ETA came, and took the only place),
    or is to end."""
    from celery import bootsteps

    class Awake(bootsteps.StartStopStep):  # type: ignore[misc]
        requires = {"celery.worker.consumer.connection:Connection"}

        def start(self, parent: Any) -> None:  # with each connection, whose end clears the timers
            parent.timer.call_repeatedly(TURN_S, lambda: None)

    app.steps["consumer"].add(Awake)
    try:
        yield
    finally:
        app.steps["consumer"].discard(Awake)


@contextmanager
def dramatiq_worker(dramatiq_broker: Any, broker: RunningBroker, **options: Any) -> Iterator[Any]:
    """A worker for a dramatiq RabbitmqBroker; `options`: as those of `dramatiq.Worker`: worker_threads, queues, ..."""
    import dramatiq
    import pika

    before = dramatiq_broker.parameters
    _forget_dramatiq(dramatiq_broker)
    dramatiq_broker.parameters = pika.URLParameters(broker.url)
    worker = dramatiq.Worker(dramatiq_broker, **{"worker_timeout": 100, **options})
    worker.start()
    try:
        yield worker
    finally:
        worker.stop()
        _forget_dramatiq(dramatiq_broker)
        dramatiq_broker.parameters = before


def _forget_dramatiq(dramatiq_broker: Any) -> None:
    """Connections that it has made, and what it thinks to have declared."""
    del dramatiq_broker.connection
    dramatiq_broker.close()
    dramatiq_broker.queues_pending.update(dramatiq_broker.queues)


@nearest_keywords
@asynccontextmanager
async def faststream_broker(faststream: Any, broker: RunningBroker) -> AsyncIterator[Any]:
    """A FastStream RabbitBroker that is started on this broker, with its subscribers; stopped after the block."""
    kwargs = faststream._connection_kwargs
    before = kwargs.get("url")
    kwargs["url"] = broker.url
    try:
        await faststream.start()
        yield faststream
    finally:
        await faststream.stop()
        kwargs["url"] = before


@asynccontextmanager
async def taskiq_worker(taskiq_broker: Any, broker: RunningBroker, **options: Any) -> AsyncIterator[Any]:
    """A receiver for a taskiq AioPikaBroker; `options`: as those of `taskiq.api.run_receiver_task`."""
    from taskiq.api import run_receiver_task

    before, was_worker = taskiq_broker.url, taskiq_broker.is_worker_process
    taskiq_broker.url, taskiq_broker.is_worker_process = broker.url, True
    await taskiq_broker.startup()
    receiver = asyncio.create_task(run_receiver_task(taskiq_broker, **options))
    try:
        yield taskiq_broker
    finally:
        receiver.cancel()
        await asyncio.gather(receiver, return_exceptions=True)
        await taskiq_broker.shutdown()
        taskiq_broker.url, taskiq_broker.is_worker_process = before, was_worker
