"""Writes the answers of jobs: formats, files, conditions for schedulers, lineage."""
