"""The fine-tuning loop: rows -> minibatches of similar length -> updates -> outputs. It does not
know the task.

Shape suffixes: N rows, B rows of a batch, P parts of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ..draws import hashed
from ..errors import UserError
from ..train.machine import supports_bf16
from ..train.optim import factor, make_optimizer, parameter_groups
from .published import Protocol

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
    batches = [order[whole:]] if whole < len(order) else []
    for pool in order[:whole].split(max(1, min(POOL, whole // batch_size // POOLS)) * batch_size):
        batches += [
            b for b in pool[torch.argsort(lengths_N[pool], stable=True)].split(batch_size) if len(b)
        ]  # splitting nothing gives one empty tensor
    return [batches[int(i)] for i in shuffled(len(batches), seed, BATCHES, epoch)]


def updates_of(n: int, *, batch_size: int, epochs: float) -> int:
    """How many updates a run takes."""
    return max(1, math.ceil(math.ceil(n / batch_size) * epochs))


def train(
    net: Any,
    problem: Any,
    rows: Any,
    *,
    rates: dict[str, float],
    protocol: Protocol,
    batch_size: int,
    epochs: float,
    warmup_ratio: float,
    weight_decay: float,
    max_grad_norm: float,
    seed: int,
    after: Callable[[int, float, Tensor], bool],
) -> None:
    """All updates of a run. `after(updates done, epochs done, loss)` is called after each update;
    loss is a scalar on the device, and whether the run goes on is returned.

    problem: gives the loss of a batch of the rows. rates: the peak learning rate of every trained
    parameter. Raises UserError if the loss is NaN or infinite at the end of an epoch.
    """
    named = {name: p for name, p in net.named_parameters() if name in rates}
    groups = parameter_groups(named, rates=rates, weight_decay=weight_decay)
    optimizer = make_optimizer(protocol.optim, groups, betas=(0.9, 0.999), eps=1e-6)
    number = len(rows.lengths_N)
    total = updates_of(number, batch_size=batch_size, epochs=epochs)
    per_epoch = math.ceil(number / batch_size)
    parameters = list(named.values())
    net.train()
    order = _endless(rows, batch_size, seed, by_length=protocol.by_length)
    for step, index_B in zip(range(total), order, strict=False):
        now = rate_factor(protocol, step, total, warmup_ratio)
        for group in optimizer.param_groups:
            group["lr"] = group["peak_lr"] * now
        loss = _backward(net, problem, rows, index_B, summed=protocol.summed)
        torch.nn.utils.clip_grad_norm_(parameters, max_grad_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        done = step + 1
        # Reading the loss waits for the device.
        if (done % per_epoch == 0 or done == total) and not math.isfinite(loss.item()):
            raise UserError(
                f"the loss is {loss.item()} after {done} updates (seed {seed}). Lower "
                "--learning-rate"
            )
        if not after(done, done / per_epoch, loss):
            break


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


def _backward(net: Any, problem: Any, rows: Any, index_B: Tensor, *, summed: bool) -> Tensor:
    """The mean loss of a batch; its gradient is added to the parameters', in parts if the batch is
    long. summed: the gradient is that of the sum over the rows, or words; the returned loss is
    still the mean."""
    batches = [
        rows.batch(part_B) for part_B in pieces(index_B, rows.lengths_N, most_tokens(rows.device))
    ]
    if len(batches) == 1 and not summed:
        weights_P = torch.ones(1)
    else:
        weights_P = torch.stack([problem.weight(batch) for batch in batches]).float()
    scale = weights_P.sum() if summed else 1.0
    losses: list[Tensor] = []
    for batch, share in zip(batches, weights_P / weights_P.sum(), strict=True):
        losses.append(problem.loss(net, batch) * share)
        (losses[-1] * scale).backward()
    return torch.stack(losses).detach().sum()


def _endless(rows: Any, batch_size: int, seed: int, *, by_length: bool) -> Iterator[Tensor]:
    epoch = 0
    while True:
        yield from epoch_batches(
            rows.lengths_N, batch_size=batch_size, seed=seed, epoch=epoch, by_length=by_length
        )
        epoch += 1


def predict(
    net: Any, problem: Any, rows: Any, *, after: Callable[[int], None] = lambda rows: None
) -> dict[str, Tensor]:
    """The problem's outputs, on the CPU and in the order of the rows. The mode of the net (training
    or evaluation) is left unchanged. after: called with the number of rows after each pass. Raises
    UserError if they are not numbers."""
    was_training = net.training
    net.train(False)
    number = len(rows.lengths_N)
    order = list(pieces(torch.arange(number), rows.lengths_N, most_tokens(rows.device)))
    parts: list[dict[str, Tensor]] = []
    with torch.inference_mode():
        for index_B in order:
            found = problem.outputs(net, rows.batch(index_B))
            parts.append({name: x.cpu() for name, x in found.items()})
            after(len(index_B))
    net.train(was_training)
    back = torch.argsort(torch.cat(order))
    outputs = {name: torch.cat([part[name] for part in parts])[back] for name in parts[0]}
    if not all(bool(x.isfinite().all()) for x in outputs.values()):
        raise UserError(
            "the model's outputs are not numbers: it diverged (lower --learning-rate) or is damaged"
        )
    return outputs


def pieces(index_B: Tensor, lengths_N: Tensor, most: int) -> Iterator[Tensor]:
    """The rows, shortest first, in pieces of at most `most` slots (one row may have more)."""
    lengths_B, order_B = lengths_N[index_B].sort(stable=True)
    index_B = index_B[order_B]
    lengths = lengths_B.tolist()
    begin = 0
    for end in range(1, len(lengths) + 1):
        if end == len(lengths) or (end + 1 - begin) * lengths[end] > most:
            yield index_B[begin:end]
            begin = end


def most_tokens(device: torch.device) -> int:
    """How many tokens, pads included, go through a model together."""
    return TOKENS.get(device.type, TOKENS["cuda"])


def device_named(name: str) -> torch.device:
    """`auto` is the GPU if there is one. Raises UserError for a device that does not exist here."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # `meta` gives tensors without numbers
    except (RuntimeError, AssertionError) as e:
        raise UserError(f"device {name!r} is not here: {str(e).splitlines()[0]}") from e
    return device


def computes_in_bf16(choice: str, device: torch.device) -> bool:
    """`auto`: if the device multiplies bfloat16 in hardware (measured with avx512_bf16: a step
    takes half the time at width 128, and 40 % of it at 256)."""
    return supports_bf16(device) if choice == "auto" else choice == "true"


def default_rates(hidden_size: int, *, tags: bool = False) -> tuple[float, float]:
    """Learning rate and layer-wise decay by width (ELECTRA's table 7: Small, Base, Large). tags:
    the rate for a narrow encoder, which learns them with a larger rate (research/results.md)."""
    if tags and hidden_size <= 128:
        return 3e-3, 0.8
    if hidden_size <= 256:
        return 3e-4, 0.8
    return (1e-4, 0.8) if hidden_size < 1024 else (5e-5, 0.9)
