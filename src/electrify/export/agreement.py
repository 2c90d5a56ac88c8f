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

from ..architectures.exported import ExportedModel
from ..errors import UserError, failing_as
from ..model.encoder import Encoder
from ..model.heads import Head
from ..model.shape import Shape
from ..tokens import SpecialIds, Tokens
from .quiet import quiet

# Tokens of the longest sequence that is compared.
MOST_TOKENS = 1024
# How far hidden states and logits may differ, relative to their largest value where that exceeds 1.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}


class ExportError(UserError):
    """Raised if the written folder does not give the numbers of the run's own network; it is not
    kept."""


def check_folder(folder: Path, model: ExportedModel, special: SpecialIds) -> float:
    """Loads the folder with transformers and compares hidden states and logits with the network's
    own, in eval mode.

    Returns the largest relative difference. Raises ExportError if it exceeds TOLERANCE or anything
    does not load.
    """
    encoder, theirs = _loaded(folder, model, special)
    own = copy.deepcopy((model.encoder, model.head))
    tokens = probe(model.encoder.shape, special)
    # Sharply trained attention amplifies float32 rounding; float64 tells rounding from a wrong
    # number.
    for dtype in (torch.float32, torch.float64):
        for module in (*own, encoder, theirs):
            module.to("cpu", dtype).eval()
        found = _hf_outputs(encoder, theirs, tokens, model)
        worst = _largest_difference(_outputs(own, tokens), found, tokens)
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
    with quiet():
        encoder = transformers.AutoModel.from_pretrained(folder, **local)
        theirs, info = reader.from_pretrained(folder, output_loading_info=True, **local)
    wrong = sorted(
        [*info["missing_keys"], *info["unexpected_keys"], *(k[0] for k in info["mismatched_keys"])]
    )
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
    """Hidden states [T, D] and logits of our modules."""
    encoder, head = own
    every_T = torch.arange(len(tokens.ids_T))
    return encoder(tokens), head(head.read(encoder, tokens, every_T))


@torch.no_grad()
def _hf_outputs(
    encoder: nn.Module, theirs: nn.Module, tokens: Tokens, model: ExportedModel
) -> tuple[Tensor, Tensor]:
    """Hidden states and logits of theirs."""
    inputs = model.architecture.inputs(tokens)
    with _NoRounding():
        output = theirs(**inputs)
        states = encoder(**inputs).last_hidden_state
    logits = (
        model.architecture.binary_logits(output) if model.head.kind == "binary" else output.logits
    )
    return states.flatten(0, 1), logits.flatten(0, 1)


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


def _largest_difference(
    ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...], tokens: Tokens
) -> float:
    """Over real tokens, relative to the largest value where that exceeds 1; nan for any nan."""
    differences = [
        (a - b)[tokens.real_T].abs().max() / a[tokens.real_T].abs().max().clamp(min=1)
        for a, b in zip(ours, theirs, strict=True)
    ]
    return torch.stack(differences).max().item()


def probe(shape: Shape, special: SpecialIds) -> Tokens:
    """The input for the comparison: three padded sequences of different lengths, one per row, with
    both segments, and long enough for windows to have an edge and for distances to share
    buckets."""
    length = min(shape.max_position_embeddings, shape.telling_length, MOST_TOKENS)
    rng = torch.Generator().manual_seed(0)
    ids_BL = torch.randint(shape.vocab_size, (3, length), generator=rng)
    pos_BL = torch.arange(length).repeat(3, 1)
    real_BL = pos_BL < torch.tensor([[length], [max(1, length // 2)], [max(1, length - 3)]])
    segment_BL = ((pos_BL > length // 3) & real_BL).long() % shape.type_vocab_size
    ids_BL = ids_BL.where(real_BL, torch.tensor(special.pad))
    return Tokens(
        ids_BL.flatten(),
        real_BL.long().flatten(),
        pos_BL.flatten(),
        segment_BL.flatten(),
        row_length=length,
    )
