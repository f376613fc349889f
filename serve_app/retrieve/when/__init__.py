"""When: the window of time that a query names, in Chinese, English, Japanese and Spanish."""

from serve_app.retrieve.when.reading import asked_at, read_window

__all__ = ["asked_at", "read_window"]
