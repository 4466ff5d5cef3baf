"""Workers of task frameworks on a test broker, whose URL replaces the application's during a `with` block.

A framework is imported when its worker is started; none is a dependency. A worker uses the virtual host of the broker
that it gets, so that a fixture of any scope can hold it:

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

#: Period of the idle loop of a Celery worker, in real seconds.
TURN_S = 0.05
#: The name of the application whose worker `celery_worker` runs now.
_CELERY_AT_WORK: list[str] = []


@contextmanager
def celery_app(app: Any, broker: RunningBroker, **conf: Any) -> Iterator[Any]:
    """A Celery application, without a worker, that publishes to this broker. `conf`: further configuration.

    Raises: TypeError for an unknown name that is similar to one of Celery's.
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
    """Forget the application's connections and result backends."""
    pools: Any = import_module("kombu.pools")
    app._after_fork()  # Celery's own way to drop its pool
    pools.reset()
    backends: tuple[Any, ...] = (app._backend_cache, getattr(app._local, "backend", None))
    for backend in backends:
        with suppress(Exception):  # a backend that consumed nothing has nothing to stop
            backend.result_consumer.stop()
    app._backend_cache = None
    app._local.__dict__.clear()


@contextmanager
def celery_worker(
    app: Any, broker: RunningBroker, *, conf: "dict[str, Any] | None" = None, **options: Any
) -> Iterator[Any]:
    """A worker of a Celery application in a thread, ready when the block begins.

    `conf`: configuration of the application for the block, such as `result_backend`. `options`: those of
    `celery.contrib.testing.worker.start_worker`: pool (default "threads"; "solo" acknowledges retried tasks late),
    concurrency (default 1), queues, ...

    Raises: RuntimeError when a worker already runs in this process; Celery supports only one.
    """
    from celery.contrib.testing.worker import start_worker
    from celery.worker import state

    if _CELERY_AT_WORK:  # a process has one event loop of Celery: a second worker would never be ready
        raise RuntimeError(
            f"a worker of {_CELERY_AT_WORK[0]} runs, and Celery can't have two in a process: let one take all queues "
            "(queues=[...]), end that one first, or run the other as a command (amqp_worker)"
        )
    options = {"pool": "threads", "perform_ping_check": False, "shutdown_timeout": 30.0, **options}
    with celery_app(app, broker, **(conf or {})):
        _CELERY_AT_WORK.append(f"{app.main!r}")
        try:
            with _keep_awake(app), start_worker(app, **options) as worker:
                try:
                    yield worker
                finally:
                    state.should_terminate = 0  # end, with this exit status
        finally:
            _CELERY_AT_WORK.clear()


@contextmanager
def _keep_awake(app: Any) -> Iterator[None]:
    """Keep the loop of the application's worker running. Without input it sleeps for up to 10 s, even if it should
    stop. It should also wake up to fetch the next message while a task with an ETA occupies the only slot.
    """
    from celery import bootsteps

    class Awake(bootsteps.StartStopStep):  # type: ignore[misc]
        requires = {"celery.worker.consumer.connection:Connection"}

        def start(self, parent: Any) -> None:  # with each connection, because the end of a connection clears the timers
            parent.timer.call_repeatedly(TURN_S, lambda: None)

    app.steps["consumer"].add(Awake)
    try:
        yield
    finally:
        app.steps["consumer"].discard(Awake)


@contextmanager
def dramatiq_worker(dramatiq_broker: Any, broker: RunningBroker, **options: Any) -> Iterator[Any]:
    """A worker for a dramatiq RabbitmqBroker. `options`: those of `dramatiq.Worker`: worker_threads, queues, ..."""
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
    """Forget its connections, and its cache of declared queues."""
    del dramatiq_broker.connection
    dramatiq_broker.close()
    dramatiq_broker.queues_pending.update(dramatiq_broker.queues)


@nearest_keywords
@asynccontextmanager
async def faststream_broker(faststream: Any, broker: RunningBroker) -> AsyncIterator[Any]:
    """A FastStream RabbitBroker, started on this broker with its subscribers, and stopped after the block."""
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
    """A taskiq AioPikaBroker whose receiver is at work. `options`: those of `taskiq.api.run_receiver_task`."""
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
