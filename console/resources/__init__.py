"""The resources of the API: one file for a family of paths, with its routes. Source: management page 2."""
