"""Claims the folder of a run: locks it, and finds the checkpoint to continue from."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from ..config.pretrain import PretrainConfig
from ..oldfiles.lock import lock
from ..text.manifest import TOKENIZER
from ..text.shards import Corpus, verify_sample
from ..text.tokenizer import must_be_of
from . import checkpoint, dist
from .decisive import must_be_of_recipe
from .folder import find_checkpoint, same_run
from .saved import current_names, must_go_on
from .trunk import read_trunk

VERIFIED_BYTES = 4 << 30  # of token shards, verified at every start in two or three seconds


class Loaded(NamedTuple):
    """A checkpoint to continue from."""

    path: Path
    tensors: dict[str, dict[str, Tensor]]
    state: dict[str, Any]
    of_trunk: bool = False
    """Whether it belongs to a longer run, because this run has none yet."""


def claim(
    held: ExitStack,
    folder: Path,
    config: PretrainConfig,
    corpus: Corpus,
    world: dist.World,
    *,
    trunk: Path | None,
) -> Loaded | None:
    """Locks the run folder as long as `held` is open, and returns the checkpoint to continue from,
    if any. trunk: where a folder without one starts from instead. A mistake that one rank finds is
    raised on all."""
    manifest = corpus.manifest
    with dist.together():
        if world.rank == 0:
            held.enter_context(lock(folder, keep=True))
        found = find_checkpoint(folder)
        loaded: Loaded | None = None
        if found:
            tensors, state = checkpoint.load(found.path)
            loaded = Loaded(found.path, current_names(tensors), state)
            must_go_on(found.path, loaded.tensors, state)
            same_run(folder, config, manifest, state)
            must_be_of_recipe(found.path, state, config)
        elif trunk:
            loaded = Loaded(trunk, *read_trunk(trunk, config, manifest), of_trunk=True)
        if world.rank == 0:
            verify_sample(
                corpus.folder, max_bytes=VERIFIED_BYTES, key=loaded.state["step"] if loaded else 0
            )
            must_be_of(manifest, corpus.folder / TOKENIZER)
    dist.same_across(
        # Hosts may see one folder under several names.
        f"{manifest.fingerprint} {found and found.step}",
        what="prepared corpus and newest checkpoint",
    )
    return loaded
