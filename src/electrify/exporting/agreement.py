"""Checks that transformers computes the same from an exported folder as the run's own network.

Shape suffixes: B sequences, L length, T = B * L flat tokens, D hidden width.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
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
    encoder, theirs = _loaded(folder, model, special)
    own = copy.deepcopy((model.encoder, model.head))
    single, packed = probes(model, special)
    # Sharply trained attention amplifies float32 rounding; float64 tells rounding from a wrong
    # number.
    for dtype in (torch.float32, torch.float64):
        for module in (*own, encoder, theirs):
            module.to("cpu", dtype).eval()
        found = _hf_outputs(encoder, theirs, single, model)
        worst = _largest_difference([_outputs(own, t) for t in (single, packed)], found)
        if worst <= TOLERANCE[dtype]:
            return worst
    raise ExportError(
        "the export computes other numbers than the run's own network (relative difference "
        f"{worst:.1e}); nothing was written"
    )


def _loaded(folder: Path, model: ExportedModel, special: SpecialIds) -> tuple[nn.Module, nn.Module]:
    """The encoder and the whole network as transformers loads them. Raises ExportError if keys or
    special tokens differ."""
    import transformers

    reader = model.architecture.network_class(model.table().name)
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    with quiet(), failing_as("the run's tokenizer folder cannot be loaded by transformers"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **local)
    encoder, _ = loaded(transformers.AutoModel, str(folder), None, **local)
    theirs, info = loaded(reader, str(folder), None, **local)
    wrong = sorted([*info["missing_keys"], *info["unexpected_keys"]])
    if wrong:
        raise ExportError(
            f"transformers does not find its keys in the export: {', '.join(wrong[:5])}; nothing "
            "was written"
        )
    same_ids = (tokenizer.pad_token_id, tokenizer.mask_token_id) == (special.pad, special.mask)
    if not same_ids or max(tokenizer.get_vocab().values()) >= model.encoder.shape.vocab_size:
        raise ExportError(
            "the run's tokenizer folder has other special tokens or more tokens than the run was "
            "trained with; nothing was written"
        )
    return encoder, theirs


@torch.no_grad()
def _outputs(own: tuple[Encoder, Head], tokens: Tokens) -> tuple[Tensor, Tensor]:
    """Hidden states and logits of our modules, of real tokens."""
    encoder, head = own
    real_M = tokens.real_T.nonzero().flatten()
    return encoder(tokens)[real_M], head(head.read(encoder, tokens, real_M))


@torch.no_grad()
def _hf_outputs(
    encoder: nn.Module, theirs: nn.Module, tokens: Tokens, model: ExportedModel
) -> tuple[Tensor, Tensor]:
    """Hidden states and logits of theirs, of real tokens."""
    inputs = model.architecture.inputs(tokens)
    with _NoRounding():
        output = theirs(**inputs)
        states = encoder(**inputs).last_hidden_state
    logits = (
        model.architecture.binary_logits(output) if model.head.kind == "binary" else output.logits
    )
    return states.flatten(0, 1)[tokens.real_T], logits.flatten(0, 1)[tokens.real_T]


class _NoRounding(TorchFunctionMode):
    """Inside, `float()` leaves float64 as it is. transformers calls it on queries and keys before
    it turns them by their positions, so that half-precision models turn them in float32; a float64
    model would be rounded there, and could not tell rounding from a wrong number."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is Tensor.float and args[0].dtype == torch.float64:
            return args[0]
        return func(*args, **(kwargs or {}))


def _largest_difference(ours: Sequence[tuple[Tensor, ...]], theirs: tuple[Tensor, ...]) -> float:
    """Between each of ours and theirs, relative to the largest value where that exceeds 1; nan for
    any nan."""
    differences = [
        (a - b).abs().max() / a.abs().max().clamp(min=1)
        for one in ours
        for a, b in zip(one, theirs, strict=True)
    ]
    return torch.stack(differences).max().item()


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

    return laid_out((0, 0), (1, 0), (2, left)), laid_out(
        (0, 0), (1, 0), (1, half) if length > 1 else (2, 0)
    )
