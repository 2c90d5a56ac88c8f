"""What scores depend on in a model, by which finished runs are found again: hashes of its files, or
its name and commit on the Hub."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..export.places import RANDOM
from ..files import sha256
from ..hub import at_commit
from ..text.tokenizer_files import VOCABULARY_FILES, tokenizer_files


def encoder_fingerprint(model: str) -> str:
    """A short hash of the weights, configuration and tokenizer files of a folder; for a Hub id see
    `at_commit`."""
    if is_on_hub(model):
        return _at_commit(model)
    path = Path(model.removeprefix(RANDOM))
    digest = hashlib.sha256(b"random" if model.startswith(RANDOM) else b"")
    for file in sorted(path.iterdir()):
        weights = file.suffix == ".safetensors" and not model.startswith(RANDOM)
        if file.is_file() and (weights or file.name in ("config.json", *VOCABULARY_FILES)):
            digest.update(file.name.encode())
            digest.update(bytes.fromhex(sha256(file)))
    return digest.hexdigest()[:16]


def tokenizer_fingerprint(model: str) -> str:
    """A short hash of every file of a folder that decides how text becomes ids; for a Hub id see
    `at_commit`."""
    if is_on_hub(model):
        return _at_commit(model)
    path = Path(model.removeprefix(RANDOM))
    found = [(file.name, sha256(file)) for file in tokenizer_files(path)]
    return hashlib.sha256(repr(found).encode()).hexdigest()[:16]


def _at_commit(model: str) -> str:
    """`at_commit`, for a name that may ask for random weights."""
    name = model.removeprefix(RANDOM)
    return RANDOM * (name != model) + at_commit(name)


def may_be_same(before: str, now: str) -> bool:
    """Whether two fingerprints can be of one model. That of a Hub id without a commit (by an
    earlier version, or with an empty cache) may be of any of its commits."""
    (name, _, commit), (name_now, _, commit_now) = before.partition("@"), now.partition("@")
    return name == name_now and (commit == commit_now or not (commit and commit_now))


def fingerprints(model: str) -> dict[str, str]:
    """What scores depend on in a model, as hashes, or as its name and commit on the Hub."""
    return {"weights": encoder_fingerprint(model), "tokenizer": tokenizer_fingerprint(model)}


def is_on_hub(model: str) -> bool:
    """Whether the fingerprints of a model are its name, and perhaps its commit."""
    return not Path(model.removeprefix(RANDOM)).is_dir()


def must_be_unchanged(model: str, before: Mapping[str, Any] | None) -> None:
    """Raises UserError if a model no longer has the fingerprints `before`, which is None if none
    were taken."""
    if before is not None and not all(
        may_be_same(before[what], found) for what, found in fingerprints(model).items()
    ):
        raise UserError(
            f"{model} was changed while the runs before it trained; what was scored before is "
            "kept: put the model back and repeat the command, or choose another --output-dir"
        )
