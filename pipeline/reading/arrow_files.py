"""Files of a journal or a lake on pyarrow's file systems, so that executors on other hosts can use them.

They have paths, or URIs with `file:`, `hdfs:`, `s3:`, `gs:` or `abfs:`.
"""

import json
import os
import re
from typing import Any

from pyarrow import fs

from ...journal.disk.readers import READER_NAME, READERS, register_reader


class ArrowFiles:
    """File operations on one file system, as the journal's readers call them. Handles are numbers."""

    def __init__(self, system: Any) -> None:
        self._system = system
        self._handles: dict[int, Any] = {}
        self._next = 1

    def open(self, path: str) -> int:
        handle = self._next
        self._handles[handle] = self._system.open_input_file(path)
        self._next += 1
        return handle

    def close(self, handle: int) -> None:
        self._handles.pop(handle).close()

    def read(self, handle: int, length: int, offset: int) -> bytes:
        data: bytes = self._handles[handle].read_at(length, offset)
        return data

    def size(self, handle: int) -> int:
        return int(self._handles[handle].size())

    def names(self, path: str) -> list[str]:
        selector = fs.FileSelector(path, allow_not_found=True)
        return sorted(info.base_name for info in self._system.get_file_info(selector))

    @property
    def system(self) -> Any:
        return self._system

    def make_directory(self, path: str) -> None:
        """Make a directory and its parents, unless they exist. Raises: OSError."""
        self._system.create_dir(path, recursive=True)

    def make_durable(self, path: str) -> int:
        """Fsync a closed file and its directory, if they are on this machine. Returns the file's size in octets."""
        if self.is_local:
            sync(path)
            sync(os.path.dirname(path))
        return int(self._system.get_file_info(path).size)

    def remove_tree(self, path: str) -> None:
        """Delete a directory and everything in it, if it exists. Raises: OSError."""
        if self._system.get_file_info(path).type == fs.FileType.Directory:
            self._system.delete_dir(path)

    @property
    def is_local(self) -> bool:
        return isinstance(self._system, fs.LocalFileSystem)

    def register(self, directory: str, name: str, lsn: int) -> None:
        """As `register_reader`, on any file system. Raises: ValueError (invalid name), OSError."""
        if self.is_local:
            register_reader(directory, name, lsn)
            return
        if not READER_NAME.fullmatch(name) or name.startswith("."):
            raise ValueError(f"{name!r} is not a name for a reader")
        readers = f"{directory}/{READERS}"
        self._system.create_dir(readers)
        with self._system.open_output_stream(f"{readers}/{name}.json.new") as stream:
            stream.write(json.dumps({"lsn": lsn}).encode() + b"\n")
        self._system.move(f"{readers}/{name}.json.new", f"{readers}/{name}.json")


def sync(path: str) -> None:
    """Fsync a file or a directory. Raises: OSError."""
    if os.name == "nt" and os.path.isdir(path):
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def locate(where: str) -> tuple[ArrowFiles, str]:
    """The file system of a URI or path, and the path in it. Raises: ValueError, OSError (no such file system)."""
    if "://" not in where and not where.startswith("file:"):
        where = os.path.abspath(where)
    system, path = fs.FileSystem.from_uri(re.sub("^s3[an]:", "s3:", where))  # Hadoop's names for s3
    return ArrowFiles(system), path
