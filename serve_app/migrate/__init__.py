"""Changing what serves: embedding versions, rerankers and compressors, by states, gates, canaries and a way back."""
