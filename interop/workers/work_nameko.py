"""nameko as its pages have it; only the broker's URL is ours."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from nameko.events import BROADCAST, EventDispatcher, event_handler
from nameko.rpc import RpcProxy, rpc
from trial import Trial, ledger, note, wait_for

VERSIONS = ("nameko", "kombu", "amqp", "eventlet")
WORKER = [str(Path(sys.executable).with_name("nameko")), "run", "work_nameko", "--broker", os.environ["BROKER_URL"]]
READY = "Connected to amqp://"


class GreetingService:
    name = "greeting_service"
    dispatch = EventDispatcher()
    other = RpcProxy("listener_service")

    @rpc
    def hello(self, name: str) -> str:
        return f"Hello, {name}!"

    @rpc
    def tell(self, text: str) -> None:
        self.dispatch("told", text)

    @rpc
    def ask_other(self, number: int) -> int:
        return int(self.other.double(number))

    @rpc
    def fail(self) -> None:
        raise ValueError("no")


class ListenerService:
    name = "listener_service"

    @rpc
    def double(self, number: int) -> int:
        return 2 * number

    @event_handler("greeting_service", "told")
    def on_told(self, text: str) -> None:
        note("pool", text=text)

    @event_handler("greeting_service", "told", handler_type=BROADCAST, reliable_delivery=False)
    def on_told_everywhere(self, text: str) -> None:
        note("broadcast", text=text)

    @event_handler("greeting_service", "slow")
    def on_slow(self, text: str) -> None:
        first = not ledger("slow.began")
        note("slow.began")
        if first:
            time.sleep(300)
        note("slow.ended")


def _config() -> dict[str, Any]:
    return {"AMQP_URI": os.environ["BROKER_URL"]}


def _is_there(cluster: Any, service: str) -> bool:
    """Whether a service has bound its queue: it says that it is connected before that."""
    from nameko.exceptions import UnknownService

    try:
        cluster[service].nothing()
    except UnknownService:
        return False
    except Exception:
        pass  # there is no such method, says the service
    return True


def remote_calls(trial: Trial) -> dict[str, Any]:
    """RPC from outside and between services, an error that comes back, 100 calls"""
    from nameko.standalone.rpc import ClusterRpcProxy

    with trial.worker(), ClusterRpcProxy(_config(), timeout=60) as cluster:
        for service in ("greeting_service", "listener_service"):
            wait_for(lambda name=service: _is_there(cluster, name), service)
        hello = cluster.greeting_service.hello("hare")
        other = cluster.greeting_service.ask_other(21)
        try:
            cluster.greeting_service.fail()
            error = "none"
        except Exception as caught:
            error = f"{type(caught).__name__}: {caught}"
        replies = [cluster.listener_service.double.call_async(number) for number in range(100)]
        doubled = [reply.result() for reply in replies]
        try:
            cluster.nobody.at_all()
            unknown = "answered"
        except Exception as caught:
            unknown = type(caught).__name__
        return {
            "hello": hello,
            "other": other,
            "error": error,
            "doubled": doubled == [2 * number for number in range(100)],
            "unknown": unknown,
        }


def events(trial: Trial) -> dict[str, Any]:
    """Two workers: an event once for the service pool, and once for each by broadcast"""
    from nameko.standalone.rpc import ClusterRpcProxy

    with trial.worker(), trial.worker(), ClusterRpcProxy(_config(), timeout=60) as cluster:
        for number in range(10):
            cluster.greeting_service.tell(f"{number}")
        wait_for(lambda: len(ledger("pool")) >= 10 and len(ledger("broadcast")) >= 20, "ten events")
        return {
            "pool": sorted(entry["text"] for entry in ledger("pool")),
            "broadcast": len(ledger("broadcast")),
            "listeners": len({entry["pid"] for entry in ledger("broadcast")}),
        }


def worker_killed(trial: Trial) -> dict[str, Any]:
    """The worker killed (SIGKILL) in the middle of an event: another one handles it again"""
    from nameko.standalone.events import event_dispatcher

    worker = trial.start_worker()
    worker.wait_for_log(READY)
    event_dispatcher(_config())("greeting_service", "slow", "x")
    wait_for(lambda: ledger("slow.began"), "it to begin")
    worker.kill()
    with trial.worker():
        wait_for(lambda: ledger("slow.ended"), "it to end")
        return {"began": len(ledger("slow.began")), "ended": len(ledger("slow.ended"))}


SCENARIOS = (remote_calls, events, worker_killed)
