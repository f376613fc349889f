"""Others that do a part of what the service does, and runs against them. What is theirs has environments of its own."""
