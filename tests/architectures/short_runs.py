"""What the runs of the architectures have in common: eight updates of two blocks, and what is read
back from their folders."""

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor

from batches import from_sequences
from electrify import detect
from electrify.build import Built, Vocabulary, compose
from electrify.recipe import load
from electrify.text.corpus import Corpus
from electrify.train import checkpoint

SHORT: dict[str, Any] = {"num_hidden_layers": 2, "max_steps": 8, "logging_steps": 4}
SHORT |= {"save_steps": 8, "eval_steps": 4}
# One update that changes nothing visible.
STILL = {"max_steps": 1, "eval_steps": 0, "learning_rate": 1e-12, "weight_decay": 0}
TEXTS = ["the chef ate a meal", "the", "a meal that the chef ate was a meal of the chef"]


def config_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())


def weights_of(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


def same(start: Path, made: Path, prefix: str) -> None:
    """The weights whose names begin so are equal but for `STILL`."""
    before, after = weights_of(start), weights_of(made)
    names = [name for name in after if name.startswith(prefix)]
    assert names
    for name in names:
        torch.testing.assert_close(after[name], before[name], atol=1e-6, rtol=0)


def network(data: Path, folder: Path) -> Built:
    """That of the last checkpoint of a run."""
    manifest = Corpus(data, "train").manifest
    vocabulary = Vocabulary(manifest.vocab_size, manifest.special_ids)
    built = compose(load(folder / "config.yaml"), vocabulary)
    tensors, _ = checkpoint.load(folder / "checkpoint-8")
    built.objective.load_state_dict(tensors["model"], strict=False)
    built.objective.eval()
    return built


@torch.no_grad()
def detects_as_the_run(data: Path, run: Path) -> None:
    """float32, of texts of different lengths in one batch."""
    kept, folder = network(data, run).discriminator, str(run / "discriminator")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    every = []
    for text, found in zip(TEXTS, detect(folder, TEXTS), strict=True):
        ids = tokenizer(text)["input_ids"]
        tokens = from_sequences([ids], row_length=len(ids), pad=tokenizer.pad_token_id)
        logits = kept.head(kept.head.inputs(kept.encoder(tokens), tokens))
        said = torch.tensor([p.probability for p in found.tokens])
        assert torch.allclose(said.logit(), logits[1:-1], atol=1e-5)
        every += said.tolist()
    assert len(set(every)) > len(TEXTS)
