"""The published Adam, Muon, parameter groups as a table, gradient clipping, learning-rate
schedules."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from ..model.costs import NEWTON_SCHULZ
from ..recipe import Train
from .dist import like, whole

# A number of updates after which the bias corrections are exactly 1, also in float32, and which
# does not change in float32 when 1 is added.
FOREVER = 2.0**24


class _Fused(torch.optim.AdamW):
    """torch's fused AdamW, whose groups have weight decays of their own."""

    def __init__(
        self, params: Iterable[dict[str, Any]], *, lr: float, betas: tuple[float, float], eps: float
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=0.0, fused=True)


class ElectraAdam(_Fused):
    """Adam without bias correction and with decoupled weight decay (BERT's and ELECTRA's public
    code; 2003.10555 appendix A).

        m = b1 m + (1 - b1) g
        v = b2 v + (1 - b2) g^2
        p -= lr * (m / (sqrt(v) + eps) + decay * p)

    Without the correction the first updates are large (about 3 lr each, for b2 = 0.999): warm-up is
    part of the method. It is implemented as torch's fused AdamW with zero moments and a step count
    so high that the corrections are 1. This takes a third of the time of the same formula in single
    operations.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for p in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            state = self.state[p]
            if "exp_avg" not in state:
                state |= {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
            if "step" not in state:  # a checkpoint does not hold it either
                state["step"] = torch.full((), FOREVER, device=p.device)
        super().step()


class Muon(_Fused):
    """Muon for the matrices of the blocks, and AdamW for everything else.

    Muon takes the momentum of a matrix (Nesterov, 0.95) to the nearest orthogonal one by five
    Newton-Schulz iterations in bfloat16 (Jordan 2024, kellerjordan.github.io/posts/muon; here
    torch.optim.Muon). Its update is scaled by 0.2 sqrt(longer side), which is the root mean square
    of AdamW's: so both have one learning rate and one weight decay (Moonlight, 2502.16982 section
    2.2). Matrices that are stacked in one weight (queries, keys and values) are taken apart.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        matrices = [
            (group, p) for group in self.param_groups if group["stacked"] for p in group["params"]
        ]
        for group, p in matrices:
            if p.grad is not None:
                self._orthogonal(group, p, p.grad)
                p.grad = None  # AdamW leaves it as it is
        super().step()

    def _orthogonal(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> None:
        state = self.state[p]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(p)
        moving = (p.detach(), state["momentum_buffer"])
        before = [t.clone() for t in moving]
        parts = [t.chunk(group["stacked"]) for t in (*moving, grad)]
        muon = torch.optim.Muon(
            parts[0],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            ns_steps=NEWTON_SCHULZ,
            adjust_lr_fn="match_rms_adamw",
        )
        for part, momentum, its in zip(*parts, strict=True):
            part.grad = its
            muon.state[part]["momentum_buffer"] = momentum
        muon.step()
        refused = getattr(self, "found_inf", None)
        if refused is not None:
            for t, was in zip(moving, before, strict=True):
                t.copy_(torch.where(refused > 0, was, t))


def parameter_groups(
    named: dict[str, nn.Parameter],
    *,
    rates: dict[str, float],
    weight_decay: float,
    decays: Mapping[str, float] = MappingProxyType({}),
    generator: Collection[str] = (),
    stacked: Mapping[str, int] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """Puts every parameter into exactly one group.

    | group        | parameters                    | weight decay |
    |--------------|-------------------------------|--------------|
    | <rate>       | matrices and tables           | weight_decay |
    | <rate>, flat | biases and LayerNorm          | 0            |

    These groups exist once for every distinct peak learning rate in `rates` (parameter name ->
    rate), and separately for the names in `generator`, which have their own schedule, and for the
    matrices in `stacked`, which Muon trains: each with the number of those that it holds. decays:
    the weight decay of matrices that have another one.
    """
    groups: list[dict[str, Any]] = []
    decay_of = {n: decays.get(n, weight_decay) if p.ndim >= 2 else 0.0 for n, p in named.items()}
    kinds = {
        n: (rates[n], n in generator, p.ndim < 2, decay_of[n], stacked.get(n, 0))
        for n, p in named.items()
    }
    for kind in sorted(set(kinds.values())):
        rate, its_own, _, decay, number = kind
        names = [n for n in named if kinds[n] == kind]
        groups.append(
            {
                "params": [named[n] for n in names],
                "names": names,
                "peak_lr": rate,
                "lr": rate,
                "weight_decay": decay,
                "generator": its_own,
                "stacked": number,
            }
        )
    assert sorted(n for g in groups for n in g["names"]) == sorted(named), (
        "a parameter is in no group, or in two"
    )
    return groups


def make_optimizer(
    kind: str, groups: list[dict[str, Any]], *, betas: tuple[float, float], eps: float
) -> torch.optim.Optimizer:
    if kind == "electra_adam":
        return ElectraAdam(groups, lr=0.0, betas=betas, eps=eps)
    if kind == "muon":
        return Muon(groups, lr=0.0, betas=betas, eps=eps)
    assert kind == "adamw"
    return torch.optim.AdamW(groups, lr=0.0, betas=betas, eps=eps, fused=True)


def clip_groups(
    named: dict[str, nn.Parameter], discriminator: Collection[str], *, apart: bool
) -> list[list[nn.Parameter]]:
    """The parameters whose gradients are clipped by one norm: all; or, apart, those in
    `discriminator` and those that only the generator has."""
    if not apart:
        return [list(named.values())]
    return [[p for n, p in named.items() if (n in discriminator) == its] for its in (True, False)]


def clip(groups: Iterable[Sequence[nn.Parameter]], limit: float) -> Tensor:
    """Scales the gradients of each group so that their joint norm is at most `limit`, and returns
    the norm that all of them had. The norm of sharded gradients is taken over all processes."""
    norms = []
    for parameters in groups:
        norm = whole(nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]))
        nn.utils.clip_grads_with_norm_(parameters, limit, norm)
        norms.append(norm)
    return norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))


def optimizer_tensors(
    optimizer: torch.optim.Optimizer, named: dict[str, nn.Parameter]
) -> dict[str, Tensor]:
    """The optimiser's state as plain tensors named `<parameter>.<slot>`."""
    constant = {"step"} if isinstance(optimizer, ElectraAdam) else set[str]()
    return {
        f"{name}.{slot}": t
        for name, p in named.items()
        for slot, t in optimizer.state.get(p, {}).items()
        if slot not in constant
    }


def load_optimizer_tensors(
    optimizer: torch.optim.Optimizer, named: dict[str, nn.Parameter], tensors: dict[str, Tensor]
) -> None:
    # A parameter that had no gradient up to there has no state in them.
    optimizer.state.clear()
    for key, t in tensors.items():
        name, slot = key.rsplit(".", 1)
        p = named[name]
        optimizer.state[p][slot] = like(p, t) if t.ndim or slot != "step" else t.clone()
    # Fused AdamW keeps its step counter on the parameter's device.
    if isinstance(optimizer, torch.optim.AdamW):
        for p in named.values():
            if "step" in optimizer.state[p]:
                optimizer.state[p]["step"] = optimizer.state[p]["step"].to(p.device)


def factor(
    kind: str,
    step: int,
    *,
    warmup_steps: float,
    max_steps: int,
    decay_share: float = Train.decay_share,
) -> float:
    """The factor on the peak learning rate in the update after `step` completed ones.

    It rises from 0 to 1 during the warm-up; after that it depends on the kind:

    - electra: min(1, step / warmup) * (1 - step / total), as in the published code: the decay
      already runs during the warm-up
    - linear: from 1 to 0
    - cosine: half a cosine from 1 to 0
    - wsd: 1, then linearly to 0 over the last `decay_share` of the run
    - constant: 1
    """
    warm = min(1.0, step / warmup_steps) if warmup_steps else 1.0
    after = max(0.0, (step - warmup_steps) / max(1, max_steps - warmup_steps))
    match kind:
        case "electra":
            return warm * max(0.0, 1 - step / max_steps)
        case "linear":
            return warm * max(0.0, 1 - after)
        case "cosine":
            return warm * 0.5 * (1 + math.cos(math.pi * min(1.0, after)))
        case "wsd":
            return warm * min(1.0, max(0.0, 1 - step / max_steps) / decay_share)
        case "constant":
            return warm
        case _:
            raise AssertionError(kind)


def planned(config: Train, step: int, *, generator: bool = False) -> float:
    """The factor of a recipe's schedule in the update after `step` completed ones. generator: that
    of the parameters that only the generator has."""
    own = config.generator_warmup_steps if generator else None
    return factor(
        config.lr_scheduler_type,
        step,
        warmup_steps=config.warmup_steps if own is None else own,
        max_steps=config.max_steps,
        decay_share=config.decay_share,
    )


def beta2_of(config: Train, tokens: int) -> float:
    """Adam's beta2 in an update of this many tokens, padding included.

    Source: a half-life in tokens, 2507.07101.
    """
    half_life = config.adam_beta2_tokens
    return config.adam_beta2 if half_life is None else 0.5 ** (tokens / half_life)
