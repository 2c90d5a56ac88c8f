"""Compares the weights of a Hugging Face folder with its config.json: names, shapes, layers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .files import named
from .findings import DamageError, Finding, error, note, ok
from .kinds import CONFIG, SAVE_HEAD, architecture, class_with_head, heads
from .shapes import expected_shapes
from .weights import PICKLES, Header, headers

LAYER = re.compile(r"\blayers?\.(\d+)\.")


def headers_into(folder: Path, kept: dict[str, Any]) -> Iterator[Finding]:
    found = headers(folder)
    if found:
        kept["headers"] = found
    elif any(n.name.endswith(PICKLES) for n in folder.iterdir()):
        yield note(
            "not-examined", "its weights are pickles only, so shapes and values were not looked at"
        )
    else:
        yield error(
            "no-weights",
            "the folder holds no weights (model.safetensors)",
            "It cannot be loaded: copy them there, or export again.",
        )


def against_config(config: dict[str, Any], kept: dict[str, Any]) -> Iterator[Finding]:
    have: Header = {}
    for header in kept["headers"].values():
        have |= header
    yield from layers(config, have)
    name = architecture(config)
    wanted = expected_shapes(config, name, own=class_with_head(config, have))
    names = wanted.shapes if wanted else ()
    yield from heads(name, str(config.get("model_type")), have, names)
    if wanted is None:
        yield note(
            "not-compared",
            f"the weights were not compared with {CONFIG}: transformers has no class "
            f"{name or '(none named)'}",
        )
        return
    kept["tied"] = wanted.tied
    stored = {wanted.bare(name): (name, shape) for name, (shape, _) in have.items()}
    shapes = {wanted.bare(name): shape for name, shape in wanted.shapes.items()}
    odd = [
        f"{stored[n][0]} is {stored[n][1]}, not {shapes[n]}"
        for n in sorted(shapes)
        if n in stored and stored[n][1] != shapes[n]
    ]
    if odd:
        yield wrong_shapes(odd)
    tied = {wanted.bare(name) for name in wanted.tied}
    missing = sorted(shapes.keys() - stored.keys() - tied)
    yield from missing_findings(config, missing)
    extra = sorted(stored.keys() - shapes.keys())
    if extra:
        yield note(
            "extra-weights",
            f"{len(extra):,} weights have no place in {name}: {named(extra)}",
            "They are ignored when it is loaded.",
        )
    if not odd and not missing:
        numbers = sum(math.prod(shape) for shape, _ in have.values()) / 1e6
        fact = f"{len(have):,} tensors ({numbers:.1f} M numbers) are those of {name} by {CONFIG}"
        yield ok("shapes", fact)


def wrong_shapes(odd: list[str]) -> Finding:
    return error(
        "shapes",
        f"{len(odd):,} tensors do not have the shape that {CONFIG} gives: {named(odd, at_most=5)}",
        f"Weights and {CONFIG} are of two models (generator and discriminator have a {CONFIG} "
        "each): copy the one that belongs to them.",
    )


def missing_findings(config: dict[str, Any], missing: list[str]) -> Iterator[Finding]:
    if not missing:
        return
    fact = f"{len(missing):,} weights of {architecture(config)} are missing: {named(missing)}"
    if all(name.startswith("pooler.") for name in missing):
        yield note(
            "no-pooler",
            fact,
            "Drawn at random when it is loaded; nothing but a pooled output reads them.",
        )
    elif any(name.startswith("embeddings_project") for name in missing):
        sizes = (
            f"embedding_size {config.get('embedding_size')} and hidden_size "
            f"{config.get('hidden_size')} differ"
        )
        yield error(
            "projection",
            f"{fact}; {sizes}, so embeddings_project must be there",
            f"{CONFIG} is of another model, or the conversion left it out.",
        )
    else:
        yield error("missing-weights", fact, SAVE_HEAD)


def layers(config: dict[str, Any], have: Header) -> Iterator[Finding]:
    """Checked before anything is built with that number."""
    said = config.get("num_hidden_layers")
    numbers = {found[1] for name in have if (found := LAYER.search(name))}
    if numbers and isinstance(said, int) and said != len(numbers):
        fact = f"{CONFIG} says {said:,} layers and the weights have {len(numbers):,}"
        raise DamageError(
            "layers",
            fact,
            (
                f"Copy the {CONFIG} that belongs to these weights: missing layers would be drawn "
                "at random."
            ),
        )
    yield from ()
