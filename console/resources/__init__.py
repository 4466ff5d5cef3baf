"""What the API does: one file a family of paths, each with its routes. Source: management page 2."""
