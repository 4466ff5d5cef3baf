"""As a user has it: the built wheel in a virtual environment of its own, beside clients and plugins that people use.

Needs a package index; skips without one.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from guide import write_guide

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.timeout(400)  # of it the installation may take a while

BESIDE = (
    *("pika", "aio-pika", "kombu", "Django"),
    *("pytest", "pytest-asyncio", "pytest-trio", "pytest-xdist", "pytest-cov"),
)
#: What the wheel asks for: installed with the others, so that an index that is out of reach is no failure of ours.
NEEDED = ("trio", "pamqp>=3.3,<5", "twine>=6,<7")
#: What an application may be pinned to: aiormq 6.8 wants pamqp 3.3.0 and nothing else.
OLDER = ("aiormq==6.8.1", "aio-pika", "pika", "pytest", "pytest-asyncio", "trio")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of what is tracked, as the tree has it now."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, tracked.split("\0")):
        if (ROOT / name).exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, source / name, follow_symlinks=False)
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", folder, source]
    subprocess.run(build, check=True, capture_output=True, timeout=180)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel; nothing of this tree can be imported there."""
    return environment(tmp_path_factory.mktemp("environment"), wheel, *BESIDE, *NEEDED)


@pytest.fixture(scope="module")
def older(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One where pamqp is 3.3.0."""
    return environment(tmp_path_factory.mktemp("older"), wheel, *OLDER)


def environment(folder: Path, wheel: Path, *distributions: str) -> Path:
    """The Python of a new environment with these, and then the wheel, which finds all that it needs there."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True, capture_output=True)
    python = folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    install = [*pip(python), "install", "--quiet", "--retries", "1", "--no-compile"]  # most of it is never imported
    try:
        subprocess.run([*install, *distributions], check=True, capture_output=True, timeout=180)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"needs a package index: {error}")
    subprocess.run([*install, "--no-index", wheel], check=True, capture_output=True, timeout=180)
    return python


def pip(python: Path) -> list[str | Path]:
    """The command line of our own pip for another environment: one there takes seconds to install."""
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]


def pip_check(python: Path) -> str:
    """What pip has against the distributions of an environment."""
    done = subprocess.run([*pip(python), "check"], capture_output=True, text=True, timeout=180)
    return done.stdout + done.stderr


def run(python: Path, folder: Path, *arguments: str) -> str:
    """The environment's Python in a folder, with nothing of ours in its variables. Returns what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    done = subprocess.run(
        [python, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_tutorials(python: Path, tmp_path: Path) -> None:
    """Six with pika, six with aio-pika: with two workers, trio's and coverage's plugins beside."""
    for page in Path(__file__).parent.glob("test_tutorials_*.py"):
        (tmp_path / page.name).write_text(page.read_text())
    output = run(python, tmp_path, "-m", "pytest", "-n", "2", "--cov=.")
    for plugin in ("asyncio", "cov", "leveret", "trio", "xdist"):
        assert re.search(rf"plugins: .*\b{plugin}-", output), output
    assert "16 passed" in output and re.search(r"TOTAL .* 100%", output), output


def test_the_guide(python: Path, tmp_path: Path) -> None:
    """docs/testing-your-application.md, word for word."""
    write_guide(tmp_path)
    assert re.search(r" \d+ passed", run(python, tmp_path, "-m", "pytest"))
    assert "ready: 1" in run(python, tmp_path, "try_it.py")
    assert "OK" in run(python, tmp_path, "-m", "unittest", "test_with_unittest")


ORDERS = """
from django.conf import settings
from django.test import SimpleTestCase, override_settings
from kombu import Connection
from leveret.testing import BrokerTestMixin
import engine, settings as at_the_top

class Mails(BrokerTestMixin, SimpleTestCase):
    amqp_fail_on_leak = True

    def test_mail(self):
        with override_settings(BROKER_URL=self.amqp_url), Connection(settings.BROKER_URL) as connection:
            queue = connection.SimpleQueue("mails")
            queue.put({"to": "hare"})
            self.amqp_broker.assert_published("mails", body={"to": "hare"})
            queue.get(timeout=60).ack()
            queue.close()
            connection.channel().queue_delete("mails")
        self.assertEqual((at_the_top.SECRET_KEY, engine.WHOSE), (settings.SECRET_KEY, "theirs"))
        self.amqp_broker.settled()
"""


def test_a_django_project(python: Path, tmp_path: Path) -> None:
    """As startproject makes it, but settings.py and engine/ are at the top: names that rooms of this tree have."""
    run(python, tmp_path, "-m", "django", "startproject", "shop", ".")
    (tmp_path / "shop" / "settings.py").rename(tmp_path / "settings.py")
    manage = tmp_path / "manage.py"
    manage.write_text(manage.read_text().replace("shop.settings", "settings"))
    for package, text in (("engine", "WHOSE = 'theirs'\n"), ("orders", "")):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(text)
    (tmp_path / "orders" / "tests.py").write_text(ORDERS)
    output = run(python, tmp_path, "manage.py", "test", "orders")
    assert "Ran 1 test" in output and "OK" in output


def test_nothing_but_leveret_is_added(python: Path, tmp_path: Path) -> None:
    """Our name at the top, one by which Spark finds its data source, and two dependencies: trio and pamqp."""
    script = (
        "import importlib.metadata as metadata\n"
        "here = metadata.distribution('leveret')\n"
        "print(sorted({file.parts[0].partition('-')[0] for file in here.files if file.parts[0] != '..'}))\n"
        "print(sorted(one.replace('<', '>').split('>')[0] for one in here.requires if 'extra' not in one))\n"
    )
    assert run(python, tmp_path, "-c", script).splitlines() == ["['leveret', 'pyspark_leveret']", "['pamqp', 'trio']"]


def test_the_wheel_is_fit_for_an_index(python: Path, wheel: Path, tmp_path: Path) -> None:
    """Its metadata and its page."""
    output = run(python, tmp_path, "-m", "twine", "check", "--strict", str(wheel))
    assert "PASSED" in output


def test_beside_the_newest_aio_pika(python: Path, tmp_path: Path) -> None:
    """Which wants an aiormq and a pamqp of its own; the index gave the newest of each."""
    assert "No broken requirements found" in pip_check(python)
    script = "import importlib.metadata as m; print(m.version('aiormq'), m.version('pamqp'))"
    aiormq, pamqp = run(python, tmp_path, "-c", script).split()
    assert int(aiormq.split(".")[0]) >= 7 and int(pamqp.split(".")[0]) >= 4


def test_the_version_tells_what_is_installed(python: Path, tmp_path: Path) -> None:
    """The same code as in this tree, by its digest; what it runs on."""
    script = "import leveret.__main__ as m; m.main(['--version'])"
    lines = run(python, tmp_path, "-c", script).splitlines()
    ours = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert re.fullmatch(r"leveret \d+\.\d+\.\d+", lines[0])
    assert lines[:2] == ours[:2] and re.fullmatch(r"code [0-9a-f]{12} \(\d{3,} files\)", lines[1])
    assert lines[2].startswith("CPython 3.") and re.search(r"trio \d.*, pamqp 4\.\d", lines[4])


#: Octets on which pamqp 3.3 hangs: an array that claims more than it has, and property flags that never end.
HOSTILE = """
import socket, struct, sys
from leveret.testing import start_broker

def frame(kind, channel, payload):
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\\xce"

def method(channel, index, arguments):
    return frame(1, channel, struct.pack(">I", index) + arguments)

def start_ok(table):
    return method(0, 10 << 16 | 11, struct.pack(">I", len(table)) + table + b"\\x05PLAIN" + struct.pack(">I", 12)
                  + b"\\0guest\\0guest" + b"\\x05en_US")

login = start_ok(b"") + method(0, 10 << 16 | 31, struct.pack(">HIH", 10, 131072, 0))
login += method(0, 10 << 16 | 40, b"\\x01/\\0\\0") + method(1, 20 << 16 | 10, b"\\0")
publish = method(1, 60 << 16 | 40, b"\\0\\0\\0\\x01q\\0")
flags = struct.pack(">HHQ", 60, 0, 1) + b"\\0\\x01" * 1000
close = method(0, 10 << 16 | 50, struct.pack(">HBHH", 200, 0, 0, 0))
array = b"\\x01aA" + struct.pack(">I", 1000) + b"tt"
with start_broker() as broker:
    for octets in (start_ok(array), login + publish + frame(2, 1, flags) + frame(3, 1, b"x") + close):
        with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as sock:
            sock.sendall(b"AMQP\\0\\0\\x09\\x01" + octets)
            sock.recv(65536)
            broker.queues()  # when all that was sent is read: a loop that hangs does not answer
    print("alive", broker.queues())
"""


@pytest.mark.long
def test_beside_pamqp_3(older: Path, tmp_path: Path) -> None:
    """aiormq 6.8.1 pins it; pip has nothing against it, clients work, and what hangs its decoder does not hang us."""
    assert "No broken requirements found" in pip_check(older)
    script = "import importlib.metadata as m; print(m.version('pamqp'), m.version('aiormq'))"
    assert run(older, tmp_path, "-c", script).strip() == "3.3.0 6.8.1"
    page = next(Path(__file__).parent.glob("test_tutorials_aio_pika.py"))
    (tmp_path / page.name).write_text(page.read_text())
    assert re.search(r" \d+ passed", run(older, tmp_path, "-m", "pytest"))
    assert "alive ()" in run(older, tmp_path, "-c", HOSTILE).splitlines()
