"""Starting from Hugging Face folders: their shape, and their weights in one of our networks."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from ..architectures import architecture_named
from ..architectures.exported import ExportedModel
from ..architectures.keys import KeyMismatchError, KeyTable, to_ours, without_tied
from ..config.architectures import ARCHITECTURES
from ..errors import UserError, is_of_memory
from ..model.shape import Shape
from ..oldfiles.models import look_over
from ..oldfiles.reading import FileError
from ..text.tokenizer import without_code
from ..train.machine import loaded_must_fit
from .folders import (
    SAFE_WEIGHTS,
    computing_plainly,
    from_hub,
    logits_of,
    must_be_finite,
    said,
    unloadable,
)
from .places import start_of
from .quiet import quiet
from .starting_vocabulary import (
    about_padding,
    has_vocabulary,
    may_hold,
    other_vocabulary,
    without_padding,
)


def folder_shape(start: str, architecture: str, *, vocab_size: int | None = None) -> Shape:
    """The shape of the encoder in a Hugging Face folder or under a Hub id.

    vocab_size: that of the corpus, checked if given. Raises UserError if `start` is of another
    architecture or computes what our encoder does not.
    """
    shape = architecture_named(architecture).shape_of(_config(start, architecture))
    if vocab_size is None or shape.vocab_size == vocab_size:
        return shape
    if not (may_hold(shape.vocab_size, vocab_size) and has_vocabulary(start)):
        raise UserError(other_vocabulary(start, shape.vocab_size, vocab_size))
    return replace(shape, vocab_size=vocab_size)


def load_model(
    own: ExportedModel,
    start: str,
    *,
    what: str,
    given: ExportedModel | None = None,
    learns: bool = True,
) -> list[str]:
    """Fills a network of a run with the weights of a Hugging Face folder or Hub id (safetensors
    only). Returns lines that say what was missing or ignored. what: `discriminator` or `generator`.

    A head that the folder lacks keeps its initial values. given: the network that another folder
    has already filled: what the two share stays as that folder left it. learns: False for a network
    that stays as the folder leaves it, head and all. Raises UserError if the folder does not fit;
    then nothing has been changed.
    """
    config = _config(start, own.architecture.name)
    words = _must_fit(own, own.architecture.shape_of(config), start, what=what)
    table = own.table(model_type=config.model_type)
    model, missing, extra = _read(start, own.architecture.starting_class(table.name), config)
    if not own.architecture.has_head(config, own.head.kind):
        missing |= {name for row in table.head for name in row.theirs}
    _must_be_there(table, missing, start, what=what, learns=learns)
    left = own.architecture.left_out(own.head.kind, missing)
    if left and not learns:
        why = f"a frozen {what} does not learn to do without it"
        raise UserError(f"--init-{what} {start}: {left}; {why}")
    rows = [row for row in table.rows if not missing.intersection(row.theirs)]
    wanted = {name for row in rows for name in row.theirs} | set(table.tied)
    state = {name: t for name, t in model.state_dict().items() if name in wanted}
    try:
        new = to_ours(rows, without_tied(table, state))
    except KeyMismatchError as e:
        raise UserError(f"--init-{what} {start} cannot be read: {e}") from e
    lines = about_padding(start, what=what, **words) + _fit_segments(new, own, start, what=what)
    lines += _fill(own, without_padding(new, **words), start, what=what, given=given)
    lines += _account(table, rows, extra, start, what=what)
    lines += [f"{what}: {start}: {left}"] * bool(left)
    return lines or [f"{what}: {start}: every weight found and used"]


def _must_be_there(
    table: KeyTable, missing: set[str], start: str, *, what: str, learns: bool
) -> None:
    """Raises UserError if a folder lacks weights that the run cannot do without."""
    broken = sorted(name for row in table.encoder for name in row.theirs if name in missing)
    if broken:
        raise UserError(
            f"--init-{what} {start} lacks {len(broken)} weights of the encoder ({broken[0]}, ...): "
            "it is damaged or of another architecture"
        )
    headless = any(missing.intersection(row.theirs) for row in table.head)
    if not learns and (headless or logits_of(start_of(start)[0]) == "choice"):
        raise UserError(
            f"--init-{what} {start} has no head of a masked language model, and a frozen {what} "
            "learns none: take the generator/ folder of a run, or another masked language model"
        )


def _must_fit(own: ExportedModel, theirs: Shape, start: str, *, what: str) -> dict[str, int]:
    """The rows of a folder's table of words, and our tokens. Raises UserError if its encoder has
    another vocabulary or shape than ours."""
    shape = own.encoder.shape
    words = {"rows": theirs.vocab_size, "tokens": shape.vocab_size}
    theirs = replace(theirs, vocab_size=shape.vocab_size)
    if not may_hold(**words):
        odd = other_vocabulary(start, words["rows"], words["tokens"])
        raise UserError(f"--init-{what} {odd}")
    extended = ARCHITECTURES[own.architecture.name].extends.values()
    free = {"type_vocab_size", *extended}
    names = [f.name for f in fields(shape) if f.name not in free]
    differ = [
        f"{name} {getattr(theirs, name)} there, {getattr(shape, name)} here"
        for name in names
        if getattr(theirs, name) != getattr(shape, name)
    ]
    if differ:
        raise UserError(
            f"--init-{what} {start} has another shape than the {what} of this run: "
            f"{'; '.join(differ)}"
        )
    return words


def _fit_segments(
    new: dict[str, torch.Tensor], own: ExportedModel, start: str, *, what: str
) -> list[str]:
    """Gives the table of segments as many rows as ours has; a line where that changes it. A segment
    that the folder lacks starts as its last, so that it computes the same for every text that it
    could read."""
    lines, ours = [], own.encoder.shape.type_vocab_size
    for name in (n for n in new if n.endswith("embeddings.segments.weight")):
        theirs = len(new[name])
        new[name] = new[name][torch.arange(ours).clamp(max=theirs - 1)]
        if theirs < ours:
            lines.append(
                f"{what}: {start} knows {theirs} of {ours} segments; the other starts as its last"
            )
        elif theirs > ours:
            left = f"the last {theirs - ours} of {theirs} segments, which no text has here"
            lines.append(f"{what}: {start}: left out {left}")
    return lines


def _fill(
    model: ExportedModel,
    new: dict[str, torch.Tensor],
    start: str,
    *,
    what: str,
    given: ExportedModel | None,
) -> list[str]:
    """Checks every shape and then copies; parameters shared with `given` are left as they are."""
    own = model.parameters()
    kept = {id(p) for p in given.parameters().values()} if given else set()
    for name, t in new.items():
        if own[name].shape != t.shape:
            raise UserError(
                f"--init-{what} {start}: {name} is {tuple(t.shape)} there, "
                f"{tuple(own[name].shape)} here, where it is shared with the other network; "
                "choose --tie none, or folders of the same embedding_size and "
                "max_position_embeddings"
            )
    passed = [name for name in new if id(own[name]) in kept]
    left = model.fill({name: t for name, t in new.items() if name not in passed})
    if left:
        other = "a head of another objective or form; it keeps its initial values"
        return [f"{what}: {start} has {other}"]
    if not passed:
        return []
    shared = "embeddings" if all(".embeddings." in name for name in passed) else "encoder"
    return [
        (
            f"{what}: {start}: its {len(passed)} {shared} weights are ignored: they are shared "
            "with the discriminator, whose folder decides them"
        )
    ]


def _account(
    table: KeyTable, rows: list[Any], extra: set[str], start: str, *, what: str
) -> list[str]:
    """What was missing and what was ignored, a line each."""
    lines = []
    absent = [name for row in table.head if row not in rows for name in row.theirs]
    if len(absent) == sum(len(row.theirs) for row in table.head):
        lines.append(f"{what}: {start} has no weights of the head; it keeps its initial values")
    elif absent:
        lines.append(
            f"{what}: {start} lacks {', '.join(sorted(absent))}; they keep their initial values"
        )
    ignored = sorted(extra)
    if ignored:
        lines.append(
            f"{what}: {start}: ignored {len(ignored)} weights without a place here "
            f"({', '.join(ignored[:4])}{', ...' * (len(ignored) > 4)})"
        )
    return lines


def _config(start: str, architecture: str) -> Any:
    """The folder's config, if it is that of an encoder that ours can be. Raises UserError
    otherwise."""
    from transformers import AutoConfig

    place, local = start_of(start)
    try:
        if local:
            look_over(Path(place))
    except FileError as e:
        raise e if e.advice else unloadable(start, e) from e
    try:
        with quiet(), without_code(start):
            config = AutoConfig.from_pretrained(place, trust_remote_code=False, **local)
    except UserError:
        raise
    except Exception as e:  # a config.json may hold anything, and may raise anything
        raise unloadable(start, e) from e
    if not local:
        from_hub(place, config)
    known = ARCHITECTURES[architecture].model_types
    if config.model_type not in known:
        others = f" (or {', '.join(known[1:])})" if len(known) > 1 else ""
        raise UserError(
            f"{start} is a model of type {config.model_type!r}; a run with --architecture "
            f"{architecture} starts from {known[0]}{others} only"
        )
    known_as = architecture_named(architecture)
    known_as.must_compute_the_same(start, config)
    config = known_as.as_read(config)
    with quiet():
        computing_plainly(config)
        loaded_must_fit(start, config)
    return config


def _read(start: str, cls: Any, config: Any) -> tuple[Any, set[str], set[str]]:
    """The model as one of this class, and the keys it missed and did not know."""
    place, local = start_of(start)
    try:
        with quiet():
            model, info = cls.from_pretrained(
                place,
                config=config,
                output_loading_info=True,
                **SAFE_WEIGHTS,
                **local,
            )
    except Exception as e:  # damaged weights raise types of three libraries
        if is_of_memory(e):
            raise
        raise UserError(
            f"{start} has no readable model.safetensors ({said(e)}); convert its weights to "
            "safetensors first"
        ) from e
    wrong = sorted(str(k[0]) for k in info["mismatched_keys"])
    if wrong:
        raise UserError(
            f"{start} is damaged: {wrong[0]} does not have the shape that its config.json says"
        )
    if not local:
        from_hub(place, model.config)  # the weights are in the cache now
    must_be_finite(start, model)
    return model, set(info["missing_keys"]), set(info["unexpected_keys"])
