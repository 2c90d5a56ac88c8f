"""A forward pass of a discriminator on one thread: torch against onnxruntime in float32 and int8.

    OMP_NUM_THREADS=1 python benchmarks/onnx_speed.py [--size small | --model FOLDER]
        [--lengths 32,128,512] [--batches 1,8,32] [--rounds 5] [--quick] [--json FILE]

Without --model it is the shape of electra-SIZE with random weights. torch is the library's class as
`electrify detect` runs it. Rows are full. Times are CPU times of this process, so that a busy
neighbour counts only through the caches that it takes. Sides take turns, and a ratio is the median
over rounds of the pair of one round.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from pairs import in_turns, ratios, spread, table, write_json
from tokenizers import Tokenizer, models, processors
from transformers import ElectraConfig, ElectraForPreTraining, PreTrainedTokenizerFast

from electrify.exporting.folder import export_as
from electrify.exporting.options import Export
from electrify.onnx_models import OnnxModel
from electrify.scoring.pll import load_scorer

SIZES = {"tiny": (4, 128, 4, 512), "small": (12, 256, 4, 1024), "quick": (1, 32, 2, 64)}
"""Layers, hidden size, heads and intermediate size, those of the recipes electra-*."""
VOCABULARY = 30522
LEAST_SECONDS = 0.3
"""Of a side in a round: short passes are repeated."""


def random_model(folder: Path, size: str) -> Path:
    """A discriminator with random weights, and a tokenizer of as many words."""
    roles = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*roles, *(f"w{k}" for k in range(VOCABULARY - len(roles)))]
    tokenizer = Tokenizer(models.WordLevel({w: k for k, w in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    special = {f"{name[1:-1].lower()}_token": name for name in roles}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
    torch.manual_seed(0)
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
    config = ElectraConfig(vocab_size=VOCABULARY, **dict(zip(names, SIZES[size], strict=True)))
    ElectraForPreTraining(config).save_pretrained(folder)
    return folder


def sides_of(model: Path, folder: Path) -> dict[str, Callable[[Any, Any], Any]]:
    """Ids and mask [B, L] -> logits, by the name of the side."""
    network = load_scorer(str(model)).model

    @torch.inference_mode()
    def by_torch(ids_BL: Any, mask_BL: Any) -> Any:
        inputs = {"input_ids": ids_BL, "attention_mask": mask_BL}
        return network(**{name: torch.from_numpy(x) for name, x in inputs.items()})

    found: dict[str, Callable[[Any, Any], Any]] = {"torch": by_torch}
    for name, quantize in (("onnxruntime", "none"), ("onnxruntime int8", "int8")):
        how: Any = {"output_dir": str(folder / name), "format": "onnx", "quantize": quantize}
        print(export_as(Export(model=str(model), **how)), flush=True)
        found[name] = OnnxModel.of(str(folder / name), "1").outputs
    return found


def timed(run: Callable[[], Any], repeats: int) -> float:
    """Milliseconds of CPU of one call."""
    began = time.process_time()
    for _ in range(repeats):
        run()
    return (time.process_time() - began) / repeats * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--lengths", default="32,128,512")
    parser.add_argument("--batches", default="1,8,32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json")
    given = parser.parse_args()
    torch.set_num_threads(1)
    lengths, batches = (list(map(int, x.split(","))) for x in (given.lengths, given.batches))
    if given.quick:
        lengths, batches, given.rounds = [8], [2], 1
    shown, kept, rng = [], [], np.random.default_rng(0)
    with TemporaryDirectory() as made:
        size = "quick" if given.quick else given.size
        model = Path(given.model or random_model(Path(made) / "model", size))
        sides = sides_of(model, Path(made))
        for length in lengths:
            for rows in batches:
                ids_BL = rng.integers(5, VOCABULARY if not given.model else 100, (rows, length))
                inputs = (ids_BL, np.ones_like(ids_BL))
                runs = {name: lambda f=f, x=inputs: f(*x) for name, f in sides.items()}
                first = {name: timed(run, 1) for name, run in runs.items()}  # and warm up
                repeats = max(1, round(LEAST_SECONDS * 1000 / max(first.values())))
                if given.quick:
                    repeats = 1
                times = in_turns(
                    {name: lambda r=run, n=repeats: timed(r, n) for name, run in runs.items()},
                    rounds=given.rounds,
                    title=f"{rows} x {length}",
                )
                faster = [
                    spread(ratios(times["torch"], times[name])) for name in sides if name != "torch"
                ]
                medians = [f"{statistics.median(times[name]):.1f}" for name in sides]
                shown.append([f"{rows} x {length}", *medians, *faster])
                kept.append({"case": f"{rows} x {length}", "milliseconds": times})
    header = ["rows x tokens", *(f"{name} ms" for name in sides)]
    print(table([*header, "onnxruntime: times as fast", "int8: times as fast"], shown))
    write_json(given.json, kept)


if __name__ == "__main__":
    main()
