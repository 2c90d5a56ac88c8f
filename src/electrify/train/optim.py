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
from ..model.encoder import kinds_of, matrices_of
from ..recipe import Train
from .dist import placed_as, whole

# A number of updates after which the bias corrections are exactly 1, also in float32, and which
# does not change in float32 when 1 is added.
FOREVER = 2.0**24
MOMENTUM = 0.95  # of Muon


class ElectraAdam(torch.optim.AdamW):
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


class Muon(torch.optim.AdamW):
    """Muon for the matrices of the blocks, and AdamW for everything else.

    Muon takes the momentum of a matrix (Nesterov, 0.95) to the nearest orthogonal one (Jordan 2024,
    kellerjordan.github.io/posts/muon). Its update is scaled by 0.2 sqrt(longer side), which is the
    root mean square of AdamW's: so both have one learning rate and one weight decay (Moonlight,
    2502.16982 section 2.2). Matrices that are stacked in one weight (queries, keys and values) are
    taken apart. The numbers are those of torch.optim.Muon, which cannot leave an update out.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"] if group["stacked"] else ():
                if p.grad is not None:
                    self._update(p, p.grad, group)
                    p.grad = None  # AdamW leaves it as it is
        super().step()

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[p]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(p)
        had = state["momentum_buffer"]
        momentum = had.lerp(grad, 1 - MOMENTUM)
        parts = grad.lerp(momentum, MOMENTUM).chunk(group["stacked"])
        rate = group["lr"] * 0.2 * math.sqrt(max(parts[0].shape))
        turned = torch.cat([orthogonal(part) for part in parts])
        new = (p * (1 - group["lr"] * group["weight_decay"])).add_(turned, alpha=-rate)
        if (refused := getattr(self, "found_inf", None)) is not None:
            new = torch.where(refused > 0, p, new)
            momentum = torch.where(refused > 0, had, momentum)
        p.copy_(new)
        state["momentum_buffer"] = momentum


def orthogonal(x_RC: Tensor) -> Tensor:
    """About the nearest orthogonal matrix, in bfloat16: each singular value is between 0.7 and 1.2.

    Source: Newton-Schulz iterations with the coefficients of Jordan (2024).
    """
    wide = x_RC.size(0) <= x_RC.size(1)
    x = x_RC.bfloat16() if wide else x_RC.bfloat16().T
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(NEWTON_SCHULZ):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=-4.775, alpha=2.0315), x, beta=3.4445)
    return x if wide else x.T


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
    kinds = {}
    for n, p in named.items():
        decay = decays.get(n, weight_decay) if p.ndim >= 2 else 0.0
        kinds[n] = (rates[n], n in generator, p.ndim < 2, decay, stacked.get(n, 0))
    fields = ("peak_lr", "generator", "flat", "weight_decay", "stacked")
    groups = []
    for kind in sorted(set(kinds.values())):
        names = [n for n in named if kinds[n] == kind]
        group = {"params": [named[n] for n in names], "names": names, "lr": kind[0]}
        groups.append(group | dict(zip(fields, kind, strict=True)))
    return groups


def make_optimizer(
    kind: str, groups: list[dict[str, Any]], *, betas: tuple[float, float], eps: float
) -> torch.optim.Optimizer:
    """The optimiser of the recipe's field `optim`."""
    cls = {"electra_adam": ElectraAdam, "muon": Muon, "adamw": torch.optim.AdamW}[kind]
    return cls(groups, lr=0.0, betas=betas, eps=eps, fused=True)


def optimizer_of(
    objective: nn.Module, s: Train, discriminator: Collection[str]
) -> torch.optim.Optimizer:
    """The optimiser of a run. discriminator: names of the parameters of the discriminator; all
    others use generator_learning_rate, generator_warmup_steps and generator_weight_decay."""
    named = dict(objective.named_parameters())
    others = named.keys() - set(discriminator)
    kinds = kinds_of(objective)
    rates = {}
    for n in named:
        rate = s.generator_learning_rate if n in others else None
        rates[n] = (rate or s.learning_rate) * s.lr_factors.get(kinds[n], 1.0)
    decay = s.generator_weight_decay
    groups = parameter_groups(
        named,
        rates=rates,
        weight_decay=s.weight_decay,
        decays={} if decay is None else dict.fromkeys(others, decay),
        generator=set() if s.generator_warmup_steps is None else others,
        stacked=matrices_of(objective) if s.optim == "muon" else {},
    )
    betas = (s.adam_beta1, s.adam_beta2)
    return make_optimizer(s.optim, groups, betas=betas, eps=s.adam_epsilon)


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
    constant = "step" if isinstance(optimizer, ElectraAdam) else None
    return {
        f"{name}.{slot}": t
        for name, p in named.items()
        for slot, t in optimizer.state.get(p, {}).items()
        if slot != constant
    }


def load_optimizer_tensors(
    optimizer: torch.optim.Optimizer, named: dict[str, nn.Parameter], tensors: dict[str, Tensor]
) -> None:
    # A parameter that had no gradient up to there has no state in them.
    optimizer.state.clear()
    for key, t in tensors.items():
        name, slot = key.rsplit(".", 1)
        p = named[name]
        # Fused AdamW keeps its step counter on the parameter's device, whole.
        optimizer.state[p][slot] = t.to(p.device, copy=True) if slot == "step" else placed_as(p, t)


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
    left = max(0.0, 1 - step / max_steps)
    shapes = {
        "electra": left,
        "linear": max(0.0, 1 - after),
        "cosine": 0.5 * (1 + math.cos(math.pi * min(1.0, after))),
        "wsd": min(1.0, left / decay_share),
        "constant": 1.0,
    }
    return warm * shapes[kind]


def scheduled(settings: Train, step: int, *, generator: bool = False) -> float:
    """The factor of a recipe's schedule in the update after `step` completed ones. generator: that
    of the parameters that only the generator has."""
    own = settings.generator_warmup_steps if generator else None
    return factor(
        settings.lr_scheduler_type,
        step,
        warmup_steps=settings.warmup_steps if own is None else own,
        max_steps=settings.max_steps,
        decay_share=settings.decay_share,
    )


def beta2_of(settings: Train, tokens: int) -> float:
    """Adam's beta2 in an update of this many tokens, padding included.

    Source: a half-life in tokens, 2507.07101.
    """
    half_life = settings.adam_beta2_tokens
    return settings.adam_beta2 if half_life is None else 0.5 ** (tokens / half_life)
