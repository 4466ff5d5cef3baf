"""What becomes of a job's answer: formats, files, conditions for schedulers, an event of lineage."""
