"""`leveret.testing.frameworks` with the frameworks themselves, where they are installed: `make frameworks`."""

from collections.abc import Iterator
from typing import Any

import pytest

from leveret.testing import RunningBroker
from leveret.testing.frameworks import celery_app, celery_worker, dramatiq_worker, faststream_broker, taskiq_worker

#: Where the applications think that their broker is: nothing listens there.
NOWHERE = "amqp://guest:guest@127.0.0.1:1//"


@pytest.fixture(scope="module")
def celery() -> Any:
    """An application, with what its tasks did."""
    app = pytest.importorskip("celery").Celery("shop", broker=NOWHERE)
    app.did = []
    app.conf.task_acks_late = True  # acknowledged when they are done

    @app.task(name="add")
    def add(x: int, y: int) -> int:
        app.did.append(x)
        return x + y

    @app.task(name="flaky", bind=True, max_retries=3)
    def flaky(self: Any) -> None:
        app.did.append(("flaky", self.request.retries))
        if self.request.retries < 2:
            raise self.retry(countdown=0.01)

    return app


@pytest.fixture(scope="module")
def celery_at_work(celery: Any, amqp_module_broker: RunningBroker) -> Iterator[None]:
    """A worker for all tests that use it, with results over the broker."""
    with celery_worker(celery, amqp_module_broker, conf={"result_backend": "rpc://"}):
        yield


@pytest.mark.parametrize("number", range(3))
def test_celery(celery: Any, celery_at_work: None, amqp_module_broker: RunningBroker, number: int) -> None:
    """Results and retries; the worker serves one test after another."""
    assert celery.tasks["add"].delay(number, 2).get(timeout=60) == number + 2
    celery.did.clear()
    celery.tasks["flaky"].delay()
    amqp_module_broker.settled(60, ignore=["celeryev*"])
    assert celery.did == [("flaky", 0), ("flaky", 1), ("flaky", 2)]


def test_celery_has_one_worker_in_a_process(celery: Any, celery_at_work: None, amqp_broker: RunningBroker) -> None:
    """A second one would never become ready: it is refused, and so are settings that are misspelt."""
    with pytest.raises(RuntimeError, match="a worker of 'shop' runs"), celery_worker(celery, amqp_broker):
        pass
    with (
        pytest.raises(TypeError, match="did you mean 'result_backend'"),
        celery_app(celery, amqp_broker, result_bakend=""),
    ):
        pass


def test_celery_with_confirms_publishes_again(celery: Any, amqp_broker: RunningBroker) -> None:
    """What its page says of a connection that is lost."""
    with celery_app(celery, amqp_broker, broker_transport_options={"confirm_publish": True}):
        with amqp_broker.faults.drop_connection("basic.publish") as fault:
            celery.tasks["add"].delay(1, 1)
        assert len(fault.hits) == 1
        amqp_broker.assert_queue("celery", ready=1)


def test_celery_without_a_worker(celery: Any, amqp_broker: RunningBroker) -> None:
    """What the application publishes stays in its queue; afterwards its URL is what it was."""
    before = celery.conf.broker_url
    with celery_app(celery, amqp_broker):
        celery.tasks["add"].delay(1, 1)
        amqp_broker.assert_queue("celery", ready=lambda bodies: bodies[0][0] == [1, 1])
    assert celery.conf.broker_url == before


@pytest.fixture(scope="module")
def dramatiq() -> Any:
    """A RabbitmqBroker with an actor."""
    pytest.importorskip("dramatiq")
    import dramatiq
    from dramatiq.brokers.rabbitmq import RabbitmqBroker

    broker = RabbitmqBroker(url=NOWHERE)
    broker.did = []

    def act(number: int) -> None:
        broker.did.append(number)
        if broker.did.count(number) < 2:
            raise ValueError("not yet")

    dramatiq.actor(act, broker=broker, max_retries=2, min_backoff=10, max_backoff=20)
    return broker


@pytest.mark.parametrize("number", range(2))
def test_dramatiq(dramatiq: Any, amqp_broker: RunningBroker, number: int) -> None:
    """A retry; in the next virtual host the queues are declared again."""
    with dramatiq_worker(dramatiq, amqp_broker):
        dramatiq.get_actor("act").send(number)
        dramatiq.join("default", timeout=60_000)
        amqp_broker.settled(60)
    assert dramatiq.did[-2:] == [number, number]
    assert len(amqp_broker.published("", "default.DQ")) == 1


@pytest.fixture(scope="module")
def faststream() -> Any:
    """A RabbitBroker with a subscriber that publishes."""
    broker = pytest.importorskip("faststream.rabbit").RabbitBroker(NOWHERE)

    @broker.subscriber("in")
    @broker.publisher("out")
    async def handle(text: str) -> str:
        return text.upper()

    return broker


@pytest.mark.asyncio
@pytest.mark.parametrize("number", range(2))
async def test_faststream(faststream: Any, amqp_broker: RunningBroker, number: int) -> None:
    """Started twice, each time on a new virtual host."""
    async with faststream_broker(faststream, amqp_broker):
        await faststream.publish(f"x{number}", "in")
        await amqp_broker.settled_async(60, ignore=["out"])
        amqp_broker.assert_published("", "out", f"X{number}")


@pytest.fixture(scope="module")
def taskiq() -> Any:
    """An AioPikaBroker with a task."""
    broker = pytest.importorskip("taskiq_aio_pika").AioPikaBroker(NOWHERE)
    broker.did = []

    @broker.task(task_name="note")
    async def note(number: int) -> None:
        broker.did.append(number)

    return broker


@pytest.mark.asyncio
@pytest.mark.parametrize("number", range(2))
async def test_taskiq(taskiq: Any, amqp_broker: RunningBroker, number: int) -> None:
    """A receiver in the test's own loop."""
    async with taskiq_worker(taskiq, amqp_broker):
        await taskiq.find_task("note").kiq(number)
        await amqp_broker.settled_async(60)
    assert taskiq.did[-1] == number
