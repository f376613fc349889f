"""A short tour of a running service: a sample conversation goes in, a context comes out, and is shown to a person."""
