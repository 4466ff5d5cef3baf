"""The programs of docs/clients-cluster.md, built and started as that page says."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..running.toolchains import CLIENTS, SOURCES, NotHere, Toolchain
from ..tools.tool import output_of, python
from ..workers.frameworks import FRAMEWORKS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clients-cluster.md"
_FILE = re.compile(r"^```\w+\n(?:<\?php\n)?(?:#|//) ([\w.]+)\n.*?^```$", re.DOTALL | re.MULTILINE)
CELERY = "celery"


def sources() -> dict[str, str]:
    """The files of the page: name -> text."""
    return {match[1]: match[0].partition("\n")[2][:-3] for match in _FILE.finditer(PAGE.read_text())}


@dataclass(frozen=True, slots=True)
class Program:
    """A program. `file`: its name on the page. `client`: whose toolchain builds it. `place`: the path of its file.

    `kept`: files from the folder of that client's driver.
    """

    client: str
    file: str
    kept: tuple[str, ...] = ()
    place: str = ""
    command: tuple[str, ...] = ("{python}", "{file}")

    def prepare(self, work: Path, tell: Callable[[str], object]) -> list[str]:
        """Write and build the program below `work`. Returns the command that starts it. Raises: NotHere."""
        folder = (work / "page" / self.client).resolve()
        chain = None if self.client == CELERY else CLIENTS[self.client]
        if chain is not None and (missing := chain.missing()):
            raise NotHere(missing)
        file = folder / self.place / self.file
        text = sources()[self.file]
        if not file.exists() or file.read_text() != text or not (folder / "built").exists():
            shutil.rmtree(folder, ignore_errors=True)
            file.parent.mkdir(parents=True)
            file.write_text(text)
            if chain is not None:
                self._build(chain, folder, tell)
            (folder / "built").touch()
        found = python(CELERY, work.resolve(), *FRAMEWORKS[CELERY]) if chain is None else sys.executable
        words = {"python": str(found), "file": str(file), "folder": str(folder)}
        return [word.format(**words) for word in self.command]

    def _build(self, chain: Toolchain, folder: Path, tell: Callable[[str], object]) -> None:
        for name in self.kept:
            shutil.copy(SOURCES / chain.folder / name, folder)
        for command in chain.build:
            tell(f"building {self.file} ...")
            output_of(command, cwd=folder)


PROGRAMS = {
    program.client: program
    for program in (
        Program("pika", "shop_pika.py"),
        Program("aio-pika", "shop_aio_pika.py"),
        Program(CELERY, "shop_celery.py"),
        Program("amqp091-go", "shop.go", ("go.mod", "go.sum"), command=("{folder}/driver",)),
        Program(
            "amqp-client",
            "Shop.java",
            ("pom.xml",),
            "src/main/java",
            ("java", "-cp", "{folder}/target/classes:{folder}/target/dependency/*", "Shop"),
        ),
        Program("amqplib", "shop.js", ("package.json", "package-lock.json"), command=("node", "{file}")),
        Program("bunny", "shop.rb", command=("ruby", "{file}")),
        Program("php-amqplib", "shop.php", command=("php", "{file}")),
    )
}
