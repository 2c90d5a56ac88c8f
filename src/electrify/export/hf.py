"""A network of a run -> Hugging Face folder, checked by loading it with transformers before it is
put in place.

    DIR/config.json
        model.safetensors      float32
        tokenizer.json, tokenizer_config.json
        vocab.txt              of word pieces only
        README.md
        electrify.json
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from ..architectures import architecture_named
from ..architectures.exported import ExportedModel
from ..architectures.keys import to_theirs
from ..build import Built, Vocabulary, at_step, compose, dropout_of
from ..config.export import ExportConfig
from ..config.given import path_of
from ..config.networks import KEPT, meaning_of, network_names
from ..config.pretrain import PretrainConfig, load_file
from ..errors import UserError
from ..model.shape import Shape
from ..oldfiles.folders import sha256
from ..oldfiles.model_folder import CARD, may_write, replaced, sealed
from ..oldfiles.reading import is_there
from ..oldfiles.run_folder import CONFIG, FACTS, TOKENIZER, checkpoint_folder, numbered
from ..oldfiles.schema import check
from ..oldfiles.tokenizers import (
    copy_tokenizer,
    read_settings,
    read_tokenizer,
    without_origin,
    write_settings,
)
from ..progress import say
from ..tokens import SpecialIds
from ..train import checkpoint
from ..train.decisive import must_agree, must_be_of_recipe
from ..train.facts import read_facts
from ..train.saved import current_names, must_be_floats, must_be_state
from . import card
from .agreement import check_folder
from .learned import so_far
from .places import must_be_run
from .quiet import quiet
from .starting_weights import folder_shape

TRIES = 5

# ------------------------------------------------------------------ verbs


def export_run(run: Path, *, built: Built | None) -> dict[str, Path]:
    """Writes RUN/discriminator and, where there is one, RUN/generator from the networks in memory,
    or without them from the newest checkpoint. Returns the folders by network.

    Raises UserError if a folder of that name is not an export of ours, ExportError if transformers
    does not compute the same.
    """
    config, facts = read_run(run)
    built = built or _restored(config, facts, _checkpoint(run, None))[0]
    folders = {}
    for name in built.exports:
        folders[name] = _write(
            run, built, name, run / name, config=config, facts=facts, state=None, top=run
        )
    return folders


def export(
    run: str | Path, *, output_dir: str | Path, part: str = KEPT, step: int | None = None
) -> Path:
    """Writes one network of a checkpoint (by default the newest complete one) of the run folder
    `run` to `output_dir`, and returns that.

    Raises UserError if the run has no checkpoint or no such part, if `output_dir` holds something
    else, and like `export_run`.
    """
    run = path_of(run, "the run")
    given = ExportConfig(output_dir=str(path_of(output_dir, "output_dir")), part=part, step=step)
    output_dir = Path(given.output_dir)
    step = given.step
    config, facts = read_run(run)
    may_write(output_dir, identity_of(run, part, config, facts))
    built, state = _found(run, step, config, facts)
    if part not in built.exports:
        raise UserError(
            f"{run} has no {part}: its objective {config.objective.objective} trains "
            f"{', '.join(built.exports)} only"
        )
    if note := so_far(config, part=part, state=state):
        say(f"{part} of {run}, checkpoint {state['step']:,}: {note}")
    return _write(run, built, part, output_dir, config=config, facts=facts, state=state)


def read_run(run: Path) -> tuple[PretrainConfig, dict[str, Any]]:
    """Recipe and facts of a run folder. Raises UserError if it is not one, or if the two are not of
    one run."""
    must_be_run(run)
    config, facts = load_file(run / CONFIG, within=run), read_facts(run)[1]
    must_agree(run, config, facts)
    return config, facts


def special_ids(facts: Mapping[str, Any]) -> SpecialIds:
    ids = facts["special_ids"]
    return SpecialIds(**(ids | {"others": tuple(ids["others"])}))


def _checkpoint(run: Path, step: int | None) -> Path:
    there = sorted(found.step for found in numbered(run))
    if step is not None:
        if step not in there:
            raise UserError(
                f"{run} has no checkpoint of step {step}; there are: "
                f"{', '.join(map(str, there)) or 'none'}"
            )
        return checkpoint_folder(run, step)
    found = checkpoint.newest(run)
    if found is None:
        left = [name for name in network_names() if (run / name).exists()]
        advice = f"copy what it exported at its end ({', '.join(left)})"
        if KEPT not in left:
            advice = "continue the run until it has saved one"
        raise UserError(f"{run} has no complete checkpoint to export; {advice}")
    return found.path


def _found(
    run: Path, step: int | None, config: PretrainConfig, facts: Mapping[str, Any]
) -> tuple[Built, dict[str, Any]]:
    """The networks of the wanted checkpoint and its state. A run at work removes old checkpoints:
    if none was asked for, the newest is looked for again."""
    for left in reversed(range(TRIES)):
        there = [found.path for found in numbered(run)]
        try:
            return _restored(config, facts, _checkpoint(run, step))
        except UserError:
            if step is not None or not left or all(path.exists() for path in there):
                raise
    raise AssertionError


def _generator_shape(config: PretrainConfig, facts: Mapping[str, Any]) -> Shape | None:
    """The generator's shape if a folder decided it (written into run.json, because that folder may
    be gone)."""
    written = facts.get("shapes", {}).get("generator")
    if written:
        return check(architecture_named(config.model.architecture).shape_type, written, FACTS)
    start = config.train.init_generator
    return folder_shape(start, config.model.architecture) if start else None


def _restored(
    config: PretrainConfig, facts: Mapping[str, Any], path: Path
) -> tuple[Built, dict[str, Any]]:
    """The networks of a checkpoint, and its state."""
    generator = _generator_shape(config, facts)
    built = compose(
        config, Vocabulary(facts["vocab_size"], special_ids(facts)), generator=generator
    )
    tensors, state = checkpoint.load(path)
    tensors = current_names(tensors)
    must_be_state(path, state)
    must_be_of_recipe(path, state, config)
    _fill(built, tensors.get("model", {}), path)
    return at_step(built, config, state["step"]), state


def _fill(built: Built, saved: Mapping[str, Tensor], path: Path) -> None:
    named = dict(built.objective.named_parameters())
    mine = {n: tuple(p.shape) for n, p in named.items()}
    theirs = {n: tuple(t.shape) for n, t in saved.items()}
    if mine != theirs:
        odd = sorted(n for n in mine.keys() | theirs.keys() if mine.get(n) != theirs.get(n))
        raise UserError(
            f"{path} is not of the recipe in config.yaml: {odd[0]} is {theirs.get(odd[0])} there, "
            f"{mine.get(odd[0])} by the recipe"
        )
    must_be_floats(path, saved)
    with torch.no_grad():
        for name, p in named.items():
            p.copy_(saved[name])


# ------------------------------------------------------------------ one folder


def identity_of(
    run: Path, part: str, config: PretrainConfig, facts: Mapping[str, Any]
) -> dict[str, Any]:
    """What tells this network from others, for its mark: the same run at another step is the same
    model."""
    recipe = sha256(run / CONFIG)
    if recipe is None:
        raise UserError(f"{run / 'config.yaml'} is gone; put it back, and export again")
    return {
        "part": part,
        "objective": config.objective.objective,
        "logits": meaning_of(config, part),
        "data": facts.get("data"),
        "run": recipe,
    }


def _write(
    run: Path,
    built: Built,
    part: str,
    target: Path,
    *,
    config: PretrainConfig,
    facts: dict[str, Any],
    state: Mapping[str, Any] | None,
    top: Path | None = None,
) -> Path:
    """Written into a hidden folder, checked there, and put in place file by file. state: that of a
    checkpoint. top: the folder that `target` must not leave by a link."""
    model = built.exports[part]
    try:
        with replaced(target, identity_of(run, part, config, facts), top=top) as new:
            _copy_tokenizer(run, new, facts=facts, model=model)
            dropout = dropout_of(config.model, part)
            write_model(new, model, special=special_ids(facts), **dropout)
            check_folder(new, model, special_ids(facts))
            text = card.model_card(run, part=part, model=model, facts=facts, state=state)
            (new / CARD).write_text(sealed(text), encoding="utf-8")
    except (OSError, SafetensorError) as e:
        raise UserError(
            f"{target} could not be written ({getattr(e, 'strerror', None) or e})"
        ) from e
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
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _copy_tokenizer(
    run: Path, folder: Path, *, facts: Mapping[str, Any], model: ExportedModel
) -> None:
    """The run's tokenizer, with the inputs that its model reads and the length that sequences may
    have. Word pieces get a vocab.txt, which older tools read."""
    source = run / TOKENIZER
    if not is_there(source / "tokenizer.json"):
        raise UserError(
            f"{source} has no tokenizer.json; the run folder is damaged: copy the folder "
            "`tokenizer` of its prepared corpus there"
        )
    copy_tokenizer(source, folder, within=run, hashes=facts.get("tokenizer_files"))
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
