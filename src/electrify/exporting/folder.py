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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import save_file

from ..architectures import architecture_named
from ..architectures.architecture import ExportedModel
from ..build import Built, Vocabulary, at_step, compose, dropout_of
from ..errors import UserError, failing_as, need
from ..files import json_text, must_be_ours, read_json, text_hash, written
from ..methods import DISCRIMINATOR, meaning_of
from ..onnx_models import GRAPH
from ..progress import say
from ..recipe import Recipe, load
from ..text.corpus import TOKENIZER
from ..text.tokenizer import TOKENIZER_FILE, TOKENIZER_FILES, rewrite_settings, tokenizer_files
from ..train import CONFIG, FACTS, checkpoint
from ..values import SpecialIds
from . import card
from .agreement import check_folder
from .card import Run
from .loading import load_config, load_tokenizer, positions_in, quiet
from .options import Export
from .places import METADATA, SETTINGS, metadata_of

WEIGHTS = "model.safetensors"
CARD = "README.md"
FILES = {SETTINGS, WEIGHTS, f"{WEIGHTS}.index.json", GRAPH, CARD, METADATA, *TOKENIZER_FILES}
DECISIVE = ("run", "data", "source", "part", "format")
"""What the metadata of two models that are the same at another step has in common."""
MAX_SEQ_LENGTH = 512
"""That of `electrify embed`."""

# ------------------------------------------------------------------ commands


def export_run(
    run: Path, built: Built | None, *, config: Recipe, facts: Mapping[str, Any]
) -> dict[str, Path]:
    """Writes RUN/discriminator and, where there is one, RUN/generator at the end of a run. Returns
    the folders by network.

    built: the networks in memory; None if they are sharded, then those of the newest checkpoint.
    facts: what run.json holds.
    Raises UserError if a folder of that name is not an export of ours, ExportError if transformers
    does not compute the same.
    """
    its = Run(run, config, facts)
    built = built or _restored(its, config.train.max_steps)[0]
    return {name: _write(its, built, name, run / name) for name in built.exports}


def export(
    run: str | Path, output_dir: str | Path, *, part: str = DISCRIMINATOR, step: int | None = None
) -> Path:
    """Writes one network of a checkpoint (by default the newest complete one) of the run folder
    `run` to `output_dir`, and returns that.

    Raises UserError if the run has no checkpoint or no such part, if `output_dir` holds something
    else, and like `export_run`.
    """
    its = Run(Path(run), *read_run(Path(run)))
    built, state = _restored(its, step)
    objective, known = its.config.objective.objective, ", ".join(built.exports)
    need(
        part in built.exports, f"{run} has no {part}: its objective {objective} trains {known} only"
    )
    if note := card.so_far(its.config, part, state):
        say(f"{part} of {run}, checkpoint {state['step']:,}: {note}")
    return _write(its, built, part, Path(output_dir), state)


def read_run(run: Path) -> tuple[Recipe, dict[str, Any]]:
    """Recipe and facts of a run folder. Raises UserError."""
    return load(run / CONFIG, trusted=False), read_json(run / FACTS)


def special_ids(facts: Mapping[str, Any]) -> SpecialIds:
    """Those of run.json; text.tokenizer finds those of a tokenizer."""
    ids = facts["special_ids"]
    return SpecialIds(**(ids | {"others": tuple(ids["others"])}))


def _restored(its: Run, step: int | None) -> tuple[Built, dict[str, Any]]:
    """The networks with the parameters of a checkpoint (by default the newest that is whole), in
    the phase of its step, and its state."""
    run, config, facts = its.folder, its.config, its.facts
    if step is None:
        found = checkpoint.newest(run)
        if found is None:
            raise UserError(f"{run} has no complete checkpoint. Continue it until it has saved one")
        tensors, state = found
    else:
        there = checkpoint.steps(run)
        known = ", ".join(map(str, there)) or "none"
        need(step in there, f"{run} has no checkpoint of step {step}; there are: {known}")
        tensors, state = checkpoint.load(checkpoint.folder_of(run, step))
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


@contextmanager
def model_folder(target: Path, metadata: Mapping[str, Any]) -> Iterator[Path]:
    """A hidden folder beside the target, which takes its place when the block ends without an
    error. What the user has put beside an earlier model stays. Raises UserError if the target is
    not ours, or holds another model, or the same in another format."""
    must_be_ours(target, METADATA)
    earlier = metadata_of(str(target)) if target.is_dir() else {}
    need(
        not earlier or all(earlier.get(key) == metadata.get(key) for key in DECISIVE),
        f"{target} holds another model ({earlier.get('part')})",
        "choose another --output-dir",
    )
    with written(target.resolve()) as new:
        new.mkdir(parents=True)
        yield new
        write_json(new / METADATA, metadata)
        for path in target.iterdir() if target.is_dir() else ():
            if path.name not in FILES and not (new / path.name).exists():
                copy = shutil.copytree if path.is_dir() else shutil.copy2
                copy(path, new / path.name)


def write_json(path: Path, value: Any) -> None:
    path.write_text(f"{json_text(value, indent=1)}\n", encoding="utf-8")


def _write(
    its: Run, built: Built, part: str, target: Path, state: Mapping[str, Any] | None = None
) -> Path:
    """Written beside the target, checked there, and renamed. state: that of a checkpoint."""
    config, facts, model = its.config, its.facts, built.exports[part]
    special, named = special_ids(facts), config.model.architecture
    of_run = text_hash(json.dumps([facts["recipe"], facts["starts"]], sort_keys=True))
    metadata = card.details(its) | {
        "part": part,
        "objective": config.objective.objective,
        "logits": meaning_of(config, part),
        "data": facts["data"],
        "run": of_run,
        **({"architecture": named} if ":" in named else {}),
    }
    with model_folder(target, metadata) as new:
        _copy_tokenizer(its.folder, new, model=model)
        write_model(new, model, special=special, **dropout_of(config.model, part))
        check_folder(new, model, special)
        text = card.model_card(its, part, model, state)
        (new / CARD).write_text(text, encoding="utf-8")
    return target


def write_model(folder: Path, model: ExportedModel, *, special: SpecialIds, **dropout: Any) -> None:
    """config.json and model.safetensors of a network. dropout: as build.dropout_of."""
    known, shape, kind = model.architecture, model.encoder.shape, model.head.kind
    with quiet():
        known.hf_config(shape, kind, special=special, **dropout).save_pretrained(folder)
    tensors = {name: t.float().cpu() for name, t in model.exported().items()}
    # Of a full disk it tells by an error of its own.
    with failing_as(f"{folder / WEIGHTS} could not be written"):
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    # The library makes a file that only its owner may read.
    shutil.copymode(folder / SETTINGS, folder / WEIGHTS)


def _copy_tokenizer(run: Path, folder: Path, *, model: ExportedModel) -> None:
    """The run's tokenizer, with the inputs that its model reads and the length that sequences may
    have. Word pieces get a vocab.txt, which older tools read."""
    for path in tokenizer_files(run / TOKENIZER):
        shutil.copyfile(path, folder / path.name)
    # The tokenizer's own number is of its making, before a recipe said how long rows are.
    positions = model.encoder.shape.max_position_embeddings
    names = list(model.architecture.input_names)
    own = {"model_max_length": positions, "model_input_names": names}
    rewrite_settings(folder, **own, padding_side="right", truncation_side="right")
    pieces = read_json(folder / TOKENIZER_FILE)["model"]
    # Pieces without the mark of a continued word are not what such tools expect.
    marked = pieces.get("type") == "WordPiece" and pieces.get("continuing_subword_prefix") != ""
    if marked and not (folder / "vocab.txt").is_file():
        words = sorted(pieces["vocab"], key=pieces["vocab"].__getitem__)
        (folder / "vocab.txt").write_text("".join(f"{w}\n" for w in words), encoding="utf-8")


# ------------------------------------------------------------------ formats


def export_as(options: Export) -> str:
    """Exports a network of a run, or a Hugging Face folder in another format. Returns what was
    written, for the user. Raises UserError."""
    target, model = Path(options.output_dir), options.model
    which: dict[str, Any] = {"part": options.part, "step": options.step}
    if options.format == "hf":
        return str(export(model, target, **which))
    with TemporaryDirectory() as made:
        if (Path(model) / CONFIG).is_file():
            model = str(export(model, Path(made) / options.part, **which))
        metadata = metadata_of(model) | {"format": options.format}
        if "run" not in metadata:  # without naming a folder of this machine
            place = str(Path(model).resolve()) if Path(model).is_dir() else model
            metadata["source"] = text_hash(place)
        with model_folder(target, metadata) as new:
            if options.format == "sentence-transformers":
                write_sentence_transformer(model, new)
                return f"{target}: SentenceTransformer({str(target)!r}) loads it"
            from .onnx import write_onnx

            report = write_onnx(model, new, metadata, quantize=options.quantize)
            return f"{target / GRAPH}: {report}"


def write_sentence_transformer(model: str, folder: Path) -> None:
    """A copy of a Hugging Face folder that SentenceTransformer loads as the encoder of `electrify
    embed`: the mean of the states of all tokens. Raises UserError."""
    source = Path(model)
    need(source.is_dir(), f"{model} is no folder here. Download it first (hf download)")
    config: Any = load_config(model)
    load_tokenizer(model, vocab_size=config.vocab_size)
    relative = not getattr(config, "position_biased_input", True)
    length = MAX_SEQ_LENGTH if relative else min(MAX_SEQ_LENGTH, positions_in(config))
    of = "sentence_transformers.models"  # these names are those of version 5, too
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": f"{of}.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{of}.Pooling"},
    ]
    pooling = {"word_embedding_dimension": config.hidden_size, "pooling_mode_mean_tokens": True}
    for path in source.iterdir():
        if path.name in FILES or path.suffix == ".safetensors":
            shutil.copy2(path, folder / path.name)
    (folder / "1_Pooling").mkdir()
    write_json(folder / "modules.json", modules)
    write_json(folder / "1_Pooling" / SETTINGS, pooling)
    settings = {"max_seq_length": length, "do_lower_case": False}
    write_json(folder / "sentence_bert_config.json", settings)
