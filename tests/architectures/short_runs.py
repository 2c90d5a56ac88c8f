"""What the runs of the architectures have in common: eight updates of two blocks, and what is read
back from their folders."""

from pathlib import Path
from typing import Any

import torch
import transformers

from electrify import detect
from electrify.build import Built, Vocabulary, compose
from electrify.recipe import load
from electrify.text.corpus import Corpus
from electrify.tokens import from_sequences
from electrify.train import checkpoint
from small import pretrain_words

SHORT: dict[str, Any] = {
    "num_hidden_layers": 2,
    "max_steps": 8,
    "logging_steps": 4,
    "save_steps": 8,
    "eval_steps": 4,
}
TEXTS = ["the chef ate a meal", "the", "a meal that the chef ate was a meal of the chef"]


def deberta_words(
    data: Path, folder: Path, name: str = "electra-deberta", **fields: Any
) -> list[str]:
    """The command of a short run of a tiny recipe with DeBERTa's blocks."""
    own = SHORT | {"position_buckets": 8} | fields
    return [str(w) for w in pretrain_words(data, folder, recipe=f"{name}-tiny", **own)]


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
