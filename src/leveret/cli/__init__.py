"""The commands beside serve: ctl, explain, diff, journal, pipeline."""
