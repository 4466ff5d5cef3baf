"""The resources of the API: a file for each family of paths, with its routes. Source: management page 2."""
