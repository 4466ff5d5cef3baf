"""Native configuration files, and the builder that the loaders of all formats use."""
