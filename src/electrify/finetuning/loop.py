"""The fine-tuning loop: rows -> minibatches of similar length -> updates -> outputs. It does not
know the task.

Shape suffixes: N rows, L tokens, B rows of a batch, P parts of a batch, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from ..draws import hashed
from ..errors import UserError, need
from ..onnx_models import batches, padded
from ..train.machine import supports_bf16
from ..train.optim import factor, make_optimizer, parameter_groups
from .encoding import Lists
from .options import FinetuneSettings

# The number of batches that are sorted by length together. With it, 88 to 91 % of the slots of
# SST-2, CoLA and STS-B are filled (unsorted 34 to 48 %).
POOL = 16
# The least number of pools, for small data sets: a single pool would put the same examples together
# in every epoch.
POOLS = 4
# Purposes of random numbers: append, never reorder.
SUBSET = 1
ORDER = 2
BATCHES = 3
TOKENS = {"cpu": 4096, "cuda": 128 * 128}
"""Tokens, including padding, that go through the model together: as many as fit into a CPU's caches
(a batch of contexts then trains 1.4 to 2 times as fast, and prediction takes 40 % of the time), and
as many as keep a GPU busy."""
MAX_GRAD_NORM = 1.0


@dataclass(frozen=True)
class Protocol:
    """How a run updates, see the table of published.py."""

    optim: str = "adamw"
    schedule: str = "linear"
    summed: bool = False
    skip_level: bool = False
    by_length: bool = True
    both_orders: bool = False


PROTOCOLS = {
    "electrify": Protocol(),
    "published": Protocol(
        "electra_adam", "electra", summed=True, skip_level=True, by_length=False, both_orders=True
    ),
}


# ------------------------------------------------------------------ rows


@dataclass(frozen=True)
class Batch:
    """Padded rows, and what the task wants of them.

    places_BL: tokens that count for a word, or at which an answer may begin or end; None for texts.
    targets: class numbers [B], values [B], classes that apply [B, C], tags [B, L] where a word
    begins and NO_WORD elsewhere, or start, end and whether there is no answer [B, 3].
    """

    inputs: dict[str, Tensor]
    lengths_B: Tensor
    places_BL: Any
    targets: Tensor


@dataclass(frozen=True)
class Rows:
    """Token ids padded to one matrix, so that a batch is one indexing operation. lengths_N stays on
    the CPU, where batches are planned. spots: the windows of questions, or the words that each row
    tags."""

    ids_NL: Tensor
    segments_NL: Tensor | None
    lengths_N: Tensor
    targets: Tensor
    places_NL: Tensor | None = None
    spots: Any = None

    @classmethod
    def of(cls, reader: Any, ids: Lists, types: Lists, targets: Any = None, **more: Any) -> Self:
        """Token ids and types of each row, as tensors on the device. more: spots, and
        places: 1 for tokens that the head may look at, else 0."""
        device, pad = reader.device, reader.tokenizer.pad_token_id
        if "places" in more:
            more["places_NL"] = as_tensor(more.pop("places"), 0, torch.bool).to(device)
        return cls(
            as_tensor(ids, pad, torch.int32).to(device),
            as_tensor(types, 0, torch.uint8).to(device) if reader.segments else None,
            torch.tensor([len(row) for row in ids]),
            (torch.zeros(len(ids)) if targets is None else targets).to(device),
            **more,
        )

    def batch(self, index_B: Tensor) -> Batch:
        """These rows, padded to the longest of them."""
        device = self.ids_NL.device
        at_B = index_B.to(device, non_blocking=True)
        longest = int(self.lengths_N[index_B].max())
        lengths_B = self.lengths_N[index_B].to(device, non_blocking=True)
        mask_BL = (torch.arange(longest, device=device) < lengths_B[:, None]).long()
        inputs = {"input_ids": self.ids_NL[at_B, :longest].long(), "attention_mask": mask_BL}
        if self.segments_NL is not None:
            inputs["token_type_ids"] = self.segments_NL[at_B, :longest].long()
        places_BL = None if self.places_NL is None else self.places_NL[at_B, :longest]
        return Batch(inputs, lengths_B, places_BL, self.targets[at_B])


class Answered(NamedTuple):
    """Examples, their rows, and a network's answers, see `answers` of the problem."""

    examples: Sequence[Any]
    rows: Any
    answers: Any = None


def as_tensor(rows: Sequence[Sequence[int]], pad: int, dtype: torch.dtype) -> Tensor:
    """[N, longest], filled up with `pad` on the right."""
    return torch.from_numpy(padded(rows, pad)[0]).to(dtype)


# ------------------------------------------------------------------ minibatches


def shuffled(n: int, *coordinates: int) -> Tensor:
    """A permutation of 0..n-1, a pure function of the coordinates on any machine."""
    return torch.argsort(hashed(*coordinates, torch.arange(n)), stable=True)


def epoch_batches(
    lengths_N: Tensor, *, batch_size: int, seed: int, epoch: int, by_length: bool = True
) -> list[Tensor]:
    """Every example once, in batches of similar length, as index tensors. Without by_length the
    batches are cut from the shuffled examples.

    Pools of POOL random batches are sorted by length and cut, then the order of all batches is
    shuffled. The examples left over when N is not a multiple of the batch are set aside before the
    sorting: sorted with the rest, the incomplete batch would always hold the longest ones.
    """
    order = shuffled(len(lengths_N), seed, ORDER, epoch)
    if not by_length:
        return list(order.split(batch_size))
    whole = len(order) - len(order) % batch_size
    found = [order[whole:]] if whole < len(order) else []
    for pool in order[:whole].split(max(1, min(POOL, whole // batch_size // POOLS)) * batch_size):
        found += [
            b for b in pool[torch.argsort(lengths_N[pool], stable=True)].split(batch_size) if len(b)
        ]  # splitting nothing gives one empty tensor
    return [found[int(i)] for i in shuffled(len(found), seed, BATCHES, epoch)]


def updates_of(n: int, *, batch_size: int, epochs: float) -> int:
    """How many updates a run takes."""
    return max(1, math.ceil(math.ceil(n / batch_size) * epochs))


def pieces(index_B: Tensor, lengths_N: Tensor, most: int) -> list[Tensor]:
    """The rows, shortest first, in pieces of at most `most` slots (one row may have more)."""
    return [index_B[piece] for piece in batches(lengths_N[index_B].tolist(), most)]


# ------------------------------------------------------------------ updates


def train(
    net: Any,
    problem: Any,
    rows: Any,
    settings: FinetuneSettings,
    *,
    rates: dict[str, float],
    epochs: float,
    seed: int,
) -> Iterator[tuple[int, float, Tensor]]:
    """Makes the updates of a run, one at each step: updates done, epochs done, and the loss, a
    scalar on the device.

    problem: gives the loss of a batch of the rows. rates: the peak learning rate of every trained
    parameter. Raises UserError if the loss is NaN or infinite at the end of an epoch.
    """
    protocol, size = PROTOCOLS[settings.protocol], settings.per_device_train_batch_size
    named = {name: p for name, p in net.named_parameters() if name in rates}
    groups = parameter_groups(named, rates=rates, weight_decay=settings.weight_decay)
    optimizer = make_optimizer(protocol.optim, groups, betas=(0.9, 0.999), eps=1e-6)
    number = len(rows.lengths_N)
    total = updates_of(number, batch_size=size, epochs=epochs)
    per_epoch = math.ceil(number / size)
    net.train()
    order: list[Tensor] = []
    for step in range(total):
        epoch, at = divmod(step, per_epoch)
        if at == 0:
            how = {"batch_size": size, "seed": seed, "epoch": epoch}
            order = epoch_batches(rows.lengths_N, by_length=protocol.by_length, **how)
        now = rate_factor(protocol, step, total, settings.warmup_ratio)
        for group in optimizer.param_groups:
            group["lr"] = group["peak_lr"] * now
        loss = backward(net, problem, rows, order[at], summed=protocol.summed)
        torch.nn.utils.clip_grad_norm_(named.values(), MAX_GRAD_NORM)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        done = step + 1
        # Reading the loss waits for the device.
        if (done % per_epoch == 0 or done == total) and not math.isfinite(loss.item()):
            fact = f"the loss is {loss.item()} after {done} updates (seed {seed})"
            raise UserError(fact, "lower --learning-rate")
        yield done, done / per_epoch, loss


def rate_factor(protocol: Protocol, step: int, total: int, warmup_ratio: float) -> float:
    """The factor on the peak learning rates in the update after `step` completed ones of `total`.

    - electra: min(1, step / (warmup_ratio total)) (1 - step / total); the first update is at 0, as
      in the public code.
    - linear: up over round(warmup_ratio total) updates, then down to 0, both one step further, so
      that no update has a rate of 0.
    """
    warm = warmup_ratio * total
    if protocol.schedule == "electra":
        return factor("electra", step, warmup_steps=warm, max_steps=total)
    return factor("linear", step + 1, warmup_steps=round(warm), max_steps=total + 1)


def backward(net: Any, problem: Any, rows: Any, index_B: Tensor, *, summed: bool) -> Tensor:
    """The mean loss of a batch; its gradient is added to the parameters', in parts if the batch is
    long. summed: the gradient is that of the sum over the rows, or words; the returned loss is
    still the mean."""
    found = pieces(index_B, rows.lengths_N, most_tokens(rows.targets.device))
    parts = [rows.batch(part_B) for part_B in found]
    weights_P = torch.ones(1)  # which says nothing of a mean over a single part
    if summed or len(parts) > 1:
        weights_P = torch.stack([problem.weight(batch) for batch in parts]).float()
    scale = weights_P.sum() if summed else 1.0
    losses: list[Tensor] = []
    for batch, share in zip(parts, weights_P / weights_P.sum(), strict=True):
        losses.append(problem.loss(net, batch) * share)
        (losses[-1] * scale).backward()
    return torch.stack(losses).detach().sum()


def answers(
    net: Any,
    rows: Any,
    outputs: Callable[[Any], Iterable[Tensor]],
    each: Callable[..., Any],
    after: Callable[[float], None] = lambda share: None,
) -> list[Any]:
    """What `each` makes of the number of every row and its part of the outputs of a batch, as
    arrays, in the order of the rows. Batches are of similar length, the shortest first. The mode of
    the net (training or evaluation) is left unchanged. after: called after each pass with its share
    of the rows. Raises UserError if outputs are not numbers."""
    was_training, number = net.training, len(rows.lengths_N)
    net.train(False)
    answered = [None] * number
    for index_B in pieces(torch.arange(number), rows.lengths_N, most_tokens(rows.targets.device)):
        with torch.inference_mode():
            found = [x.cpu() for x in outputs(rows.batch(index_B))]
        finite = all(bool(x.isfinite().all()) for x in found)
        need(finite, "the outputs of the model are not numbers", "try a lower --learning-rate")
        for k, *its in zip(index_B.tolist(), *(x.numpy() for x in found), strict=True):
            answered[k] = each(k, *its)
        after(len(index_B) / number)
    net.train(was_training)
    return answered


def mean_state(states_BLD: Tensor, batch: Batch) -> Tensor:
    """[B, D]: the mean over the tokens of each row, special ones included."""
    mask_BL1 = batch.inputs["attention_mask"][..., None].float()
    return (states_BLD * mask_BL1).sum(1) / mask_BL1.sum(1)


# ------------------------------------------------------------------ the machine


def most_tokens(device: torch.device) -> int:
    """How many tokens, pads included, go through a model together."""
    return TOKENS.get(device.type, TOKENS["cuda"])


def computes_in_bf16(choice: str, device: torch.device) -> bool:
    """`auto`: if the device multiplies bfloat16 in hardware (measured with avx512_bf16: a step
    takes half the time at width 128, and 40 % of it at 256)."""
    return supports_bf16(device) if choice == "auto" else choice == "true"
