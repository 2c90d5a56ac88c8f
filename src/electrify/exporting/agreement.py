"""Checks that transformers computes the same from an exported folder as the run's own network.

Shape suffixes: B sequences, L length, T = B * L flat tokens, D hidden width.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..architectures.architecture import ExportedModel
from ..errors import UserError, failing_as
from ..model.encoder import Encoder
from ..model.heads import Head
from ..tokens import SpecialIds, Tokens
from .loading import loaded, quiet

# Tokens of the longest sequence that is compared.
MOST_TOKENS = 1024
# How far hidden states and logits may differ, relative to their largest value where that exceeds 1.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}


class ExportError(UserError):
    """Raised if the written folder does not give the numbers of the run's own network; it is not
    kept."""


def check_folder(folder: Path, model: ExportedModel, special: SpecialIds) -> float:
    """Loads the folder with transformers and compares hidden states and logits with the network's
    own, in eval mode: of single sequences, which the network reads by themselves and packed.

    Returns the largest relative difference. Raises ExportError if it exceeds TOLERANCE or anything
    does not load.
    """
    own, theirs = copy.deepcopy((model.encoder, model.head)), _loaded(folder, model)
    tokens = probes(model, special)
    # Sharply trained attention amplifies float32 rounding; float64 tells rounding from a wrong
    # number.
    for dtype in (torch.float32, torch.float64):
        for module in (*own, *theirs):
            module.to("cpu", dtype).eval()
        worst = _largest_difference(model, own, theirs, tokens)
        if worst <= TOLERANCE[dtype]:
            return worst
    raise ExportError(
        "the export computes other numbers than the run's own network (relative difference "
        f"{worst:.1e}); nothing was written"
    )


def _loaded(folder: Path, model: ExportedModel) -> tuple[nn.Module, nn.Module]:
    """The encoder and the whole network as transformers loads them, and the tokenizer as well.
    Raises ExportError if keys differ."""
    import transformers

    reader = model.architecture.network_class(model.table().name)
    with quiet(), failing_as("the run's tokenizer folder cannot be loaded by transformers"):
        transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    encoder, _ = loaded(transformers.AutoModel, str(folder), None)
    theirs, info = loaded(reader, str(folder), None)
    wrong = sorted([*info["missing_keys"], *info["unexpected_keys"]])
    if wrong:
        raise ExportError(
            f"transformers does not find its keys in the export: {', '.join(wrong[:5])}; nothing "
            "was written"
        )
    return encoder, theirs


@torch.no_grad()
def _largest_difference(
    model: ExportedModel,
    own: tuple[Encoder, Head],
    theirs: tuple[nn.Module, nn.Module],
    tokens: tuple[Tokens, Tokens],
) -> float:
    """Between our hidden states and logits of real tokens and theirs, relative to the largest value
    where that exceeds 1; nan for any nan. tokens: single sequences, which theirs read, and
    packed."""
    single, known = tokens[0], model.architecture
    inputs = known.inputs(single)
    with _NoRounding():
        states, output = theirs[0](**inputs).last_hidden_state, theirs[1](**inputs)
    logits = known.binary_logits(output) if model.head.kind == "binary" else output.logits
    wanted = [x.flatten(0, 1)[single.real_T] for x in (states, logits)]
    differences, (encoder, head) = list[Tensor](), own
    for batch in tokens:
        real_M = batch.real_T.nonzero().flatten()
        found = encoder(batch)[real_M], head(head.read(encoder, batch, real_M))
        for a, b in zip(found, wanted, strict=True):
            differences.append((a - b).abs().max() / a.abs().max().clamp(min=1))
    return torch.stack(differences).max().item()


class _NoRounding(TorchFunctionMode):
    """Inside, `float()` leaves float64 as it is. transformers calls it on queries and keys before
    it turns them by their positions, so that half-precision models turn them in float32; a float64
    model would be rounded there, and could not tell rounding from a wrong number."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.float and args[0].dtype == torch.float64:
            return args[0]
        return func(*args, **(kwargs or {}))


def probes(model: ExportedModel, special: SpecialIds) -> tuple[Tokens, Tokens]:
    """The input for the comparison, twice: three sequences as rows of their own, the second padded
    on the right and the third on the left, and the same with the last two in one row. They have
    both segments, and are long enough for windows to have an edge and for distances to share
    buckets."""
    shape = model.encoder.shape
    length = min(shape.max_position_embeddings, shape.telling_length, MOST_TOKENS)
    half = max(1, length // 2)
    sizes = (length, half, max(1, half - 3))
    left = length - sizes[2]
    starts = (0, 0, left if model.architecture.counts_padding else 0)

    def laid_out(*at: tuple[int, int]) -> Tokens:
        """at: the row of each sequence, and where it begins there."""
        rng = torch.Generator().manual_seed(0)
        fields_4RL = torch.zeros(4, at[-1][0] + 1, length, dtype=torch.long)
        fields_4RL[0].fill_(special.pad)
        for k, (n, start, (row, begin)) in enumerate(zip(sizes, starts, at, strict=True)):
            place_N = torch.arange(n)
            ids_N = torch.randint(shape.vocab_size, (n,), generator=rng)
            segment_N = (place_N > n // 3).long() % shape.type_vocab_size
            fields = (ids_N, torch.full_like(place_N, k + 1), place_N + start, segment_N)
            fields_4RL[:, row, begin : begin + n] = torch.stack(fields)
        return Tokens(*fields_4RL.flatten(1), row_length=length)

    last = (1, half) if length > 1 else (2, 0)
    return laid_out((0, 0), (1, 0), (2, left)), laid_out((0, 0), (1, 0), last)
