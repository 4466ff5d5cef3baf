"""The resources of the API: each file has a family of paths, and its routes. Source: management page 2."""
