"""The FLOPs of an update as torch counts them, beside our own count."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from batches import at_of, built, counts_of, draws_of, ragged_batch, terms_of, tiny
from electrify.flop_counts import passes_flops
from electrify.model.attention import SharedContext
from electrify.model.costs import Pass
from electrify.model.embeddings import DisentangledWords
from electrify.model.encoder import Encoder
from electrify.objectives.objective import Objective
from electrify.terms import weighted


def exactly(
    recipe: str, *, row_length: int, fields: dict[str, Any], rows: int | None = None
) -> tuple[int, int]:
    """FLOPs of one forward and backward pass over a batch with pads, packed rows and an empty one:
    as torch counts them, and as we do, with what runs on chosen positions on exactly their share.
    """
    weights = tiny(recipe, **fields).objective.term_weights
    objective, tokens = (
        cast(Any, built(recipe, **fields).objective),
        ragged_batch(row_length=row_length),
    )
    through_matmul(objective)
    draws, size = draws_of(tokens), len(tokens.ids_T)
    share = len(at_of(objective.corruptor.chooser, tokens, draws)) / size
    assert 0 < share < 1
    rows = tokens.num_rows if rows is None else rows
    with FlopCounterMode(display=False) as counter:
        weighted(
            terms_of(objective, tokens, draws), weights, counts_of(objective, tokens, draws)
        ).backward()
    ours = passes_flops(
        with_share(objective, share),
        row_length=row_length,
        convention="hardware",
        rows=rows,
        batch_rows=tokens.num_rows,
    )
    return counter.get_total_flops(), round(size * ours)


def through_matmul(module: nn.Module) -> None:
    """torch's counter does not look into the fused attention kernel of a CPU."""
    for part in module.modules():
        if isinstance(part, Encoder):
            cast(SharedContext, part.contexts).backend = "matmul"


def with_share(objective: Objective, share: float) -> list[Pass]:
    """The objective's passes, what runs on chosen positions on `share` of the tokens."""
    return [one if one.share in (0, 1) else replace(one, share=share) for one in objective.passes()]


# What the costs of the package's own networks count, or know to be looked up only.
COUNTED = (nn.Linear, nn.Embedding, DisentangledWords)


def uncounted(objective: Any) -> list[str]:
    """The matrices of an objective whose cost is left out: in no network of its passes, or in a
    part that does not count them. Vectors and single numbers cost next to nothing."""
    networks = [one.network for period in objective.periods() for one in period.passes]
    listed = {id(p) for network in networks for p in network.parameters()}
    found = [n for n, p in objective.named_parameters() if p.ndim > 1 and id(p) not in listed]
    return found + [place for network in networks for place in left_out(network)]


def left_out(network: nn.Module) -> Iterator[str]:
    """The parts of a network that have matrices of which no cost is known."""
    for place, part in network.named_modules():
        if any(p.ndim > 1 for p in part.parameters(recurse=False)):
            names = place.split(".") if place else []
            around = [network.get_submodule(".".join(names[:n])) for n in range(len(names) + 1)]
            if not any(isinstance(one, COUNTED) for one in around):
                yield f"{type(network).__name__}.{place}"
