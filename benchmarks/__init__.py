"""Measurements of a running service. They speak HTTP and know nothing of its inside."""
