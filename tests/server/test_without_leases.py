"""The package of leased queues can be deleted: the rest imports, serves and passes its tests without it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: The package: its engine, its settings and files, its renderer, its resources and page, its commands.
PACKAGE = (
    "engine/leases",
    "settings/leases",
    "amqp_frontend/peer/leases.py",
    "console/resources/leases.py",
    "console/page/js/pages/leases.js",
    "src/leveret/operator/leases.py",
)
#: Tests of the rest, of each room; the last file starts `leveret serve`.
TESTS = (
    "tests/engine/test_new_kind.py",
    "tests/engine/test_moves.py",
    "tests/conformance/test_dead_letters.py",
    "tests/conformance/test_ring.py",
    "tests/spec/test_routing.py",
    "tests/spec/test_streams.py",
    "tests/spec/test_transactions.py",
    "tests/journal/test_logged_topics.py::test_a_run_of_many_keys_is_logged",
    "tests/console/test_queues.py",
    "tests/settings/test_queue_arguments.py",
    "tests/settings/test_toml.py",
    "tests/settings/test_xml.py",
    "tests/server/test_unix_sockets.py",
)
#: What a client is told who declares a leased queue.
DECLARES = """
import leveret
from leveret.engine import Broker, Field, ManualClock, User
from leveret.engine.errors import InvalidArgument

print(leveret.__file__)
broker = Broker(ManualClock())
client = broker.connections.open("/", User("guest"), name="test", flush=lambda: None)
try:
    client.vhost.queues.declare("q", client=client, durable=True, arguments={"x-queue-type": Field("S", b"amps")})
except InvalidArgument as error:
    print(error.reason.word)
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree as git has it, without the package."""
    where = tmp_path_factory.mktemp("without") / "leveret"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        is_of_package = any(name == one or name.startswith(f"{one}/") for one in PACKAGE)
        if not is_of_package and (ROOT / name).exists():
            (where / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, where / name, follow_symlinks=False)
    return where


def python(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the copy, on the copy's modules."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environ |= {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": ""}  # each process would compile all
    return subprocess.run([sys.executable, *arguments], cwd=copy, env=environ, capture_output=True, text=True)


def test_the_package_has_files() -> None:
    """Each part of the package is where the list says."""
    assert [one for one in PACKAGE if not (ROOT / one).exists()] == []


def test_the_rest_passes_its_tests(copy: Path) -> None:
    """No other module needs the package: not at import, not to serve, not to restore."""
    ran = python(copy, "-m", "pytest", "-q", "-x", "-p", "no:xdist", "-p", "no:cacheprovider", *TESTS)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-1000:]


def test_the_type_is_unknown(copy: Path) -> None:
    """A leased queue cannot be declared, as one of any other unknown type."""
    ran = python(copy, "-c", DECLARES)
    where, said = ran.stdout.splitlines()
    assert where.startswith(str(copy)) and said == "unsupported queue type 'amps'", ran.stderr


def test_a_module_that_needs_the_package_is_found(copy: Path) -> None:
    """The tests above would see it."""
    module = copy / "engine/broker.py"
    before = module.read_text()
    module.write_text(f"{before}\nfrom .leases import kind\n")
    try:
        ran = python(copy, "-c", DECLARES)
    finally:
        module.write_text(before)
    assert ran.returncode == 1 and "leveret.engine.leases" in ran.stderr
