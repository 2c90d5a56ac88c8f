"""A network of a run -> Hugging Face folder, checked by loading it with transformers before it is
put in place.

    DIR/config.json
        model.safetensors      float32
        tokenizer.json, tokenizer_config.json
        vocab.txt              of word pieces only
        README.md
        electrify.json

`electrify export` also makes other formats of such a folder: a graph for onnxruntime, or a folder
of sentence-transformers.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from ..architectures import architecture_named
from ..architectures.architecture import ExportedModel
from ..architectures.keys import to_theirs
from ..build import Built, Vocabulary, at_step, compose, dropout_of
from ..errors import UserError, need
from ..files import json_text, must_be_ours, read_json, text_hash, written
from ..progress import say
from ..recipe import Recipe, load
from ..tables import DISCRIMINATOR, meaning_of
from ..text.corpus import TOKENIZER
from ..text.tokenizer import (
    TOKENIZER_FILES,
    copy_tokenizer,
    read_settings,
    read_tokenizer,
    without_origin,
    write_settings,
)
from ..tokens import SpecialIds
from ..train import CONFIG, FACTS, checkpoint
from . import card
from .agreement import check_folder
from .loading import load_config, load_tokenizer, positions_in, quiet
from .places import METADATA, check_place, metadata_of, model_in, must_be_run

SETTINGS = "config.json"
WEIGHTS = "model.safetensors"
CARD = "README.md"
MAX_SEQ_LENGTH = 512
"""That of `electrify embed`."""
FILES = {SETTINGS, WEIGHTS, CARD, METADATA, *TOKENIZER_FILES}

# ------------------------------------------------------------------ commands


def export_run(
    run: Path,
    built: Built | None,
    *,
    config: Recipe,
    facts: dict[str, Any],
) -> dict[str, Path]:
    """Writes RUN/discriminator and, where there is one, RUN/generator at the end of a run. Returns
    the folders by network.

    built: the networks in memory; None if they are sharded, then those of the newest checkpoint.
    facts: what run.json holds.
    Raises UserError if a folder of that name is not an export of ours, ExportError if transformers
    does not compute the same.
    """
    if built is None:
        newest = checkpoint.folder_of(run, config.train.max_steps)
        built, _ = _restored(config, facts, *checkpoint.load(newest))
    return {
        name: _write(run, built, name, run / name, config=config, facts=facts)
        for name in built.exports
    }


def export(
    run: str | Path, output_dir: str | Path, *, part: str = DISCRIMINATOR, step: int | None = None
) -> Path:
    """Writes one network of a checkpoint (by default the newest complete one) of the run folder
    `run` to `output_dir`, and returns that.

    Raises UserError if the run has no checkpoint or no such part, if `output_dir` holds something
    else, and like `export_run`.
    """
    run, output_dir = Path(run), Path(output_dir)
    config, facts = read_run(run)
    built, state = _found(run, step, config, facts)
    need(
        part in built.exports,
        f"{run} has no {part}: its objective {config.objective.objective} trains "
        f"{', '.join(built.exports)} only",
    )
    if note := card.so_far(config, part=part, state=state):
        say(f"{part} of {run}, checkpoint {state['step']:,}: {note}")
    return _write(run, built, part, output_dir, config=config, facts=facts, state=state)


def read_run(run: Path) -> tuple[Recipe, dict[str, Any]]:
    """Recipe and facts of a run folder. Raises UserError if it is not one."""
    must_be_run(run)
    return load(run / CONFIG, trusted=False), read_json(run / FACTS)


def special_ids(facts: Mapping[str, Any]) -> SpecialIds:
    ids = facts["special_ids"]
    return SpecialIds(**(ids | {"others": tuple(ids["others"])}))


def _found(
    run: Path, step: int | None, config: Recipe, facts: Mapping[str, Any]
) -> tuple[Built, dict[str, Any]]:
    """The networks of the wanted checkpoint (by default the newest that is whole) and its state."""
    there = checkpoint.steps(run)
    if step is not None:
        known = ", ".join(map(str, there)) or "none"
        need(step in there, f"{run} has no checkpoint of step {step}; there are: {known}")
        return _restored(config, facts, *checkpoint.load(checkpoint.folder_of(run, step)))
    found = checkpoint.newest(run)
    if found is None:
        raise UserError(
            f"{run} has no complete checkpoint to export", "continue the run until it has saved one"
        )
    return _restored(config, facts, *found[1:])


def _restored(
    config: Recipe,
    facts: Mapping[str, Any],
    tensors: Mapping[str, Mapping[str, Tensor]],
    state: dict[str, Any],
) -> tuple[Built, dict[str, Any]]:
    """The networks with the parameters of a checkpoint, in the phase of their step, and its
    state."""
    kind = architecture_named(config.model.architecture).shape_type
    generator = facts["shapes"].get("generator")
    built = compose(
        config,
        Vocabulary(facts["vocab_size"], special_ids(facts)),
        generator=kind(**generator) if generator else None,
    )
    with torch.no_grad():
        for name, p in built.objective.named_parameters():
            p.copy_(tensors["model"][name])
    return at_step(built, config, state["step"]), state


# ------------------------------------------------------------------ one folder


def identity_of(part: str, config: Recipe, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What tells this network from others, for its metadata: the same run at another step is the
    same model."""
    of_run = json.dumps([facts["recipe"], facts["starts"]], sort_keys=True)
    named = config.model.architecture
    return {
        **({"architecture": named} if ":" in named else {}),
        "part": part,
        "objective": config.objective.objective,
        "logits": meaning_of(config, part),
        "data": facts["data"],
        "run": text_hash(of_run),
    }


def _write(
    run: Path,
    built: Built,
    part: str,
    target: Path,
    *,
    config: Recipe,
    facts: dict[str, Any],
    state: Mapping[str, Any] | None = None,
) -> Path:
    """Written into a hidden folder beside the target, checked there, and renamed. state: that of a
    checkpoint."""
    model, special = built.exports[part], special_ids(facts)
    identity = identity_of(part, config, facts)
    must_be_ours(target, METADATA)
    earlier = metadata_of(str(target)) if target.is_dir() else {}
    need(
        not earlier or all(earlier.get(key) == identity[key] for key in ("part", "run")),
        f"{target} holds another model ({earlier.get('part')})",
        "choose another --output-dir",
    )
    with written(target.resolve()) as new:
        new.mkdir(parents=True)
        _copy_tokenizer(run, new, model=model)
        write_model(new, model, special=special, **dropout_of(config.model, part))
        check_folder(new, model, special)
        how = {"part": part, "model": model, "config": config, "facts": facts, "state": state}
        text = card.model_card(run, **how)
        (new / CARD).write_text(text, encoding="utf-8")
        metadata = identity | card.details(config, facts)
        (new / METADATA).write_text(f"{json_text(metadata, indent=1)}\n", encoding="utf-8")
        # What the user has put beside a model stays when the model is replaced.
        for path in target.iterdir() if target.is_dir() else ():
            if path.name not in FILES:
                copy = shutil.copytree if path.is_dir() else shutil.copy2
                copy(path, new / path.name)
    return target


def write_model(
    folder: Path,
    model: ExportedModel,
    *,
    special: SpecialIds,
    dropout: float,
    attention_dropout: float,
) -> None:
    """config.json and model.safetensors of a network."""
    with quiet():
        config = model.architecture.hf_config(
            model.encoder.shape,
            model.head.kind,
            special=special,
            dropout=dropout,
            attention_dropout=attention_dropout,
        )
        config.save_pretrained(folder)
    theirs = to_theirs(model.table().rows, model.parameters())
    tensors = {name: t.float().cpu() for name, t in theirs.items()}
    try:
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    except SafetensorError as e:  # a full disk, of which it tells in words of its own
        raise UserError(f"{folder / WEIGHTS} could not be written ({e})") from e
    # The library makes a file that only its owner may read.
    shutil.copymode(folder / SETTINGS, folder / WEIGHTS)


def _copy_tokenizer(run: Path, folder: Path, *, model: ExportedModel) -> None:
    """The run's tokenizer, with the inputs that its model reads and the length that sequences may
    have. Word pieces get a vocab.txt, which older tools read."""
    copy_tokenizer(run / TOKENIZER, folder)
    options = without_origin(read_settings(folder))
    # The tokenizer's own number is of its making, before a recipe said how long rows are.
    positions = model.encoder.shape.max_position_embeddings
    options |= {"model_max_length": positions, "padding_side": "right", "truncation_side": "right"}
    options["model_input_names"] = list(model.architecture.input_names)
    write_settings(folder, options)
    pieces = read_tokenizer(folder)["model"]
    # Pieces without the mark of a continued word are not what such tools expect.
    marked = pieces.get("type") == "WordPiece" and pieces.get("continuing_subword_prefix") != ""
    if marked and not (folder / "vocab.txt").is_file():
        words = sorted(pieces["vocab"], key=pieces["vocab"].__getitem__)
        (folder / "vocab.txt").write_text("".join(f"{w}\n" for w in words), encoding="utf-8")


# ------------------------------------------------------------------ formats


def export_as(
    name: str,
    output_dir: str | Path,
    *,
    part: str = DISCRIMINATOR,
    step: int | None = None,
    format: str = "hf",  # noqa: A002 as the flag
    quantize: Literal["none", "int8"] = "none",
) -> str:
    """Exports a network of a run, or a Hugging Face folder in another format, see options.py.
    Returns what was written, for the user. Raises UserError."""
    target = Path(output_dir)
    if format == "hf":
        return str(export(name, target, part=part, step=step))
    must_be_ours(target, METADATA)
    earlier = metadata_of(str(target)) if target.is_dir() else {}
    same = not earlier or earlier.get("format") == format
    need(same, f"{target} holds another model", "choose another --output-dir")
    with TemporaryDirectory() as made:
        if (Path(name) / CONFIG).is_file():
            model = str(export(name, Path(made) / part, part=part, step=step))
        else:
            need(part == DISCRIMINATOR and step is None, "--part and --step are for runs")
            model = model_in(name)
            check_place(model)
        if format == "sentence-transformers":
            return sentence_transformer(model, target)
        from .onnx import export_onnx

        return export_onnx(model, target, quantize=quantize)


def sentence_transformer(model: str, target: Path) -> str:
    """Writes a copy of a Hugging Face folder that SentenceTransformer loads as the encoder of
    `electrify embed`: the mean of the states of all tokens. Raises UserError."""
    source = Path(model)
    need(source.is_dir(), f"{model} is no folder here. Download it first (hf download)")
    config: Any = load_config(model)
    load_tokenizer(model, vocab_size=config.vocab_size)
    relative = not getattr(config, "position_biased_input", True)
    length = MAX_SEQ_LENGTH if relative else min(MAX_SEQ_LENGTH, positions_in(config))
    # These names are those of version 5, too.
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling")]
    modules = [
        {"idx": k, "name": str(k), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for k, (path, kind) in enumerate(kinds)
    ]
    pooling = {"word_embedding_dimension": config.hidden_size, "pooling_mode_mean_tokens": True}
    said = {
        "modules.json": modules,
        "1_Pooling/config.json": pooling,
        "sentence_bert_config.json": {"max_seq_length": length, "do_lower_case": False},
        METADATA: metadata_of(model) | {"format": "sentence-transformers"},
    }
    with written(target.resolve()) as new:
        (new / "1_Pooling").mkdir(parents=True)
        for path in source.iterdir():
            if path.name in FILES or path.suffix == ".safetensors":
                shutil.copy2(path, new / path.name)
        for name, content in said.items():
            (new / name).write_text(f"{json_text(content, indent=1)}\n", encoding="utf-8")
    return f"{target}: SentenceTransformer({str(target)!r}) loads it"
