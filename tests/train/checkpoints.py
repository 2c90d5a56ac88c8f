"""Checkpoints whose content is known from their step."""

from pathlib import Path

import torch

from electrify.train import checkpoint
from electrify.train.checkpoint import Groups, State

FILES = ("model.safetensors", "optimizer.safetensors", "state.json")


def content(step: int) -> tuple[Groups, State]:
    weights = torch.arange(12.0).reshape(3, 4) + step
    tensors = {
        "model": {"w": weights, "b": torch.tensor([step])},
        "optimizer": {"w.exp_avg": weights.t() / 3, "step": torch.tensor(float(step))},
    }
    return tensors, {"step": step, "loss": step / 7}


def save(run: Path, step: int, keep: int | None = None) -> Path:
    run.mkdir(parents=True, exist_ok=True)
    return checkpoint.save(run, step, *content(step), keep=keep)


def newest_step(run: Path) -> int | None:
    found = checkpoint.newest(run)
    return found[2]["step"] if found else None


def holds(path: Path, step: int) -> bool:
    tensors, state = checkpoint.load(path)
    want, want_state = content(step)
    del state["files"]
    same = all(
        torch.equal(tensors[g][n], t) and tensors[g][n].dtype == t.dtype
        for g, named in want.items()
        for n, t in named.items()
    )
    return (
        same
        and state == want_state
        and {g: set(n) for g, n in tensors.items()} == {g: set(n) for g, n in want.items()}
    )


def folders(run: Path) -> set[str]:
    return {p.name for p in run.iterdir() if p.is_dir()}
