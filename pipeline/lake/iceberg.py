"""Offers the tables of a lake through a catalog of Iceberg, for programs that read only that. Nothing is copied.

The tables of the catalog name the lake's own files. Files that a compaction or retention removes from the lake stay for
a day, so what the catalog names can be read for at least a day.
"""

from typing import Any

from ..progress import Progress
from ..schemas import TABLES
from .delta_tables import absolute, schema_of
from .lake import check_even, committed_files, has_begun


def offer(lake: str, catalog: str, namespace: str, progress: Progress) -> dict[str, Any]:
    """Bring the tables of a catalog up to date with the lake, in one snapshot for each table.

    catalog: its name in the configuration of pyiceberg. Returns the number of added and removed files by table.
    Raises: ValueError (no such catalog; pyiceberg is not installed), OSError, exceptions of pyiceberg (among others, if
            another process has changed a table meanwhile).
    """
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        raise ValueError(f"{error}; this needs pip install 'leveret[iceberg]'") from error
    lake = absolute(lake)
    check_even(lake)
    found = load_catalog(catalog)
    found.create_namespace_if_not_exists(namespace)
    added, removed = {}, {}
    for table in [one for one in TABLES if has_begun(lake, one)]:
        added[table], removed[table] = _update(found, (namespace, table), committed_files(lake, table))
        progress.say("offered", table=table, added=added[table], removed=removed[table])
    return {"lake": lake, "catalog": catalog, "namespace": namespace, "added": added, "removed": removed}


def _update(catalog: Any, name: tuple[str, str], files: list[str]) -> tuple[int, int]:
    """Make a table name exactly these files. Returns the number of added and removed ones."""
    from pyiceberg.io.pyarrow import parquet_file_to_data_file
    from pyiceberg.table import TableProperties

    schema = schema_of(name[1], with_date=False)
    table = catalog.create_table_if_not_exists(name, schema)
    with table.transaction() as change:
        with change.update_schema() as columns:
            columns.union_by_name(schema)
        mapping = change.table_metadata.schema().name_mapping  # files that Iceberg did not write have no ids of columns
        change.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping.model_dump_json()})
        known = {one.file.file_path: one.file for one in table.scan().plan_files()}
        new, old = set(files) - known.keys(), known.keys() - set(files)
        if new or old:
            with change.update_snapshot().overwrite() as snapshot:
                for path in sorted(new):
                    snapshot.append_data_file(parquet_file_to_data_file(table.io, change.table_metadata, path))
                for path in old:
                    snapshot.delete_data_file(known[path])
    return len(new), len(old)
