"""DuckDB as an engine: in this process, without Java, network, or downloaded extensions."""

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any
from uuid import uuid4

from ..error_texts import sql_error_text
from ..schemas import Columns
from .protocol import PERCENTILES, Dialect, GroupWork, Row, check_text, in_utc

#: Functions of Spark as macros of DuckDB. A list without values is empty, as in Spark, not null.
MACROS = """
CREATE MACRO unix_micros(t) AS epoch_us(t);
CREATE MACRO unix_millis(t) AS epoch_ms(t);
CREATE MACRO unix_seconds(t) AS epoch_us(t) // 1000000;
CREATE MACRO timestamp_micros(us) AS make_timestamptz(CAST(us AS BIGINT));
CREATE MACRO timestamp_seconds(s) AS make_timestamptz(CAST(s AS BIGINT) * 1000000);
CREATE MACRO sequence(a, b, step) AS generate_series(a, b, step);
CREATE MACRO explode(list) AS unnest(list);
CREATE MACRO collect_set(x) AS list(DISTINCT x) FILTER (WHERE x IS NOT NULL);
CREATE MACRO array_sort(list) AS list_sort(coalesce(list, []));
CREATE MACRO slice(list, begin, n) AS list[begin:begin + n - 1];
CREATE MACRO size(list) AS len(list);
"""
TYPES = {"timestamp": "TIMESTAMPTZ", "string": "VARCHAR", "binary": "BLOB"}
#: Characters that DuckDB reads as a pattern in the name of a file.
_PATTERN = re.compile(r"[*?\[]")
#: Rows in one fetch.
CHUNK = 2000


class LocalDialect:
    """The `Dialect` of DuckDB."""

    def text(self, value: str) -> str:
        check_text(value)
        return "'" + value.replace("'", "''") + "'"

    def timestamp(self, at_us: int) -> str:
        return f"timestamp_micros({at_us})"

    def type(self, name: str) -> str:
        if name.startswith("array<"):
            return self.type(name.removeprefix("array<").removesuffix(">")) + "[]"
        return TYPES.get(name, name)

    def ordered_array(self, value: str, by: str, where: str) -> str:
        return f"coalesce(list({value} ORDER BY {by}) FILTER (WHERE {where}), [])"

    def percentile_state(self, value: str) -> str:
        return f"quantile_disc({value}, [{', '.join(str(point / 1000) for point in PERCENTILES.values())}])"

    def percentile(self, state: str, name: str) -> str:
        return f"{state}[{list(PERCENTILES).index(name) + 1}]"

    def json_field(self, json: str, name: str) -> str:
        pointer = "/" + name.replace("~", "~0").replace("/", "~1")
        return f"json_extract_string({json}, {self.text(pointer)})"

    def first_death(self, headers_json: str) -> str:
        return f"json_extract_string({headers_json}, '/x-death/0/queue')"


class LocalEngine:
    """The `Engine` with DuckDB.

    scratch: a directory that only this user can read, for data that does not fit into memory. memory_mb: by default
    half of the machine's memory. threads: by default the number of this process's processors.
    """

    name = "local"

    def __init__(self, scratch: Path | None = None, *, threads: int = 0, memory_mb: int = 0) -> None:
        import duckdb

        self.dialect: Dialect = LocalDialect()
        self._scratch = tempfile.TemporaryDirectory(prefix="leveret-duckdb-", dir=scratch)  # mode 0700
        memory_mb = memory_mb or max(256, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2_000_000)
        self._connection = duckdb.connect(
            config={
                "threads": threads or len(os.sched_getaffinity(0)),
                "memory_limit": f"{memory_mb}MB",
                "temp_directory": self._scratch.name,
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "allow_community_extensions": "false",
                "default_null_order": "nulls_first_on_asc_last_on_desc",
            }
        )
        self._connection.execute("SET GLOBAL TimeZone = 'UTC'")
        self._connection.execute(MACROS)
        self._kinds: dict[str, str] = {}

    def view(self, name: str, sql: str, *, cached: bool = False) -> None:
        self._make(name, "TABLE" if cached else "VIEW", f"AS {sql}")

    def _make(self, name: str, kind: str, what: str, cursor: Any = None) -> None:
        if name in self._kinds:
            self._run(f"DROP {self._kinds.pop(name)} {name}")
        self._run(f"CREATE {kind} {name} {what}", cursor)
        self._kinds[name] = kind

    def _run(self, sql: str, cursor: Any = None) -> Any:
        """Run SQL with a new cursor, so that other results can be read at the same time. Raises: ValueError,
        OSError."""
        with _plain_errors():
            return (cursor or self._connection.cursor()).execute(sql)

    def stream(self, sql: str) -> Iterator[Row]:
        cursor = self._run(sql)
        names = [column[0] for column in cursor.description]
        while chunk := cursor.fetchmany(CHUNK):
            for values in chunk:
                yield {name: in_utc(found) for name, found in zip(names, values, strict=True)}

    def arrow(self, sql: str) -> Any:
        with _plain_errors():
            return self._connection.cursor().sql(sql).to_arrow_table()

    def memory_table(self, name: str, table: Any) -> None:
        cursor = self._connection.cursor()
        cursor.register("given_rows", table)  # no other cursor sees it
        self._make(name, "TABLE", "AS SELECT * FROM given_rows", cursor)

    def parquet_files(self, name: str, paths: Sequence[str], columns: Columns) -> None:
        nothing = {column: f"CAST(NULL AS {self.dialect.type(type_)})" for column, type_, _ in columns}
        paths = [one for path in paths for one in (self._fetched(path) if "://" in path else [path])]
        if not paths:
            self.view(name, f"SELECT {_select_list(nothing)} WHERE false")
            return
        listed = ", ".join(self.dialect.text(_PATTERN.sub(r"[\g<0>]", path)) for path in paths)
        source = f"read_parquet([{listed}], hive_partitioning = true, union_by_name = true)"
        there = {row[0] for row in self._run(f"DESCRIBE SELECT * FROM {source}").fetchall()}
        found = {
            column: f"CAST({column} AS {self.dialect.type(type_)})" if column in there else nothing[column]
            for column, type_, _ in columns
        }
        self.view(name, f"SELECT {_select_list(found)} FROM {source}")

    def _fetched(self, uri: str) -> list[str]:
        """The paths of copies of a file of an object store, or of the files of a directory there, if there is one.

        Raises: OSError.
        """
        from pyarrow import fs  # slow to import, and only URIs need it

        copy = Path(self._scratch.name, "fetched", uri.partition("://")[2])
        if not copy.exists():
            system, path = fs.FileSystem.from_uri(uri)
            kind = system.get_file_info(path).type
            if kind == fs.FileType.NotFound:
                return []
            (copy if kind == fs.FileType.Directory else copy.parent).mkdir(parents=True, exist_ok=True)
            fs.copy_files(path, str(copy), source_filesystem=system, destination_filesystem=fs.LocalFileSystem())
        return [str(one) for one in copy.iterdir()] if copy.is_dir() else [str(copy)]

    def _put(self, sql: str, uri: str) -> None:
        """Write the rows of a query to a file of an object store. Raises: ValueError, OSError."""
        from pyarrow import fs

        made = self._copy(sql, Path(self._scratch.name))
        fs.copy_files(str(made), uri)
        made.unlink()

    def write(self, sql: str, path: str) -> None:
        """As in `Engine`; the file gets its name when it is complete."""
        if "://" in path:
            return self._put(sql, path)
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir() and not all(_is_spark_file(one) for one in target.iterdir()):
            raise ValueError(f"{path}: a directory with other files than Spark's is there")
        begun = self._copy(sql, target.parent)
        if target.is_dir():
            for one in target.iterdir():
                one.unlink()
            target.rmdir()
        begun.replace(target)

    def append(self, sql: str, path: str) -> None:
        if "://" in path:
            return self._put(sql, f"{path}/part-{uuid4()}.parquet")
        directory = Path(path)
        directory.mkdir(parents=True, exist_ok=True)
        self._copy(sql, directory).replace(directory / f"part-{uuid4()}.parquet")

    def _copy(self, sql: str, directory: Path) -> Path:
        begun = directory / f".{uuid4()}.part"
        try:
            self._run(f"COPY ({sql}) TO {self.dialect.text(str(begun))} (FORMAT parquet, COMPRESSION zstd)")
        except (OSError, ValueError):
            begun.unlink(missing_ok=True)
            raise
        return begun

    def each_group(self, name: str, sql: str, by: Sequence[str], work: GroupWork, columns: Columns) -> None:
        """As in `Engine`, with the rows of one group in memory at a time."""
        types = ", ".join(f"{column} {self.dialect.type(type_)}" for column, type_, _ in columns)
        self._make(name, "TABLE", f"({types})")
        inserting = self._connection.cursor()
        put = f"INSERT INTO {name} VALUES ({', '.join('?' for _ in columns)})"
        for _, group in groupby(self.stream(f"SELECT * FROM ({sql}) ORDER BY {', '.join(by)}"), itemgetter(*by)):
            made = [[row[column.name] for column in columns] for row in work(list(group))]
            if made:
                inserting.executemany(put, made)

    def close(self) -> None:
        self._connection.close()
        self._scratch.cleanup()


def _is_spark_file(file: Path) -> bool:
    """Whether a file looks like those of Spark in a directory of Parquet files: `part-...`, `_SUCCESS`, checksums."""
    return file.is_file() and file.name.lstrip(".").startswith(("part-", "_SUCCESS"))


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Translate exceptions of DuckDB. Raises: ValueError (wrong SQL, not enough memory), OSError."""
    import duckdb

    try:
        yield
    except (duckdb.ProgrammingError, duckdb.DataError) as error:
        raise ValueError(sql_error_text(error)) from error
    except duckdb.OutOfMemoryException as error:
        raise ValueError(f"not enough memory: {sql_error_text(error)}") from error
    except duckdb.IOException as error:
        raise OSError(sql_error_text(error)) from error


def _select_list(columns: dict[str, str]) -> str:
    return ", ".join(f"{text} AS {name}" for name, text in columns.items())
