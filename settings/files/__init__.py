"""Native configuration files, and what the loaders of all formats collect."""
