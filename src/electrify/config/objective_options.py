"""The own options of objectives: the help of each, which of them do not go together, and what the
model card says about a network that was trained with them. This module does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from .given import Checked

# Each candidate takes a random number and a row of the word table at every chosen position.
MOST_CANDIDATES = 64
# Cosines divided by less overflow; divided by more than its inverse, they are all alike.
LEAST_TEMPERATURE = 0.001


@dataclass(frozen=True, kw_only=True)
class DetectingOptions(Checked):
    """The options of every objective whose kept network detects replaced tokens."""

    rtd_head: Literal["dense", "linear", "v3"] = "dense"
    """The head that detects: dense = the architecture's own (of electra a dense layer, gelu and one
    row); linear = one row alone, as COCO-LM's; v3 = DeBERTaV3's, for architecture deberta, which
    adds the state of the first token of the sequence: norm, dense layer, gelu and one row."""


@dataclass(frozen=True, kw_only=True)
class RTDOptions(DetectingOptions):
    """The options of replaced token detection."""

    loss_on: Literal["all", "chosen"] = "all"
    """For rtd: the tokens that are graded."""
    correct_as_replaced: bool = False
    """For rtd: whether a draw that is the original token counts as replaced, too (as in Electric).
    """


@dataclass(frozen=True, kw_only=True)
class AllTokensOptions(Checked):
    """The options of All-Tokens MLM."""

    copy_gate: bool = True
    """For all_tokens: whether a gate may copy the token that is there; without it every token is
    predicted by the softmax alone."""


@dataclass(frozen=True, kw_only=True)
class CorrectiveOptions(DetectingOptions):
    """The options of detection and correction."""

    HEADING: ClassVar = "the objective: corrective"

    correction: Literal["plain", "gate", "copy", "none"] = "plain"
    """For corrective: the loss at a chosen position, c being the belief that the token there is the
    original: plain = cross-entropy; gate = (1 - c) times it; copy = minus the logarithm of c, where
    that token is the original, plus (1 - c) times its probability; none = detection alone, after a
    beginning with mlm_share."""
    mlm_share: float = 0.0
    """For corrective: the share of the run, from its start, in which the encoder is a masked
    language model: it reads [MASK] and predicts the original there, and detects nothing yet."""
    contrast_rows: int = 0
    """For corrective with a term weight for `contrast`: a crop of each sequence must be found among
    those of this many consecutive rows of the batch (COCO-LM); passes must hold whole such
    groups."""
    contrast_temperature: float = 1.0
    """For corrective: the cosines of the contrast are divided by this."""
    crop_share: float = 0.9
    """For corrective: the share of each sequence that its crop keeps."""


@dataclass(frozen=True, kw_only=True)
class SelectiveOptions(DetectingOptions):
    """The options of detection and selection."""

    candidates: int = 5
    """For selective: how many tokens the original is to be found among; the others are drawn from
    the generator."""


def rtd_check(model: Any, o: RTDOptions) -> str | None:
    if o.correct_as_replaced and o.loss_on == "chosen":
        return (
            "correct_as_replaced calls every chosen token replaced: it needs loss_on all, or there "
            "is one answer"
        )
    if o.loss_on == "chosen" and model.init_rtd_bias == "replaced":
        return (
            "init_rtd_bias replaced starts at the share of all tokens, and loss_on chosen grades "
            "the chosen ones: leave one of the two out"
        )
    return None


def corrective_check(model: Any, o: CorrectiveOptions) -> str | None:
    if not 0 <= o.mlm_share < 1:
        return f"mlm_share must lie in [0, 1), not {o.mlm_share}"
    if o.correction == "none" and not o.mlm_share:
        return (
            "correction none without mlm_share is replaced token detection alone: take objective "
            "rtd, or give mlm_share"
        )
    if o.contrast_rows < 0 or o.contrast_rows == 1:
        return (
            f"contrast_rows must be 0 or at least 2, not {o.contrast_rows}: a sequence is told "
            "from those of other rows"
        )
    if not LEAST_TEMPERATURE <= o.contrast_temperature <= 1 / LEAST_TEMPERATURE:
        return (
            f"contrast_temperature must lie between {LEAST_TEMPERATURE} and "
            f"{1 / LEAST_TEMPERATURE:g}, not {o.contrast_temperature}"
        )
    if not 0 < o.crop_share < 1:
        return f"crop_share must lie between 0 and 1, not {o.crop_share}"
    if not o.contrast_rows and (o.contrast_temperature, o.crop_share) != (1.0, 0.9):
        return "contrast_temperature and crop_share are for a contrast: give contrast_rows, too"
    return None


def corrective_weights(weights: Mapping[str, float], o: CorrectiveOptions) -> str | None:
    if o.mlm_share and not weights["correct"]:
        return (
            "mlm_share trains the encoder by the loss `correct`, whose weight is 0: give "
            "term_weights with correct=1, or leave mlm_share out"
        )
    if o.correction == "none" and not weights["rtd"]:
        return (
            "correction none leaves the detection, whose loss `rtd` has weight 0: give "
            "term_weights with rtd=50"
        )
    if o.correction in ("gate", "copy") and weights["correct"] and not weights["rtd"]:
        return (
            f"correction {o.correction} asks the head that detects, whose loss `rtd` has weight 0 "
            "so that it learns nothing: give term_weights with rtd=50, or take correction plain"
        )
    return None


def selective_check(model: Any, o: SelectiveOptions) -> str | None:
    if not 2 <= o.candidates <= MOST_CANDIDATES:
        return f"candidates must lie between 2 and {MOST_CANDIDATES}, not {o.candidates}"
    return None


def rtd_asked(weights: Mapping[str, float], o: RTDOptions) -> str:
    if not weights["rtd"]:
        return "to say of every text whether anything in it was replaced" * bool(
            weights.get("sentence")
        )
    if o.correct_as_replaced:
        drawn = (
            "to say of every token whether it is original or was drawn, where a draw that is the "
            "original counts as drawn"
        )
        return f"{drawn} (ELECTRA with Electric's labels)"
    return f"{_DETECTS} (ELECTRA)"


_DETECTS = "to say of every token whether it is original or was replaced"
_CORRECTIONS = {
    "plain": "RTD and correction, after METRO-LM",
    "gate": "RTD and correction with a gate, by which a token that passes for the original teaches "
    "little, as COCO-LM's code",
    "copy": "RTD and correction that may copy the token that is there, as COCO-LM",
}


def corrective_asked(weights: Mapping[str, float], o: CorrectiveOptions) -> str:
    first = f"after {o.mlm_share:.0%} of the run as a masked language model, " * bool(o.mlm_share)
    crops = f"to find the crop of a sequence among those of {o.contrast_rows} rows"
    parts = [_corrective_tokens(weights, o), crops * bool(o.contrast_rows)]
    return first + "; and ".join(filter(None, parts))


def _corrective_tokens(weights: Mapping[str, float], o: CorrectiveOptions) -> str:
    corrects = weights["correct"] and o.correction != "none"
    if not weights["rtd"]:
        return "to say which token stood at the places of replacements (Replace MLM)" * bool(
            corrects
        )
    if not corrects:
        return f"{_DETECTS} (RTD)"
    return (
        f"{_DETECTS}, and at the places of replacements which token stood there "
        f"({_CORRECTIONS[o.correction]})"
    )


def selective_asked(weights: Mapping[str, float], o: SelectiveOptions) -> str:
    found = f"that learned to find the original among {o.candidates} candidates"
    selection = "multi-word selection, as TEAMS"
    if not weights["select"]:
        return f"{_DETECTS} (RTD)" * bool(weights["rtd"])
    if not weights["rtd"]:
        return f"as all but the last layer of a branch {found} ({selection})"
    return f"{_DETECTS}, beside a branch with another last layer {found} (RTD and {selection})"


def all_tokens_asked(weights: Mapping[str, float], o: AllTokensOptions) -> str:
    if not weights["all_tokens"]:
        return ""
    if not o.copy_gate:
        return (
            "to predict the original of every token (All-Tokens MLM without the gate that copies "
            "the input)"
        )
    return (
        "to predict the original of every token (All-Tokens MLM; the gate that copies the input is "
        "not part of this folder)"
    )
