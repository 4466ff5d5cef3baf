"""Opens Spark sessions: on one machine, in tests, on a cluster. Spark is configured only here.

Each machine of a cluster needs the same minor version of Python, with pyspark, pyarrow and numpy. This package is sent
to them. Source: Spark page 1, 2 and 5.
"""

import errno
import os
import stat
import sys
import tempfile
import zipfile
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from .amqp.data_source import Amqp
from .engines.spark import is_one_process
from .java import find_java
from .reading.source import JournalSource

#: Settings of every session.
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.maxConcurrentOutputFileWriters": "16",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.python.authenticate.socketTimeout": "60s",  # 15 s are not enough on a busy machine
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.hadoop.fs.file.impl.disable.cache": "false",
}
#: If little is computed: Java starts faster, but computes more slowly.
SHORT_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: The configuration of Spark's own log: it goes to stderr.
LOGGING = """
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n
"""
#: Loggers of Spark's Python part, which log the errors of queries.
CONTEXT_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
#: On small machines Java would choose the serial collector, which takes a third longer on large data.
JAVA_OPTIONS = "-XX:+UseParallelGC"
LOOPBACK = "127.0.0.1"
#: The rooms of this package that executors need.
SENT_ROOMS = ("engine", "expressions", "journal", "pipeline", "settings", "vendored")


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """The options of a session. `is_short`: little is computed. `log_level`: of Spark's own log, error or off. `more`:
    settings of Spark that override all others.
    """

    master: str = "local[*]"
    name: str = "leveret"
    driver_memory: str = "2g"
    shuffle_partitions: int | None = None
    is_short: bool = False
    is_test: bool = False
    log_level: str = "error"
    more: dict[str, str] = field(default_factory=dict)

    def settings(self, environment: MutableMapping[str, str]) -> dict[str, str]:
        """All settings of Spark."""
        found = dict(SETTINGS)
        if self.is_test:
            found |= {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
        found["spark.driver.memory"] = self.driver_memory
        found["spark.sql.shuffle.partitions"] = str(self.shuffle_partitions or _partitions(self.master))
        if environment.get("SPARK_LOCAL_IP") == LOOPBACK:
            found["spark.driver.host"] = found["spark.driver.bindAddress"] = LOOPBACK
        return found | self.more


def _partitions(master: str) -> int:
    """The number of partitions of a shuffle: two per core on this machine; on a cluster Spark's default."""
    if not master.startswith("local"):
        return 200
    count = master.removeprefix("local").strip("[]").split(",")[0]
    return 2 * (int(count) if count.isdigit() else os.cpu_count() or 1)


def set_java_environment(environment: MutableMapping[str, str], options: SessionOptions, scratch: Path) -> None:
    """Set the environment variables for Spark's Java and Python. Raises: NoJava."""
    environment["JAVA_HOME"] = find_java(environment, scratch)
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    environment.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    here = options.master.startswith("local") or LOOPBACK in options.master or "localhost" in options.master
    if here:
        environment.setdefault("SPARK_LOCAL_IP", LOOPBACK)  # else Spark uses the address of an interface


def open_session(options: SessionOptions | None = None, *, scratch: Path | None = None) -> Any:
    """Open a session that knows `leveret_journal` and `amqp`. The caller stops it.

    `scratch`: for Spark's own files; by default a temporary directory. Raises: NoJava, PermissionError.
    """
    options = options or SessionOptions()
    scratch = (scratch or private_directory(Path(tempfile.gettempdir()))).absolute()
    scratch.mkdir(parents=True, exist_ok=True)
    set_java_environment(os.environ, options, scratch)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(options.master).appName(options.name)
    builder = builder.config("spark.local.dir", str(scratch / "local"))
    builder = builder.config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
    logging = scratch / "log4j2.properties"
    logging.write_text(LOGGING.format(level=options.log_level))
    java_options = SHORT_JAVA_OPTIONS if options.is_short or options.is_test else JAVA_OPTIONS
    java_options = f"-Dlog4j2.configurationFile={logging.as_uri()} {java_options}"
    builder = builder.config("spark.driver.extraJavaOptions", java_options)
    for name, value in options.settings(os.environ).items():
        builder = builder.config(name, value)
    if not is_one_process(options.master):
        builder = builder.config("spark.submit.pyFiles", str(pack(scratch)))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel(options.log_level.upper())
    if options.log_level == "off":
        disable_context_loggers()
    session.dataSource.register(JournalSource)
    session.dataSource.register(Amqp)
    return session


def disable_context_loggers() -> None:
    """Turn off the log of Spark's Python part: it logs errors of queries, with Java's stack, before it raises them."""
    from pyspark.logger import PySparkLogger

    for name in CONTEXT_LOGGERS:
        PySparkLogger.getLogger(name).disabled = True


def private_directory(above: Path) -> Path:
    """Make a directory that only this user can read or write.

    Code is run from it, so a directory of another user is refused. Raises: PermissionError.
    """
    user = os.getuid()
    path = above / f"leveret-spark-{user}"
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user:
        raise PermissionError(errno.EPERM, "not a directory of this user's own; remove it, or set TMPDIR", str(path))
    path.chmod(0o700)  # it may be older
    return path


def pack(scratch: Path) -> Path:
    """Pack this package into a zip from which executors can import."""
    (root,) = (Path(one) for one in import_module("..", __package__).__path__)
    path = scratch / "leveret.zip"
    partial = scratch / f"leveret.{os.getpid()}.zip"
    modules = [*root.glob("*.py"), *(module for room in SENT_ROOMS for module in (root / room).rglob("*.py"))]
    with zipfile.ZipFile(partial, "w") as archive:
        for module in sorted(modules):
            archive.write(module, Path("leveret") / module.relative_to(root))
    partial.replace(path)
    return path
