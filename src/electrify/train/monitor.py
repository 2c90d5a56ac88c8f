"""A watch on the log for the ways in which a run can quietly learn nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..corruption.choosing import chosen_counts
from ..data.phases import phases_of
from ..recipe import Corruption, Recipe, first_asked, learns_by_likelihood
from ..text.corpus import Corpus

# On the unigram plateau the measured loss at [MASK] positions lies up to 0.05 nats below the
# unigram entropy; as soon as the model learns any context, it falls 0.2 below
# (research/results.md).
UNIGRAM_MARGIN_NATS = 0.1
# A model that says "original" everywhere has recall 0; a few positives by chance are not learning
# yet.
MIN_RECALL = 0.01
# At the smallest sizes, models with the plain initialisation leave the plateau after about 5
# million tokens, those with local heads after half a million. Advice on a run's length uses the
# number of its initialisation. Warnings wait for the larger one, because other sizes take longer.
GRACE_TOKENS = 5_000_000
LOCAL_GRACE_TOKENS = 500_000
# Repeating a corpus gains next to nothing after about 40 times (Muennighoff et al. 2023, "Scaling
# data-constrained language models").
MAX_EPOCHS = 40
MORE_TEXT = "use more text or a smaller max_steps"
NO_CONTEXT = (
    "it does not use the context; try init=local, a longer warm-up or another learning_rate"
)
ONE_ANSWER = "look at what replaces the tokens first, then try another learning_rate"
# Losses of language models on tokens that they could not see in their input.
BLIND = {
    "_loss_masked": " on [MASK]",
    "mlm_loss_replaced": " on replaced tokens",
    "softmax_loss_replaced": " on replaced tokens",
}


def grace_of(init: str) -> int:
    """The tokens after which a model with this initialisation uses the context."""
    return LOCAL_GRACE_TOKENS if init == "local" else GRACE_TOKENS


@dataclass(frozen=True)
class Trouble:
    """What a monitor warns of. subject: the language model that it is about, if it is about one."""

    topic: str
    fact: str
    advice: str
    subject: str = ""

    @property
    def text(self) -> str:
        """The warning."""
        return f"{self.fact}: {self.advice}"


class Monitor:
    """Watches a run of this recipe, while it trains and for what is said of it later. Gives each
    warning once, and again only if the problem had gone away in between.

    unigram_entropy: entropy of the tokens that are chosen, in nats.
    """

    def __init__(self, recipe: Recipe, unigram_entropy: float) -> None:
        tokens_before = phases_of(recipe).slots
        self.unigram_entropy = unigram_entropy
        self.untaught = tuple(f"{name}_" for name in untaught(recipe))
        # Nothing is expected while the learning rate still rises, nor of detection before a head
        # has been asked for it.
        self.grace_tokens = max(GRACE_TOKENS, tokens_before(recipe.train.warmup_steps))
        asked = tokens_before(first_asked(recipe))
        self.detects_after = max(self.grace_tokens, asked + GRACE_TOKENS)
        self._in_trouble: set[str] = set()

    def watch(self, record: Mapping[str, Any]) -> list[Trouble]:
        """The new troubles that this record of the log gives rise to.

        It reads "epoch" (how often the corpus was seen) and, from records of validation, "tokens"
        (trained on so far), the losses of language models where the answer cannot be seen, in nats
        ("*_loss_masked" on [MASK], "mlm_loss_replaced" and "softmax_loss_replaced" on replaced
        tokens, "generator" of a cloze model), and "*_detection_recall", "*_precision" and
        "*_replaced" (the share of the replaced tokens that was found; the share of tokens that was
        replaced). Fields that are missing are not judged.
        """
        judged = list(self._judged(record))
        new = [trouble for key, bad, trouble in judged if bad and key not in self._in_trouble]
        self._in_trouble -= {key for key, bad, _ in judged if not bad}
        self._in_trouble |= {key for key, bad, _ in judged if bad}
        return new

    def _judged(self, record: Mapping[str, Any]) -> Iterator[tuple[str, bool, Trouble]]:
        """Each trouble that the record could show, with its key, and whether it is there."""
        if "epoch" in record:
            epochs = record["epoch"]
            fact = f"the corpus has been seen {epochs:.1f} times; beyond {MAX_EPOCHS} more steps "
            trouble = Trouble("epochs", f"{fact}gain next to nothing", MORE_TEXT)
            yield "epochs", epochs > MAX_EPOCHS, trouble
        tokens = record.get("tokens", 0)
        if record["kind"] != "valid" or tokens < self.grace_tokens:
            return
        after = f"after {tokens / 1e6:.1f} M tokens"
        for name, value in record.items():
            if f"{name}_".startswith(self.untaught):
                continue
            if _is_blind(name, record):
                subject, entropy = name.split("_loss_")[0], self.unigram_entropy
                where = next((text for end, text in BLIND.items() if name.endswith(end)), "")
                fact = f"{subject}: no better than word frequencies {after} (loss {value:.2f}"
                fact += f"{where}, unigram {entropy:.2f})"
                bad = not value < entropy - UNIGRAM_MARGIN_NATS  # nan is bad too
                yield name, bad, Trouble("frequencies", fact, NO_CONTEXT, subject)
            elif name.endswith("_detection_recall") and tokens >= self.detects_after:
                # A discriminator may give every token the same answer, original or replaced.
                replaced = record.get(name.replace("_recall", "_replaced"), 0.5)
                precision = record.get(name.replace("_recall", "_precision"), 1.0)
                spared = spared_share(value, precision, replaced)
                for key, every, others, share in (
                    (name, "original", "replaced", value if replaced > 0 else 1.0),
                    (f"{name} 1", "replaced", "original", spared),
                ):
                    fact = f"the discriminator calls every token {every} {after} (it finds "
                    fact += f"{share:.1%} of the {others} ones)"
                    yield key, share < MIN_RECALL, Trouble(f"all_{every}", fact, ONE_ANSWER)

    def state(self) -> list[str]:
        """The warnings already given, for the checkpoint, so that a resumed run does not repeat
        them."""
        return sorted(self._in_trouble)

    def restore(self, state: list[str]) -> None:
        self._in_trouble = set(state)


def untaught(recipe: Recipe) -> set[str]:
    """What no loss trains, by the names with which its metrics begin: the losses whose weight is 0
    and the parts that they would train, and a generator which is frozen or trained adversarially.
    """
    idle = {loss for loss, w in recipe.objective.term_weights.items() if not w}
    if not learns_by_likelihood(recipe):
        idle.add("generator")
    parts = recipe.objective.row.parts
    return idle | {part for part, loss in parts.items() if loss in idle}


def _is_blind(name: str, record: Mapping[str, Any]) -> bool:
    """Whether a validation metric is a language model's loss on tokens that it cannot see; the
    whole loss of a cloze model is."""
    if name == "generator":
        return "generator_loss_masked" not in record
    return name.endswith(tuple(BLIND))


def spared_share(recall: float, precision: float, replaced: float) -> float:
    """The share of the original tokens that the model calls original; 1 if there are no original
    tokens, or if the model calls nothing replaced."""
    if replaced >= 1 or not precision:
        return 1.0
    return 1 - recall * replaced * (1 - precision) / precision / (1 - replaced)


# ------------------------------------------------------------------ word frequencies alone


def unigram_entropy(corpus: Corpus, c: Corruption) -> float:
    """The loss, in nats, of the best model that sees no context, on the tokens on which this
    corruption's language models are judged."""
    counts_V = torch.from_numpy(corpus.unigram()).double()
    if c.mask_choice == "rare" and not c.row.judges_all:
        counts_V = counts_of_chosen(counts_V, c)
    p = counts_V[counts_V > 0] / max(1.0, float(counts_V.sum()))
    return float(-(p * p.log()).sum())


def counts_of_chosen(counts_V: Tensor, c: Corruption) -> Tensor:
    """How often each token is chosen where rare ones are preferred, at the run's mean rate. Of a
    span only the first token decides; the others are as frequent as in the corpus. (A whole word is
    counted as if each of its tokens decided.)"""
    end = c.mask_rate if c.mask_rate_end is None else c.mask_rate_end
    chosen_V = chosen_counts(counts_V, (c.mask_rate + end) / 2)
    if c.mask_unit != "span":
        return chosen_V
    following = (c.span_length - 1) / 2  # tokens after the first, on average
    return chosen_V + following * counts_V * float(chosen_V.sum() / counts_V.sum())
