"""Measurements of a running service. They speak HTTP to it and import nothing of it."""
