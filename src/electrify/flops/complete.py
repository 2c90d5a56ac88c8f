"""Whether every matrix of an objective is counted. A part that its author forgot would make it look
cheap, and a comparison at equal FLOPs would train it for longer than the others."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from ..config.flops import Convention
from ..config.rows import is_ours
from ..errors import UserError
from ..model.embeddings import DisentangledWords
from ..objectives.objective import Objective

# What the costs of the package's own networks count, or know to be looked up only.
COUNTED = (nn.Linear, nn.Embedding, DisentangledWords)
# The methods in which a network, or a part of one, says what it costs.
SAYING = {"hardware": ("hardware_flops", "attention_flops"), "paper": ("paper_flops",)}


def must_count_all(objective: Objective, convention: Convention) -> None:
    """Raises UserError if a matrix of the objective lies in no network of its passes, or in one
    whose cost leaves it out. Vectors and single numbers cost next to nothing."""
    networks = [one.network for period in objective.periods() for one in period.passes]
    listed = {id(p) for network in networks for p in network.parameters()}
    for name, p in objective.named_parameters():
        if p.ndim > 1 and id(p) not in listed:
            inside = name.startswith("corruptor.")
            author = type(objective.corruptor if inside else objective).__name__
            raise UserError(
                f"no network that passes() of {author} lists has the parameter {name}, so what "
                "that part costs would not be counted; add a Pass (of share 0 if it never runs)"
            )
    for network in networks:
        for place, part in left_out(network, convention):
            where = f"its {place}, a {part}," if place else "its own matrices"
            raise UserError(
                f"what a {type(network).__name__} costs by {convention}_flops leaves out {where} "
                f"which nobody has counted; say it in a {convention}_flops of its own class"
            )


def left_out(network: nn.Module, convention: Convention) -> Iterator[tuple[str, str]]:
    """The parts of a network that have matrices of which no cost is known, by place and class."""
    for place, part in network.named_modules():
        if any(p.ndim > 1 for p in part.parameters(recurse=False)):
            names = place.split(".") if place else []
            around = [network.get_submodule(".".join(names[:n])) for n in range(len(names) + 1)]
            if not any(isinstance(one, COUNTED) or says(one, convention) for one in around):
                yield place, type(part).__name__


def says(part: nn.Module, convention: Convention) -> bool:
    """Whether a class outside of this package says what the part costs; it is believed."""
    for name in SAYING[convention]:
        having = next((cls for cls in type(part).__mro__ if name in vars(cls)), None)
        if having is not None and not is_ours(having.__module__):
            return True
    return False
