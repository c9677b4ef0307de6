"""Memory: the catalog, search and recall."""
