"""What is personal or secret in a text, and its removal. Pure: no store, no clock, no request."""
