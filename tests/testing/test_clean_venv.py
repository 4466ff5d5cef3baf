"""As a user has it: the built wheel in a virtual environment of its own, beside clients and plugins that people use.

Needs a package index; skips without one.
"""

import os
import re
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
NEEDED = ("trio", "pamqp>=4.0.1,<5")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel; nothing of this tree can be imported there."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True, capture_output=True)
    python = folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1"]
    try:
        subprocess.run([*install, *BESIDE, *NEEDED], check=True, capture_output=True, timeout=180)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"needs a package index: {error}")
    source = folder / "source"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, tracked.split("\0")):
        if (ROOT / name).is_file() and not (ROOT / name).is_symlink():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", folder, source]
    subprocess.run(build, check=True, capture_output=True, timeout=180)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([*install, "--no-index", wheel], check=True, capture_output=True, timeout=180)
    return python


def run(python: Path, folder: Path, *arguments: str) -> str:
    """The environment's Python in a folder, with nothing of ours in its variables. Returns what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    done = subprocess.run(
        [python, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_tutorials(python: Path, tmp_path: Path) -> None:
    """Six with pika, six with aio-pika: alone, and with four workers, trio's and coverage's plugins beside."""
    for page in Path(__file__).parent.glob("test_tutorials_*.py"):
        (tmp_path / page.name).write_text(page.read_text())
    output = run(python, tmp_path, "-m", "pytest")
    for plugin in ("asyncio", "cov", "leveret", "trio", "xdist"):
        assert re.search(rf"plugins: .*\b{plugin}-", output), output
    assert "16 passed" in output
    output = run(python, tmp_path, "-m", "pytest", "-n", "4", "--cov=.")
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
    """One name at the top, and two dependencies: trio and pamqp."""
    script = (
        "import importlib.metadata as metadata\n"
        "here = metadata.distribution('leveret')\n"
        "print({file.parts[0].partition('-')[0] for file in here.files if file.parts[0] != '..'})\n"
        "print(sorted(one.replace('<', '>').split('>')[0] for one in here.requires if 'extra' not in one))\n"
    )
    assert run(python, tmp_path, "-c", script).splitlines() == ["{'leveret'}", "['pamqp', 'trio']"]
