"""A private Ray begins and ends with the job, and leaves nothing behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROGRAM = """
import os
from jobs.session import BLOCK_BYTES, ray_session

def grown(batch):
    for number in batch["id"]:
        yield {"id": [number], "bytes": [bytes(BLOCK_BYTES)]}

with ray_session(cpus=2):
    import ray
    print(os.environ["RAY_AUTH_TOKEN_PATH"])
    data = ray.data.range(8, override_num_blocks=8).map_batches(grown, batch_size=1, concurrency=2)
    print([row["id"] for row in data.iter_rows()])
    def fails(batch):
        raise ValueError("a block that cannot be read")
    try:
        list(ray.data.range(2).map_batches(fails).iter_rows())
    except Exception as error:
        print(type(error).__name__)
"""


@pytest.mark.ray
def test_a_private_ray_keeps_the_order_lets_no_error_pass_and_is_gone_at_the_end(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    token, order, failed = ran.stdout.splitlines()
    assert order == str(list(range(8)))
    assert failed.startswith("RayTaskError")
    assert not Path(token).parent.exists()
    assert not list(tmp_path.iterdir())  # Ray would leave a token at home
