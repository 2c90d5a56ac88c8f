"""The fine-tuning loop: examples -> padded tensors -> batches of like length -> updates -> scores.

Shape suffixes: N examples, L tokens, B examples of a batch, C classes (1 for regression).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..config.finetune import FinetuneSettings
from ..draws import hashed
from ..errors import UserError
from ..train.optim import make_optimizer, parameter_groups
from ..train.schedule import factor
from .encoder import Classifier, learning_rates
from .tasks import Example

POOL = 16  # batches sorted by length together: 88 to 91 % of the slots of SST-2, CoLA and STS-B are filled then (unsorted 34 to 48 %)
POOLS = 4  # at least, where the examples are few: one pool of all would put the same examples together in every epoch
SUBSET, ORDER, BATCHES = 1, 2, 3  # purposes of random numbers: append, never reorder
EVAL_BATCH = 128


@dataclass(frozen=True)
class Encoded:
    """Examples as one padded matrix: a batch is one indexing operation. lengths_N stays on the CPU, where batches are planned."""

    ids_NL: Tensor
    segments_NL: Tensor | None
    labels_N: Tensor
    lengths_N: Tensor

    def inputs(self, index_B: Tensor) -> dict[str, Tensor]:
        """What an encoder takes, padded to the longest of the batch."""
        longest = int(self.lengths_N[index_B].max())
        device = self.ids_NL.device
        lengths_B, at_B = self.lengths_N[index_B].to(device, non_blocking=True), index_B.to(device, non_blocking=True)
        mask_BL = (torch.arange(longest, device=device) < lengths_B[:, None]).long()
        found = {"input_ids": self.ids_NL[at_B, :longest].long(), "attention_mask": mask_BL}
        return found if self.segments_NL is None else found | {"token_type_ids": self.segments_NL[at_B, :longest].long()}


def encode(examples: Sequence[Example], tokenizer: Any, *, segments: bool, max_seq_length: int, device: torch.device) -> Encoded:
    """Tokenise once. Texts beyond max_seq_length are cut, the longer of a pair first."""
    pairs = [e.pair or "" for e in examples] if examples[0].pair is not None else None
    found = tokenizer(
        [e.text for e in examples],
        pairs,
        truncation=True,
        max_length=max_seq_length,
        padding=False,
        return_attention_mask=False,
        return_token_type_ids=segments,
    )
    lengths_N = torch.tensor([len(ids) for ids in found["input_ids"]])
    ids_NL = _padded(found["input_ids"], lengths_N, tokenizer.pad_token_id, torch.int32)
    segments_NL = _padded(found["token_type_ids"], lengths_N, 0, torch.uint8).to(device) if segments else None
    return Encoded(ids_NL.to(device), segments_NL, torch.tensor([e.label for e in examples], dtype=torch.float32, device=device), lengths_N)


def _padded(rows: list[list[int]], lengths_N: Tensor, pad: int, dtype: torch.dtype) -> Tensor:
    longest = int(lengths_N.max())
    flat = torch.tensor([i for row in rows for i in row], dtype=dtype)
    return torch.full((len(rows), longest), pad, dtype=dtype).masked_scatter_(torch.arange(longest) < lengths_N[:, None], flat)


def shuffled(n: int, *coordinates: int) -> Tensor:
    """A permutation of 0..n-1, a pure function of the coordinates on any machine."""
    return torch.argsort(hashed(*coordinates, torch.arange(n)), stable=True)


def epoch_batches(lengths_N: Tensor, *, batch_size: int, seed: int, epoch: int) -> list[Tensor]:
    """Every example once, in batches of like length, as index tensors.

    Pools of POOL random batches are sorted by length and cut, then the order of all batches is shuffled. The examples left over when N is no
    multiple of the batch are set aside before the sorting: sorted with the rest, the incomplete batch would always hold the longest ones.
    """
    order = shuffled(len(lengths_N), seed, ORDER, epoch)
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
    model: Classifier, data: Encoded, *, regression: bool, rates: dict[str, float], settings: FinetuneSettings, epochs: float, seed: int, bf16: bool,
    after: Callable[[int, float, Tensor], None],
) -> None:  # fmt: skip
    """All updates of a run. `after(updates done, epochs done, loss)` is called behind each one; loss is a scalar on the device.

    data.labels_N: class numbers, or standardised values. Raises UserError where the loss is no longer a number at the end of an epoch.
    """
    named = dict(model.named_parameters())
    optimizer = make_optimizer("adamw", parameter_groups(named, rates=rates, weight_decay=settings.weight_decay), betas=(0.9, 0.999), eps=1e-6)
    size = settings.per_device_train_batch_size
    total = updates_of(len(data.lengths_N), batch_size=size, epochs=epochs)
    per_epoch = math.ceil(len(data.lengths_N) / size)
    parameters = list(named.values())
    model.train()
    for step, index_B in zip(range(total), _endless(data, size, seed), strict=False):
        # one further, so that the first update is not lost to a rate of 0
        now = factor("linear", step + 1, warmup_steps=round(settings.warmup_ratio * total), max_steps=total + 1)
        for group in optimizer.param_groups:
            group["lr"] = group["peak_lr"] * now
        with torch.autocast(data.ids_NL.device.type, torch.bfloat16, enabled=bf16):
            logits_BC = model(**data.inputs(index_B))
        wanted_B = data.labels_N[index_B.to(data.labels_N.device)]
        loss = F.mse_loss(logits_BC[:, 0], wanted_B) if regression else F.cross_entropy(logits_BC, wanted_B.long())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, settings.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        looked_at = (step + 1) % per_epoch == 0 or step + 1 == total  # reading the loss waits for the device
        if looked_at and not math.isfinite(loss.item()):
            raise UserError(f"the loss is {loss.item()} after {step + 1} updates (seed {seed}): lower --learning-rate")
        after(step + 1, (step + 1) / per_epoch, loss.detach())


def _endless(data: Encoded, batch_size: int, seed: int) -> Iterator[Tensor]:
    epoch = 0
    while True:
        yield from epoch_batches(data.lengths_N, batch_size=batch_size, seed=seed, epoch=epoch)
        epoch += 1


def predict(model: Classifier, data: Encoded, *, bf16: bool) -> Tensor:
    """Logits [N, C] in float32 on the CPU, in the order of the examples. The model is left in the mode it was in."""
    was_training = model.training
    model.eval()
    order = torch.argsort(data.lengths_N, stable=True)
    with torch.inference_mode(), torch.autocast(data.ids_NL.device.type, torch.bfloat16, enabled=bf16):
        found = torch.cat([model(**data.inputs(index_B)).float() for index_B in order.split(EVAL_BATCH)])
    model.train(was_training)
    logits_NC = torch.empty_like(found)
    logits_NC[order.to(found.device)] = found
    return logits_NC.cpu()


def device_named(name: str) -> torch.device:
    """`auto` is the GPU where there is one. Raises UserError for a device that is not here."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as e:
        raise UserError(f"device {name!r} is not here: {str(e).splitlines()[0]}") from e
    return device


def computes_in_bf16(choice: str, device: torch.device) -> bool:
    """`auto`: where the processor multiplies bfloat16 itself (measured with avx512_bf16: a step takes half the time at width 128, 40 % at 256)."""
    if choice != "auto":
        return choice == "true"
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    known = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return device.type == "cpu" and known is not None and bool(known())


def default_rates(hidden_size: int) -> tuple[float, float]:
    """Learning rate and layer-wise decay by width (ELECTRA's table 7: Small, Base, Large)."""
    if hidden_size <= 256:
        return 3e-4, 0.8
    return (1e-4, 0.8) if hidden_size < 1024 else (5e-5, 0.9)


def rates_for(model: Classifier, settings: FinetuneSettings) -> dict[str, float]:
    """The peak learning rate of every parameter."""
    peak, decay = default_rates(model.head.in_features)
    given = settings.learning_rate or peak, settings.layerwise_lr_decay or decay
    return learning_rates(dict(model.named_parameters()), peak=given[0], decay=given[1])
