"""Checks files of weights: what their headers say, and whether the values look like trained
weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from .files import AGAIN, Bar, is_regular, must_open, named, read_json, size_of
from .findings import DamageError, Finding, error, note, ok

Header = dict[str, tuple[tuple[int, ...], str]]  # name -> shape and type
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
AS_DRAWN = 1e-3  # biases and LayerNorms this close to their initial values have not been trained


def open_header(path: Path) -> Header:
    """Raises DamageError if the header does not describe the file to its last byte."""
    must_open(path)  # the library reports a file that it may not read as missing
    try:
        with safe_open(path, framework="pt") as f:
            # It is not a dictionary.
            slices = {name: f.get_slice(name) for name in f.keys()}  # noqa: SIM118
            return {name: (tuple(s.get_shape()), str(s.get_dtype())) for name, s in slices.items()}
    except (SafetensorError, OSError, ValueError) as e:
        raise DamageError(
            "weights", f"{path.name} is damaged ({' '.join(str(e).split())[:150]})", AGAIN
        ) from e


def headers(folder: Path) -> dict[Path, Header]:
    """The headers of model.safetensors, or of the files that its index names; none if there is
    neither."""
    one = folder / "model.safetensors"
    index = folder / "model.safetensors.index.json"
    if is_regular(one):
        return {one: open_header(one)}
    if not index.exists():
        return {}
    places = read_json(index).get("weight_map")
    if (
        not isinstance(places, dict)
        or not places
        or not all(isinstance(n, str) and Path(n).name == n for n in places.values())
    ):
        raise DamageError("weights", f"{index.name} does not say which file holds what", AGAIN)
    found = {folder / name: open_header(folder / name) for name in sorted(set(places.values()))}
    lacking = [name for name, file in places.items() if name not in found[folder / file]]
    if lacking:
        raise DamageError(
            "weights",
            (
                f"{index.name} names {len(lacking):,} tensors that its files do not hold: "
                f"{named(lacking)}"
            ),
            AGAIN,
        )
    return found


def weights_findings(
    files: dict[Path, Header], bar: Bar, *, tied: dict[str, str]
) -> Iterator[Finding]:
    """Checks every value once, with one tensor in memory at a time."""
    bad: list[str] = []
    untouched: list[bool] = []
    for path, header in files.items():
        with safe_open(path, framework="pt") as f:
            for name in header:
                t = f.get_tensor(name)
                if t.is_floating_point():
                    found = not_finite(t)
                    bad += [f"{found:,} of {name}"] if found else []
                    untouched += as_drawn(name, t)
        bar.read(size_of(path))
    if bad:
        advice = (
            "The run was saved after its loss was no longer a number, or the file is damaged: take "
            "an earlier checkpoint."
        )
        yield error(
            "not-finite",
            f"{len(bad):,} tensors hold values that are not finite in float32: {named(bad)}",
            advice,
        )
    else:
        yield ok("finite", "every weight is a finite number")
    if untouched and all(untouched):
        fact = (
            "every bias is 0 and every LayerNorm is 1, as they are drawn: these weights were never "
            "trained, or hardly"
        )
        yield note(
            "untrained",
            fact,
            "As a random baseline that is right; otherwise the wrong folder was saved.",
        )
    yield from tied_findings(files, tied)


def not_finite(t: torch.Tensor) -> int:
    """How many values of a tensor are not finite in float32, in which every verb reads it."""
    return int((~t.float().isfinite()).sum())


def as_drawn(name: str, t: torch.Tensor) -> list[bool]:
    """Whether a bias or a LayerNorm's weight is at its initial value; an empty list for others,
    whose initial values are random."""
    t = t.float() if t.ndim == 1 else t  # no arithmetic for types of 8 bits
    last = name.rsplit(".", 1)[-1]
    norm = "norm" in name.lower()
    if last in ("bias", "beta"):
        return [bool(t.abs().max() < AS_DRAWN)] if t.ndim == 1 and t.numel() else []
    return [bool((t - 1).abs().max() < AS_DRAWN)] if norm and t.ndim == 1 and t.numel() else []


def tied_findings(files: dict[Path, Header], tied: dict[str, str]) -> Iterator[Finding]:
    """Tensors that must equal another one, if both are stored."""
    place = {name: path for path, header in files.items() for name in header}
    equal = []
    for name, source in tied.items():
        if name in place and source in place:
            one = tensor(place[name], name)
            other = tensor(place[source], source)
            if one.shape != other.shape or not torch.equal(one, other):
                fact = f"{name} should repeat {source}, but has other values"
                advice = (
                    "Loading keeps one of the two, and the language model then gives gibberish: "
                    "convert it again, or set tie_word_embeddings to false."
                )
                yield error("tied", fact, advice)
            else:
                equal.append(name)
    if equal:
        yield ok(
            "tied",
            (
                f"{named(equal)} {'is' if len(equal) == 1 else 'are'} stored and equal to the word "
                "embeddings"
            ),
        )


def tensor(path: Path, name: str) -> torch.Tensor:
    with safe_open(path, framework="pt") as f:
        return f.get_tensor(name)
