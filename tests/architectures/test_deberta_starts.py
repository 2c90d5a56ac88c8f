"""Runs that start from folders as Microsoft publishes them: small random networks of the same
classes, with the published values of config.json."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file

from electrify import cli, detect
from electrify.exporting.loading import quiet
from electrify.text.corpus import Corpus
from published import DEBERTA_V3
from small import mistake, pretrain_words

# What config.json of microsoft/deberta-v3-base says, which names neither a class nor `legacy`;
# without dropout.
PUBLISHED: dict[str, Any] = DEBERTA_V3 | {
    "model_type": "deberta-v2",
    "attention_probs_dropout_prob": 0.0,
    "hidden_dropout_prob": 0.0,
    "pooler_dropout": 0,
    "pooler_hidden_act": "gelu",
}
SMALL: dict[str, Any] = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 48}
DETECTS = {
    "dense.weight": (32, 32),
    "dense.bias": (32,),
    "LayerNorm.weight": (32,),
    "LayerNorm.bias": (32,),
    "classifier.weight": (1, 32),
    "classifier.bias": (1,),
}


def folder_of(path: Path, data: Path, name: str, blocks: int = 2, **more: Any) -> Path:
    """A random network of a class of the library, every parameter of it drawn."""
    words = Corpus(data, "train").manifest.vocab_size
    sizes = SMALL | {"num_hidden_layers": blocks, "vocab_size": words}
    config = transformers.DebertaV2Config(**PUBLISHED | sizes | more)
    model = getattr(transformers, name)(config)
    rng = torch.Generator().manual_seed(blocks)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.1 * torch.randn(p.shape, generator=rng) + (p.ndim == 1))
    with quiet():
        model.save_pretrained(path)
    return path


def published(path: Path, data: Path, blocks: int = 2) -> Path:
    """As on the Hub: both heads under Microsoft's names, a table of positions that nothing reads,
    and a config.json without class and form of the head."""
    folder_of(path, data, "DebertaV2ForMaskedLM", blocks, legacy=False)
    config = json.loads((path / "config.json").read_text())
    kept = {key: config[key] for key in PUBLISHED}
    (path / "config.json").write_text(json.dumps(kept | {"pos_att_type": "p2c|c2p"}))
    weights = load_file(path / "model.safetensors")
    rng = torch.Generator().manual_seed(9)
    weights |= {
        f"mask_predictions.{name}": torch.randn(shape, generator=rng)
        for name, shape in DETECTS.items()
    }
    weights["deberta.embeddings.position_embeddings.weight"] = torch.ones(512, 32)
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    return path


def line_of(data: Path, folder: Path, recipe: str, **fields: Any) -> list[str]:
    """A run of one update that changes nothing visible."""
    still = {"max_steps": 1, "eval_steps": 0, "learning_rate": 1e-12, "weight_decay": 0}
    return [str(w) for w in pretrain_words(data, folder, recipe=recipe, **still | fields)]


def same(start: Path, made: Path, prefix: str) -> None:
    before, after = (load_file(folder / "model.safetensors") for folder in (start, made))
    bare = not any(name.startswith("deberta.") for name in before)
    before = {f"deberta.{name}" if bare else name: t for name, t in before.items()}
    names = [name for name in after if name.startswith(prefix)]
    assert names
    for name in names:
        torch.testing.assert_close(after[name], before[name], atol=1e-6, rtol=0)


def test_both_halves_of_a_published_pair(small_data, tmp_path, capsys):
    """Encoder and language model's head of both; the head that detects is of another form than the
    linear one."""
    kept = published(tmp_path / "kept", small_data)
    generator = published(tmp_path / "generator", small_data, blocks=1)
    fields = {"init_discriminator": kept, "init_generator": generator}
    line = line_of(small_data, tmp_path / "run", "electra-deberta-tiny", **fields)
    assert cli.main(line) == 0
    said = capsys.readouterr().err
    assert (
        f"discriminator: {kept}: it has no weights of the head, which keeps its initial values"
        in said
    )
    assert f"{kept}: ignored 11 weights without a place here (lm_predictions." in said
    assert f"generator: {generator}: left out deberta.embeddings.position_embeddings" in said
    assert f"discriminator: {kept}: left out" not in said
    same(kept, tmp_path / "run" / "discriminator", "deberta.")
    same(generator, tmp_path / "run" / "generator", "lm_predictions.")
    same(generator, tmp_path / "run" / "generator", "deberta.")
    config = json.loads((tmp_path / "run" / "generator" / "config.json").read_text())
    assert (config["num_hidden_layers"], config["position_buckets"]) == (1, 256)


def test_the_head_that_detects(small_data, tmp_path, capsys):
    """With rtd_head v3, the run goes on with it, and leaves it under the same names."""
    start = published(tmp_path / "start", small_data)
    fields = {"init_discriminator": start, "rtd_head": "v3"}
    assert cli.main(line_of(small_data, tmp_path / "run", "corrective-deberta-tiny", **fields)) == 0
    said = capsys.readouterr().err
    assert "keeps its initial values" not in said
    assert f"{start}: ignored 5 weights without a place here (lm_predictions." in said
    same(start, tmp_path / "run" / "discriminator", "mask_predictions.")
    same(start, tmp_path / "run" / "discriminator", "deberta.")


def test_detecting_with_a_published_folder(small_data, tmp_path, capsys):
    """By its own head, computed from the states that the library gives; a folder without it is
    refused."""
    start = published(tmp_path / "start", small_data)
    tokenizer = transformers.AutoTokenizer.from_pretrained(small_data / "tokenizer")
    tokenizer.save_pretrained(start)
    text = "the chef ate a meal"
    (found,) = detect(str(start), [text])
    with quiet():
        model = transformers.AutoModel.from_pretrained(start)
    w = {
        name.removeprefix("mask_predictions."): t
        for name, t in load_file(start / "model.safetensors").items()
        if name.startswith("mask_predictions.")
    }
    with torch.no_grad():
        x = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        x = F.layer_norm(x + x[0], (32,), w["LayerNorm.weight"], w["LayerNorm.bias"], 1e-7)
        x = F.gelu(F.linear(x, w["dense.weight"], w["dense.bias"]))
        wanted = F.linear(x, w["classifier.weight"], w["classifier.bias"])[1:-1, 0].sigmoid()
    said = torch.tensor([piece.probability for piece in found.tokens])
    assert torch.allclose(said, wanted, atol=1e-5)
    assert float(said.std()) > 1e-2
    weights = load_file(start / "model.safetensors")
    del weights["mask_predictions.dense.bias"]
    save_file(weights, start / "model.safetensors", metadata={"format": "pt"})
    assert "has no replaced-token head" in mistake(capsys, "detect", str(start), text)


@pytest.mark.parametrize(
    "more", [{"conv_kernel_size": 3}, {"share_att_key": False}, {"pos_att_type": "p2c"}], ids=str
)
def test_another_encoder_of_the_family_is_refused(more, small_data, tmp_path, capsys):
    start = folder_of(tmp_path / "start", small_data, "DebertaV2Model", **more)
    line = line_of(small_data, tmp_path / "run", "bert-deberta-tiny", init_discriminator=start)
    said = mistake(capsys, *line)
    assert "computes what our encoder does not" in said
    assert next(iter(more)) in said
