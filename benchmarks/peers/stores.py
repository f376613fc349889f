"""Other memory stores behind a minimal FastAPI, with the same turns and the same encoder as the service.

Runs as a file under an interpreter of their own (`memstrata bench core --peers PYTHON`), which needs chromadb,
langgraph, mem0ai, sentence-transformers, fastapi and uvicorn: so nothing of this project is imported here, and nothing
of theirs before it is needed. `stores.py … embed` makes the vectors of the turns once; `stores.py … chroma` serves.
"""

from __future__ import annotations

import argparse
import itertools
import json
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

DIMENSION = 384
BATCH_TEXTS = 64


class Encoder:
    """sentence-transformers; turns that are loaded take their vectors from the file, all else is embedded."""

    def __init__(self, model: Path) -> None:
        import torch
        from sentence_transformers import SentenceTransformer

        torch.set_num_threads(1)
        self.folder = model
        self._model = SentenceTransformer(str(model), device="cpu")
        self._known: dict[str, Any] = {}

    def know(self, texts: list[str], vectors: Any) -> None:
        self._known = dict(zip(texts, vectors, strict=True))

    def forget(self) -> None:
        self._known = {}

    def encode(self, texts: str | list[str], **options: Any) -> Any:
        """As SentenceTransformer's: an array, of two dimensions for a list. mem0 calls this."""
        import numpy as np

        many = [texts] if isinstance(texts, str) else list(texts)
        if all(text in self._known for text in many):
            rows = np.stack([self._known[text] for text in many])
        else:
            rows = self._model.encode(many, batch_size=BATCH_TEXTS, convert_to_numpy=True, show_progress_bar=False)
        return rows[0] if isinstance(texts, str) else rows

    def get_sentence_embedding_dimension(self) -> int:
        return DIMENSION

    get_embedding_dimension = get_sentence_embedding_dimension


class Chroma:
    def __init__(self, encoder: Encoder, state: Path) -> None:
        import chromadb

        self._encoder = encoder
        client = chromadb.PersistentClient(str(state))
        space = {"hnsw": {"space": "cosine"}}
        self._turns = client.create_collection("turns", embedding_function=None, configuration=space)

    def add(self, user: str, key: str, text: str) -> None:
        vectors = [self._encoder.encode(text)]
        self._turns.add(ids=[key], documents=[text], metadatas=[{"user": user}], embeddings=vectors)

    def search(self, user: str, query: str, count: int) -> list[Any]:
        vectors = [self._encoder.encode(query)]
        return self._turns.query(query_embeddings=vectors, n_results=count, where={"user": user})["documents"][0]


class LangGraph:
    """In memory, without durability: what its store is by default."""

    def __init__(self, encoder: Encoder, state: Path) -> None:
        from langgraph.store.memory import InMemoryStore

        def embed(texts: Iterable[str]) -> Any:
            return encoder.encode(list(texts)).tolist()

        self._store = InMemoryStore(index={"dims": DIMENSION, "embed": embed, "fields": ["text"]})

    def add(self, user: str, key: str, text: str) -> None:
        self._store.put((user,), key, {"text": text})

    def search(self, user: str, query: str, count: int) -> list[Any]:
        return [item.value["text"] for item in self._store.search((user,), query=query, limit=count)]


class Mem0:
    """With its local vector store and without a language model. Its adds take turns: at once they damage that store."""

    def __init__(self, encoder: Encoder, state: Path) -> None:
        from mem0 import Memory

        store = {"collection_name": "turns", "embedding_model_dims": DIMENSION, "path": str(state / "vectors")}
        model = {"model": str(encoder.folder), "embedding_dims": DIMENSION, "model_kwargs": {"device": "cpu"}}
        self._memory = Memory.from_config(
            {
                "vector_store": {"provider": "qdrant", "config": store},
                "history_db_path": str(state / "history.db"),
                "llm": {"provider": "openai", "config": {"model": "none", "api_key": "none"}},
                "embedder": {"provider": "huggingface", "config": model},
            }
        )
        self._memory.embedding_model.model = encoder
        self._turn = threading.Lock()

    def add(self, user: str, key: str, text: str) -> None:
        with self._turn:
            self._memory.add(text, user_id=user, infer=False)

    def search(self, user: str, query: str, count: int) -> list[Any]:
        return self._memory.search(query, filters={"user_id": user}, top_k=count)["results"]


KINDS: dict[str, Any] = {"chroma": Chroma, "langgraph": LangGraph, "mem0": Mem0}


def embed(args: argparse.Namespace) -> None:
    import numpy as np

    texts = [text for _, text in json.loads(args.turns.read_text())]
    np.save(args.vectors, Encoder(args.model).encode(texts))


def serve(args: argparse.Namespace) -> None:
    import numpy as np
    import uvicorn

    encoder = Encoder(args.model)
    args.state.mkdir(parents=True)
    peer = KINDS[args.what](encoder, args.state)
    turns = json.loads(args.turns.read_text())
    encoder.know([text for _, text in turns], np.load(args.vectors))
    for number, (user, text) in enumerate(turns):
        peer.add(user, f"turn-{number}", text)
    encoder.forget()
    uvicorn.run(application(peer), host="127.0.0.1", port=args.port, access_log=False, log_level="error")


def application(peer: Any) -> Any:
    """Routes that wait run in FastAPI's own thread pool, as its users write them."""
    from fastapi import Body, FastAPI

    routes, numbers = FastAPI(), itertools.count()

    @routes.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {}

    @routes.post("/search")
    def search(user_id: str = Body(), query: str = Body(), k: int = Body()) -> dict[str, Any]:
        return {"results": peer.search(user_id, query, k)}

    @routes.post("/add")
    def add(user_id: str = Body(), text: str = Body()) -> dict[str, int]:
        peer.add(user_id, f"added-{next(numbers)}", text)
        return {"stored": 1}

    return routes


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("what", choices=("embed", *KINDS))
    for name in ("turns", "vectors", "model", "state"):
        words.add_argument(f"--{name}", type=Path)
    words.add_argument("--port", type=int)
    args = words.parse_args()
    if args.what == "embed":
        embed(args)
    else:
        serve(args)


if __name__ == "__main__":
    main()
