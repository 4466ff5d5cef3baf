"""The same seed gives the same world: octets, events and faults, in any process, by any version of Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from simulator.plan import make_plan
from simulator.world import World

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("simulate.py")
SEED, SECONDS = 4711, 3.0
#: Where pythons are that are not on the PATH.
VERSIONS = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"


def hash_of(python: str, hash_seed: int) -> str:
    """Of the world in a process of its own. What trio and pamqp need is Python alone: any version can take ours."""
    paths = [ROOT / "src", Path(trio.__file__).parents[1]]
    env = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": os.pathsep.join(map(str, paths))}
    options = ["--seed", str(SEED), "--worlds", "1", "--virtual-seconds", str(SECONDS)]
    run = subprocess.run([python, str(PROGRAM), *options], env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout.split()[-1]


def other_pythons() -> list[str]:
    """Of versions that can run the broker, and are not this one."""
    found = [*VERSIONS.glob("*/bin/python3"), *(shutil.which(f"python3.{minor}") for minor in range(11, 16))]
    versions: dict[str, str] = {}
    for python in filter(None, found):
        asked = [str(python), "-c", "import sys; print('{}.{}'.format(*sys.version_info))"]
        version = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
        if version and (3, 11) <= tuple(map(int, version.split("."))) != sys.version_info[:2]:
            versions[version] = str(python)
    return [versions[version] for version in sorted(versions)]


@pytest.fixture(scope="module")
def here() -> str:
    """The hash of the world in this process."""
    report = World(make_plan(SEED, SECONDS)).run()
    assert report.fault is None
    assert report.operations > 1000
    return report.hash


def test_a_process_of_another_hash_seed_has_the_same_world(here: str) -> None:
    assert hash_of(sys.executable, 1) == here


def test_another_version_of_python_has_the_same_world(here: str) -> None:
    pythons = other_pythons()
    if not pythons:
        pytest.skip("no other version of Python is installed (3.11 or newer)")
    assert hash_of(pythons[-1], 3) == here


def test_another_seed_is_another_world(here: str) -> None:
    assert World(make_plan(SEED + 1, SECONDS)).run().hash != here
