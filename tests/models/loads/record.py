"""Makes `tokens_per_s.json`: half an hour of tokens that come to an encoder, second by second.

`python -m tests.models.loads.record` from the root of the repository. A seeded workload: queries of some tokens at a
rate that rises and falls, indexing in batches, two bursts, and a stretch in which load comes and goes every 30 s.
"""

import json
from pathlib import Path

import numpy as np

PATH = Path(__file__).parent / "tokens_per_s.json"
SEED = 8
SECONDS = 1800
QUERY_TOKENS, TURN_TOKENS = 14, 36


def expected() -> np.ndarray:
    """Queries a second."""
    at = np.arange(SECONDS)
    rate = 150 + 900 * np.sin(np.pi * np.clip(at - 120, 0, 600) / 600) ** 2
    rate[900:930] += 2500
    rate[1000:1300][(np.arange(300) // 15) % 2 == 0] += 900
    rate[1500:1520] += 4000
    return rate


def tokens() -> list[int]:
    source = np.random.default_rng(SEED)
    queries = source.poisson(expected()) * QUERY_TOKENS
    turns = source.poisson(0.3, SECONDS) * source.integers(1, 50, SECONDS) * TURN_TOKENS
    return [int(one) for one in queries + turns]


if __name__ == "__main__":
    PATH.write_text(json.dumps({"seed": SEED, "tokens_per_s": tokens()}) + "\n")
