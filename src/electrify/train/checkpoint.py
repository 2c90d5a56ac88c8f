"""Checkpoints of a run: RUN/checkpoint-<step>/{model,optimizer}.safetensors and state.json.

A checkpoint is written into a hidden folder and renamed once, so that a kill leaves the old ones or
the new one. state.json holds the hashes of the tensor files and of its own fields, because no
tensor format notices a flipped bit: a damaged checkpoint is named and passed over.

RunState is everything that a checkpoint holds. What decides the numbers of a run is (recipe, data,
step): order, masks, samples and dropout are functions of them, so the state is parameters,
optimiser, the step, the batches that a rollback left out, what the guard has counted, and the sums
of the unfinished log line. No random generator is part of it.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ..errors import UserError
from ..files import sha256, sync, text_hash, written
from ..progress import say
from ..recipe import Train
from .dist import World, gathered, placed_as
from .guard import Guard
from .log import Meter, MetricSums
from .monitor import Monitor
from .optim import load_optimizer_tensors, optimizer_of, optimizer_tensors

STATE = "state.json"
Groups = dict[str, dict[str, Tensor]]
State = dict[str, Any]
_NAME = re.compile("checkpoint-(0|[1-9][0-9]*)")


# ------------------------------------------------------------------ how it is written and read


def folder_of(run: Path, step: int) -> Path:
    """RUN/checkpoint-<step>."""
    return run / f"checkpoint-{step}"


def steps(run: Path) -> list[int]:
    """The steps of the run's checkpoints, whole or damaged, ascending."""
    names = [p.name for p in run.iterdir()] if run.is_dir() else []
    return sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))


def save(
    run: Path,
    step: int,
    groups: Groups,
    state: State,
    *,
    keep: int | None,
    spared: frozenset[int] = frozenset(),
) -> Path:
    """Writes RUN/checkpoint-<step>, then removes those beyond the `keep` newest (None keeps all),
    except for `spared`. Returns its folder.

    groups: one file of tensors per group; no two tensors of a group may share memory. state: JSON
    with string keys. Raises UserError if the disk fails; the earlier checkpoints are then as
    before.
    """
    final = folder_of(run, step)
    try:
        for left in run.glob(".checkpoint-*"):  # of a process that was killed
            shutil.rmtree(left)
        with written(final) as part:
            part.mkdir()
            hashes = {}
            for group, tensors in groups.items():
                file = part / f"{group}.safetensors"
                save_file({name: t.detach().contiguous() for name, t in tensors.items()}, file)
                sync(file)
                hashes[file.name] = sha256(file)
            fields = {"step": step, **state, "files": hashes}
            text = json.dumps({**fields, "sha256": _hash_of(fields)}, indent=1, sort_keys=True)
            (part / STATE).write_text(text, encoding="utf-8")
            sync(part / STATE)
            for name in hashes:  # the library makes files that only their owner may read
                shutil.copymode(part / STATE, part / name)
    except (OSError, SafetensorError) as e:
        raise UserError(
            f"checkpoint {step} could not be written to {run} ({getattr(e, 'strerror', None) or e})"
            "; the earlier checkpoints are unharmed",
            "make room and run the same command again",
        ) from e
    older = [s for s in steps(run) if s < step and s not in spared][::-1]
    for old in older[keep - 1 :] if keep else []:
        gone = folder_of(run, old).rename(run / f".checkpoint-{old}")
        shutil.rmtree(gone)
    return final


def newest(run: Path) -> tuple[Groups, State] | None:
    """The tensors and the state of the newest checkpoint that is whole; damaged ones are named and
    passed over."""
    for step in reversed(steps(run)):
        try:
            return load(folder_of(run, step))
        except UserError as e:
            say(f"warning: {e}; it is passed over")
    return None


def load(path: Path) -> tuple[Groups, State]:
    """The tensors (on the CPU, by group) and the state of a checkpoint. Raises UserError if it is
    damaged."""
    state = read_state(path)
    return {Path(name).stem: load_file(path / name) for name in state["files"]}, state


def read_state(path: Path) -> State:
    """The state of a checkpoint whose every file has its hash. Raises UserError if one has not."""
    try:
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
        if state.pop("sha256") != _hash_of(state):
            raise ValueError(f"{STATE} does not have the hash in it")
        for name, digest in state["files"].items():
            if sha256(path / name) != digest:
                raise ValueError(f"{name} does not have the hash in {STATE}")
    except (OSError, ValueError, LookupError, AttributeError, TypeError) as e:
        what = f"{Path(e.filename or STATE).name} {e.strerror}" if isinstance(e, OSError) else e
        raise UserError(f"{path} is damaged: {what}") from e
    return state


def _hash_of(fields: State) -> str:
    """Of what JSON says, whatever its white space."""
    return text_hash(json.dumps(fields, sort_keys=True))


# ------------------------------------------------------------------ what it holds


def conditions_of(world: World) -> dict[str, Any]:
    """What the last bits depend on besides recipe and data."""
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "world_size": world.size,
        "device": world.device.type,
    }


class RunState:
    """The state of a run: at step 0 until `load` is called."""

    def __init__(
        self,
        objective: nn.Module,
        s: Train,
        world: World,
        *,
        discriminator: set[str],
        monitor: Monitor,
        flops: Callable[[int], float],
    ) -> None:
        """discriminator: names of the parameters of the discriminator. flops(step): the FLOPs of
        the run before that step."""
        self.world = world
        self.named = dict(objective.named_parameters())
        self.optimizer = optimizer_of(objective, s, discriminator)
        self.monitor = monitor
        self.meter = Meter(world.device, flops=flops)
        self.guard = Guard(s, world)
        self.sums = MetricSums(world.device)
        self.step = 0
        self.tokens = 0
        """Tokens trained on up to the last log line."""
        self.validation: dict[str, float] = {}
        self.left_out = 0
        """Number of batches that rollbacks have skipped: update n takes batch n - 1 + left_out."""

    def tokens_seen(self) -> int:
        """Tokens trained on over all ranks, without padding."""
        waiting, _ = self.sums.save().get("tokens", (0, 0))
        return self.tokens + int(waiting)

    def tensors(self, *, keep: bool) -> Groups:
        """Parameters and moments, without sharding. Called on all ranks; a rank that does not
        `keep` them gets none."""
        parameters = {n: p.detach() for n, p in self.named.items()}
        groups = {"model": parameters, "optimizer": optimizer_tensors(self.optimizer, self.named)}
        return {group: gathered(named, keep=keep) for group, named in groups.items()}

    def rest(self) -> State:
        """All but the tensors, as JSON that `load` reads back to the bit."""
        return {
            "step": self.step,
            "tokens": self.tokens,
            "seconds": self.meter.seconds(),
            "window": self.sums.save(),
            "validation": self.validation,
            "monitor": self.monitor.state(),
            "guard": self.guard.state(),
            "left_out": self.left_out,
            "conditions": conditions_of(self.world),
        }

    def load(self, tensors: Groups, rest: State) -> None:
        """Takes over the state that a checkpoint of this recipe holds."""
        with torch.no_grad():
            for n, p in self.named.items():
                p.copy_(placed_as(p, tensors["model"][n]))
        load_optimizer_tensors(self.optimizer, self.named, tensors["optimizer"])
        self.step = rest["step"]
        self.tokens = rest["tokens"]
        self.meter.seconds_before = rest["seconds"]
        self.sums.load(rest["window"], rank=self.world.rank)
        self.validation = rest["validation"]
        self.monitor.restore(rest["monitor"])
        self.guard.restore(rest["guard"])
        self.left_out = rest["left_out"]
