"""The command line's side of the HTTP API. Speaks HTTP, and imports nothing of the service but its error tree."""
