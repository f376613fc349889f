"""A program that loads a service: `load.py URL KEY CLIENTS SECONDS` prints the count of answers by status."""

import asyncio
import json
import sys
import time
from collections import Counter

import httpx

WORDS = [
    "apple",
    "river",
    "window",
    "garden",
    "silver",
    "thunder",
    "candle",
    "harbour",
    "meadow",
    "copper",
    "lantern",
    "orchard",
]


async def client(http: httpx.AsyncClient, number: int, end: float, statuses: Counter[int]) -> None:
    """Append, search, context, and again."""
    user, said = f"user-{number}", 0
    while time.monotonic() < end:
        text = " ".join(WORDS[(said + number + step * 5) % len(WORDS)] for step in range(9))
        turns = [{"role": "user", "content": f"{text} {said}"}]
        for path, body in [
            (f"/v1/sessions/s-{said // 200}/turns", {"user_id": user, "turns": turns}),
            ("/v1/search", {"user_id": user, "query": f"{WORDS[said % len(WORDS)]} {said}"}),
            ("/v1/context", {"user_id": user, "query": text, "budget_tokens": 1000, "session_id": f"s-{said // 200}"}),
        ]:
            statuses[(await http.post(path, json=body)).status_code] += 1
        said += 1


async def main(url: str, key: str, clients: int, seconds: float) -> None:
    statuses: Counter[int] = Counter()
    end = time.monotonic() + seconds
    headers = {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60, trust_env=False) as http:
        await asyncio.gather(*(client(http, number, end, statuses) for number in range(clients)))
    print(json.dumps(statuses))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
