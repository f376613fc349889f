"""When: the window of time that a query names, in Chinese, English, Japanese and Spanish."""

from serve_app.retrieve.when.reading import read_window

__all__ = ["read_window"]
