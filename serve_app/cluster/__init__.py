"""One store served by many processes: who writes which shard, and how a gateway reaches the writer. Knows no Ray."""
