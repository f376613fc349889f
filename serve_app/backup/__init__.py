"""Backups of a store, their way back, and what tells whether a store is whole."""
