"""The images of deploy/ built and run, and the Testcontainers recipes of docs/test-server.md: `make image-test`.

    python tests/testing/containers.py [--only image,python,node,go,java] [--root DIR]

Needs podman, and `make dist` before. The base image is taken as it is here, or made of Debian by debootstrap (as root),
since a registry of images may be out of reach. Says the reason and ends with 0 where there is no engine.
"""

import argparse
import base64
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pika

ROOT = Path(__file__).resolve().parents[2]
BROKER, TEST_SERVER = ROOT / "deploy" / "Containerfile", ROOT / "deploy" / "test-server.Containerfile"
PAGE = ROOT / "docs" / "test-server.md"
SECONDS_MAX = 120.0
CERTIFICATES, PIP = Path("/etc/ssl/certs/ca-certificates.crt"), Path("/etc/pip.conf")
#: The configuration that is mounted: guest may log in from inside the container alone.
CONFIGURATION = (
    (ROOT / "deploy" / "container.toml").read_text()
    + """
[[user]]
name = "shop"
password-hash = "{hash}"

[[user.permission]]
vhost = "/"
configure = ".*"
write = ".*"
read = ".*"
"""
)
#: Nothing is allowed that a broker does not need.
BARE = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "all", "--security-opt", "no-new-privileges")


class NotHere(Exception):
    """What this machine lacks."""


class Engine:
    """podman, with images and containers of its own under `root`."""

    def __init__(self, root: Path) -> None:
        program = shutil.which("podman")
        if program is None:
            raise NotHere("no podman on this machine")
        self.root = root
        places = ["--root", str(root / "images"), "--runroot", str(root / "run")]
        self.command = [program, *places, "--storage-driver", os.environ.get("STORAGE_DRIVER", "overlay")]
        found = subprocess.run([*self.command, "info"], capture_output=True, text=True)
        if found.returncode:
            raise NotHere(f"podman does not work here: {found.stderr.strip()}")

    def __call__(self, *words: str, stdin: int | None = None) -> str:
        """Its output. Raises: subprocess.CalledProcessError."""
        done = subprocess.run([*self.command, *words], stdin=stdin, capture_output=True, text=True, cwd=ROOT)
        if done.returncode:
            print(done.stdout[-2000:], done.stderr[-2000:], file=sys.stderr)
        done.check_returncode()
        return done.stdout.strip()

    def has(self, image: str) -> bool:
        return subprocess.run([*self.command, "image", "exists", image]).returncode == 0

    @contextmanager
    def service(self) -> Iterator[str]:
        """Docker's API on a socket; yields its URL."""
        url = f"unix://{self.root / 'podman.sock'}"
        process = subprocess.Popen([*self.command, "system", "service", "--time=0", url])
        try:
            asked = [self.command[0], "--remote", "--url", url, "version"]
            until(lambda: subprocess.run(asked, capture_output=True).returncode == 0)
            yield url
        finally:
            process.terminate()
            process.wait()


def until(fact: Callable[[], bool]) -> None:
    """Asks by a command of podman's, which takes its time. Raises: TimeoutError."""
    deadline = time.monotonic() + SECONDS_MAX
    while not fact():
        if time.monotonic() > deadline:
            raise TimeoutError(fact)


# -- images ------------------------------------------------------------------------------------------------------------


def make_base(engine: Engine, folder: Path) -> str:
    """The image that the recipes are built on, or something like it: Debian with its own Python. Returns its name."""
    (name,) = {line.split()[1] for file in (BROKER, TEST_SERVER) for line in file.open() if line.startswith("FROM")}
    if (
        engine.has(name)
        or not subprocess.run([*engine.command, "pull", "--quiet", name], capture_output=True).returncode
    ):
        return name
    if shutil.which("debootstrap") is None or os.getuid() != 0:
        raise NotHere(f"no {name}: it cannot be pulled, and debootstrap needs root")
    print(f"{name} cannot be pulled: Debian 12 and its Python in its place", flush=True)
    tree = folder / "debian"
    include = "--include=python3,python3-pip,ca-certificates"
    subprocess.run(
        ["debootstrap", "--variant=minbase", include, "bookworm", tree], check=True, stdout=subprocess.DEVNULL
    )
    (tree / "usr/bin/python").symlink_to("python3")
    (tree / "usr/lib/python3.11/EXTERNALLY-MANAGED").unlink()
    for file in (CERTIFICATES, PIP):  # what this machine needs to reach its registry of packages
        if file.exists():
            shutil.copy(file, tree / file.relative_to("/"))
    shutil.rmtree(tree / "var/lib/apt/lists")
    shutil.rmtree(tree / "var/cache/apt")
    with subprocess.Popen(["tar", "-C", tree, "-c", "."], stdout=subprocess.PIPE) as tar:
        assert tar.stdout is not None
        engine("import", "-", name, stdin=tar.stdout.fileno())
    shutil.rmtree(tree)
    return name


def build(engine: Engine, file: Path, name: str, base: str) -> None:
    since = time.monotonic()
    engine("build", "--format", "docker", "-f", str(file), "-t", name, ".")
    took = time.monotonic() - since
    size, below = (int(engine("image", "inspect", one, "--format", "{{.Size}}")) for one in (name, base))
    print(f"{name}: built in {took:.0f} s, {size / 1e6:.0f} MB, of which {base} {below / 1e6:.0f} MB", flush=True)


# -- the broker's image ------------------------------------------------------------------------------------------------


def try_image(engine: Engine, folder: Path) -> None:
    """Messages outlive a stop and a new container, which may do nothing that a broker does not need."""
    file, volume = folder / "leveret.toml", f"leveret-{os.getpid()}"
    salt = b"salt"  # a password itself would have to be in a file that its owner alone can read
    hashed = base64.b64encode(salt + hashlib.sha256(salt + b"secret").digest()).decode()
    file.write_text(CONFIGURATION.replace("{hash}", hashed))
    file.chmod(0o644)
    engine("volume", "create", volume)
    try:
        for number, options in enumerate(((), BARE)):
            name = f"{volume}-{number}"
            mounts = ("-v", f"{volume}:/var/lib/leveret", "-v", f"{file}:/etc/leveret/leveret.toml:ro")
            since = time.monotonic()
            engine("run", "--detach", "--name", name, "-p", "127.0.0.1::5672", *mounts, *options, "leveret")
            try:
                until(functools.partial(_is_ready, engine, name))
                took = time.monotonic() - since
                _look_at(engine, name, is_new=number == 0)
                since = time.monotonic()
                engine("stop", "--time", "60", name)
                state = json.loads(engine("inspect", name))[0]["State"]
                assert state["ExitCode"] == 0, state
                print(f"container {number + 1}: ready in {took:.1f} s, stopped in {time.monotonic() - since:.1f} s")
            finally:
                engine("rm", "--force", name)
    finally:
        engine("volume", "rm", "--force", volume)


def _is_ready(engine: Engine, name: str) -> bool:
    if engine("inspect", name, "--format", "{{.State.Running}}") != "true":
        subprocess.run([*engine.command, "logs", name], stdout=sys.stderr)
        raise AssertionError(f"{name} has ended")
    return "leveret ready amqp://" in engine("logs", name)


def _look_at(engine: Engine, name: str, *, is_new: bool) -> None:
    port = engine("port", name, "5672").rpartition(":")[2]
    with pika.BlockingConnection(pika.URLParameters(f"amqp://shop:secret@127.0.0.1:{port}/")) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        if is_new:
            channel.queue_declare("orders", durable=True)
            for number in range(20):
                channel.basic_publish("", "orders", b"%d" % number, pika.BasicProperties(delivery_mode=2))
        else:
            bodies = [channel.basic_get("orders", auto_ack=True)[2] for _ in range(20)]
            assert bodies == [b"%d" % number for number in range(20)], bodies
    subprocess.run([*engine.command, "healthcheck", "run", name], check=True)
    assert engine("exec", name, "python", "-c", "import os; print(os.getuid(), os.getgid())").split()[0] == "5672"
    assert engine("exec", name, "cat", "/proc/1/cmdline").split("\0")[1].endswith("leveret")


# -- Testcontainers ----------------------------------------------------------------------------------------------------


def recipe(language: str) -> str:
    """Its block on the page."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE.read_text().partition("## In a container")[2], re.DOTALL)
    assert found is not None, language
    return found[1]


@dataclass(frozen=True)
class Language:
    """How a recipe becomes a program, and which commands run it. Each prints `amqp PORT control PORT` and waits."""

    program: str
    needs: str
    fence: str
    before: str
    after: str
    commands: tuple[tuple[str, ...], ...]
    files: tuple[tuple[str, str], ...] = ()


POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>shop</groupId><artifactId>shop</artifactId><version>1</version>
<properties><maven.compiler.source>17</maven.compiler.source><maven.compiler.target>17</maven.compiler.target></properties>
<dependencies><dependency><groupId>org.testcontainers</groupId><artifactId>testcontainers</artifactId>
<version>1.21.3</version></dependency><dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId>
<version>2.0.17</version></dependency></dependencies></project>
"""
GO_HEAD = """\
package main

import (
	"context"
	"fmt"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

func main() {
	ctx := context.Background()
"""
GO_TAIL = """\
	if err != nil { panic(err) }
	defer broker.Terminate(ctx)
	amqp, _ := broker.MappedPort(ctx, "5672/tcp")
	control, _ := broker.MappedPort(ctx, "15675/tcp")
	fmt.Println("amqp", amqp.Port(), "control", control.Port())
	fmt.Scanln()
}
"""
JAVA_HEAD = """\
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.wait.strategy.Wait;

public class Shop {
    public static void main(String[] arguments) throws Exception {
"""
JAVA_TAIL = """
        broker.start();
        System.out.println("amqp " + broker.getMappedPort(5672) + " control " + broker.getMappedPort(15675));
        System.in.read();
        broker.stop();
    }
}
"""
NODE_TAIL = """
console.log("amqp", broker.getMappedPort(5672), "control", broker.getMappedPort(15675));
process.stdin.once("data", async () => { await broker.stop(); process.exit(0); });
"""
PYTHON_TAIL = """
print("amqp", broker.get_exposed_port(5672), "control", broker.get_exposed_port(15675), flush=True)
input()
broker.stop()
"""
LANGUAGES = {
    "python": Language(
        "shop.py",
        "python3",
        "python",
        "",
        PYTHON_TAIL,
        (
            ("sh", "-c", "python3 -m venv venv && venv/bin/pip install -q testcontainers"),
            ("venv/bin/python", "shop.py"),
        ),
    ),
    "node": Language(  # version 11 and later need Node 22
        "shop.mjs",
        "npm",
        "js",
        "",
        NODE_TAIL,
        (("npm", "install", "--silent", "--no-audit", "testcontainers@10"), ("node", "shop.mjs")),
    ),
    "go": Language(
        "main.go",
        "go",
        "go",
        GO_HEAD,
        GO_TAIL,
        (
            ("go", "mod", "init", "shop"),
            ("go", "get", "github.com/testcontainers/testcontainers-go"),
            ("go", "mod", "tidy"),
            ("go", "build", "-o", "shop", "."),
            ("./shop",),
        ),
    ),
    "java": Language(
        "src/main/java/Shop.java",
        "mvn",
        "java",
        JAVA_HEAD,
        JAVA_TAIL,
        (
            ("mvn", "--quiet", "compile", "dependency:build-classpath", "-Dmdep.outputFile=classpath"),
            ("sh", "-c", "exec java -cp target/classes:$(cat classpath) Shop"),
        ),
        (("pom.xml", POM),),
    ),
}


def try_recipe(engine: Engine, folder: Path, name: str) -> None:
    """The block of the page as it stands, its container asked over both ports."""
    language = LANGUAGES[name]
    if shutil.which(language.needs) is None:
        raise NotHere(f"no {language.needs} on this machine")
    home = folder / name
    program = home / language.program
    program.parent.mkdir(parents=True)
    program.write_text(language.before + recipe(language.fence) + language.after)
    for file, text in language.files:
        (home / file).write_text(text)
    with engine.service() as url:
        # Ryuk, which removes what a killed test leaves, is an image of its own that would have to be pulled.
        # podman does not tell the Python module which network a container is in: the ports are on loopback.
        told = {"TESTCONTAINERS_RYUK_DISABLED": "true", "TESTCONTAINERS_CONNECTION_MODE": "docker_host"}
        environment = {**os.environ, "DOCKER_HOST": url, **told}
        *prepare, run = language.commands
        for command in prepare:
            subprocess.run(command, cwd=home, env=environment, check=True)
        since = time.monotonic()
        process = subprocess.Popen(
            run, cwd=home, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        found = next(
            (re.fullmatch(r"amqp (\d+) control (\d+)\n", line) for line in process.stdout if "amqp " in line), None
        )
        assert found is not None, f"{name}: no broker; exit code {process.wait()}"
        took = time.monotonic() - since
        with pika.BlockingConnection(pika.URLParameters(f"amqp://guest:guest@127.0.0.1:{found[1]}/")) as connection:
            connection.channel().queue_declare("orders")
        control = ("ctl", "--url", f"http://127.0.0.1:{found[2]}", "assert_queue", "name=orders", "ready=0")
        asked = {**os.environ, "LEVERET_TEST_TOKEN": "secret"}
        subprocess.run([sys.executable, "-m", "leveret", *control], env=asked, check=True, stdout=subprocess.DEVNULL)
        process.communicate("\n", timeout=SECONDS_MAX)
        print(f"{name}: from its start to a ready broker in {took:.1f} s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ["image", *LANGUAGES]
    parser.add_argument("--only", default=",".join(names), help="a list of " + ", ".join(names))
    parser.add_argument("--root", type=Path, help="where images are kept from run to run")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if set(wanted) - set(names):
        parser.error(f"--only knows {', '.join(names)}")
    with tempfile.TemporaryDirectory(prefix="leveret-image-", ignore_cleanup_errors=True) as directory:
        folder = Path(directory)
        root = options.root or folder / "engine"
        root.mkdir(parents=True, exist_ok=True)
        try:
            engine = Engine(root)
            base = make_base(engine, folder)
        except NotHere as reason:
            print(f"skipped: {reason}")
            return 0
        try:
            for file, name in ((BROKER, "leveret"), (TEST_SERVER, "leveret-test")):
                build(engine, file, name, base)
            if "image" in wanted:
                try_image(engine, folder)
            for name in wanted:
                if name in LANGUAGES:
                    try:
                        try_recipe(engine, folder, name)
                    except NotHere as reason:
                        print(f"{name}: skipped: {reason}")
        finally:
            if options.root is None:
                engine("rmi", "--all", "--force")
    return 0


if __name__ == "__main__":
    sys.exit(main())
