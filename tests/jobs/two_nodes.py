"""A job on a cluster of two nodes, of which one is killed in the middle. Prints one JSON object.

python -m tests.jobs.two_nodes FOLDER TURNS
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from ray.cluster_utils import Cluster

from jobs import reembed
from jobs.reembed_costs import _made_up, _table
from jobs.stub_service import StubService
from tests.jobs.odd_reembed import open_slow

STORE_BYTES = 100 << 20


def main(folder: Path, turns: int) -> None:
    _table(folder, _made_up(turns))
    stub = StubService(open_slow_version(), {"model": "hash-32"}, [turns])
    (folder / "key").write_text("none")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "object_store_memory": STORE_BYTES})
    other = cluster.add_node(num_cpus=2, object_store_memory=STORE_BYTES)
    killed: list[int] = []

    def kill() -> None:
        while stub.written < turns // 4:
            time.sleep(0.01)
        cluster.remove_node(other, allow_graceful=False)
        killed.append(stub.written)

    threading.Thread(target=kill, daemon=True).start()
    words = ["--url", stub.url, "--data", str(folder), "--migration", "m", "--key-file", str(folder / "key")]
    status = reembed.main([*words, "--address", cluster.address, "--actors", "3"], open_one=open_slow)
    seqs = [one.vectors.turn_seq for one in stub.items]
    print(json.dumps({"status": status, "killed_at": killed, "turns": len(set(seqs)), "sent": len(seqs)}))
    cluster.shutdown()


def open_slow_version():  # type: ignore[no-untyped-def]
    from serve_app.models.embed import EncoderOptions

    return open_slow(EncoderOptions(model="hash-32")).version


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
