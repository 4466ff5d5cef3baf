"""What passes at one node passes through a node of a cluster that follows: scenarios, workers' and tools' checks."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from etcd_servers import ETCD, WHY_NOT

from leveret.interop.brokers.broker import Broker
from leveret.interop.brokers.fresh import FRESH
from leveret.interop.brokers.peers import find_rabbitmq
from leveret.interop.running.run import FAILED, NOT_RUN, PASSED
from leveret.interop.running.scenario import read_features
from leveret.interop.running.suite import Driven, Suite
from leveret.interop.running.toolchains import CLIENTS, NotHere

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(ETCD is None, reason=WHY_NOT)]

ROOT = Path(__file__).parents[2]
NOT_RUN_HERE = {"a file system to fill can be mounted by root alone"}


@pytest.fixture(scope="module")
def follower() -> Iterator[Broker]:
    """Of a cluster of three nodes."""
    with FRESH["leveret-follower"]() as broker:
        yield broker


@pytest.mark.parametrize("client", [name for name in CLIENTS if name != "lapin"])  # which is built for half an hour
def test_every_scenario_passes(follower: Broker, tmp_path: Path, client: str) -> None:
    """Each client's, but for what it has no call for."""
    try:
        driven = Driven(CLIENTS[client].prepare(tmp_path, print), tmp_path / "log")
    except NotHere as error:
        pytest.skip(str(error))
    try:
        chosen = [one for feature in read_features() for one in feature.scenarios]
        results = Suite(follower, {client: driven}, seconds=60).run(chosen)
    finally:
        driven.end()
    assert {(r.scenario, r.reason) for r in results if r.verdict == FAILED} == set()
    assert {r.reason for r in results if r.verdict == NOT_RUN} <= NOT_RUN_HERE
    assert sum(r.verdict == PASSED for r in results) > 60


@pytest.mark.skipif(find_rabbitmq() is None, reason="no rabbitmq-server on this machine (make peers)")
def test_generated_programs_end_alike(tmp_path: Path) -> None:
    """At a follower and at RabbitMQ."""
    done = run("differential", "--follower", "--operations", "2000", "--seed", "33", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not (ROOT / ".peers" / "workers" / "celery").exists(), reason="`make workers` has not made it here")
def test_workers_of_celery(tmp_path: Path) -> None:
    """Also when the node that leads is killed and another one takes over."""
    arguments = ("--only", "celery", "--broker", "leveret", "--follower", "--out", str(tmp_path / "out.json"))
    done = run("workers", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr


def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of interop."""
    command = [sys.executable, "-m", f"leveret.interop.{module}", *arguments]
    return subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=1800)
