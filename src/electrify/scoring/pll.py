"""Pseudo-log-likelihood: how well a sentence fits what an encoder has learnt, computed with the
head with which it was pre-trained. `electrify score`: that of every text of files.

The score of a sentence is a sum over its tokens without the special ones. Its terms depend on the
head:

- `mlm`: log p(token, given all the others), each token masked by itself, one forward pass per token
(1910.14659)
- `rtd`: log P(original), the replaced-token head's, in one pass (2003.10555)
- `electric`: minus the energy, in one pass (2012.08561 section 3)

A text that is longer than the model's positions is read in windows (windows.py).

Shape suffixes: B rows of a batch, L tokens, N scored tokens of a batch, V vocabulary.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor

from ..architectures import exported_as
from ..architectures.architecture import Architecture
from ..errors import need
from ..exporting.loading import load_config, load_tokenizer, load_weights, made_for
from ..exporting.places import metadata_of
from ..finetuning.new_texts import Files
from ..finetuning.output import After, done, must_be_ready, rounded, write_results
from ..methods import class_at
from ..onnx_models import Array, padded
from ..text.tokenizer import tokenised
from ..train.machine import choose_threads, computing_with, pick_device
from ..values import given_texts
from .options import ScoreConfig
from .windows import AfterTexts, Row, of_tokens, places

Kind = Literal["mlm", "rtd", "electric"]
SHORT = ("albert", "bert", "camembert", "deberta-v2", "distilbert", "electra", "modernbert")
SHORT += ("roberta", "xlm-roberta")
"""Types of models whose language-model head reads each position by itself."""


@dataclass(frozen=True)
class TextScore:
    """How well a text fits a model, in nats; higher is better."""

    score: float
    """The sum over the tokens."""
    tokens: tuple[str, ...]
    """Without special ones."""
    token_scores: tuple[float, ...]


@dataclass(frozen=True)
class Scorer:
    """An encoder with the head that it was trained with."""

    name: str
    kind: Kind
    model: Any
    tokenizer: Any
    positions: int
    """The most tokens of a sequence that the model was made for, including special ones."""
    architecture: Architecture | None = None
    """The architecture that reads the logits of a binary head; None for a masked language model."""
    short: bool = False
    """Whether a masked language model's head can be run on the masked positions only."""

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def width(self) -> int:
        return self.model.config.hidden_size

    def scores(self, texts: Sequence[str], **how: Any) -> list[float]:
        """The score of each text. how: see `token_scores`."""
        return [found.score for found in self.token_scores(texts, **how)]

    def token_scores(
        self,
        texts: Sequence[str],
        *,
        max_seq_length: int | None = None,
        batch_tokens: int = 8192,
        after: AfterTexts = lambda n: None,
    ) -> list[TextScore]:
        """The score of each text and those of its tokens.

        Args:
            texts: A text without tokens has no scores.
            max_seq_length: Tokens of a window, special ones included [default: the model's
                maximum].
            batch_tokens: Slots of a forward pass.
            after: See `windows.AfterTexts`.

        Raises:
            UserError: If scores are not finite numbers.
        """
        ids = [tokenised(self.tokenizer, text)["input_ids"] for text in given_texts(texts)]
        how: dict[str, Any] = {"singly": self.kind == "mlm", "slots": batch_tokens, "after": after}
        length = min(max_seq_length or self.positions, self.positions)
        found = of_tokens(self, ids, self._score, length=length, **how)
        names = self.tokenizer.convert_ids_to_tokens
        return [
            TextScore(float(scores_T.sum()), tuple(names(own)), tuple(scores_T.tolist()))
            for own, scores_T in zip(ids, map(torch.from_numpy, found), strict=True)
        ]

    def _padded(self, rows: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
        """Ids and where they are real, [B, L]."""
        ids_BL, real_BL = map(torch.from_numpy, padded(rows, self.tokenizer.pad_token_id))
        return ids_BL.to(self.device), real_BL.to(self.device)

    @torch.inference_mode()
    def binary_logits(self, rows: Sequence[list[int]]) -> Tensor:
        """What a binary head says of each token, [B, L]."""
        assert self.architecture is not None
        ids_BL, real_BL = self._padded(rows)
        output = self.model(input_ids=ids_BL, attention_mask=real_BL)
        return self.architecture.binary_logits(output).float()

    def probabilities(self, rows: Sequence[list[int]]) -> Array:
        """Of each token that it was replaced, [B, L]."""
        return self.binary_logits(rows).sigmoid().cpu().numpy()

    def computing(self, threads: str, *, tokens: int) -> AbstractContextManager[None]:
        """A context with the threads of the option --threads. tokens: of a forward pass."""
        how = {"device": self.device, "width": self.width, "tokens": tokens, "bf16": False}
        return computing_with(choose_threads(threads, **how))

    @torch.inference_mode()
    def _score(self, batch: list[Row]) -> Array:
        """The scores of the tokens that the rows are for, [N]."""
        rows = [row.ids for row in batch]
        row_N, at_N = torch.tensor(places(batch), device=self.device)
        if self.architecture is not None:
            logits_N = self.binary_logits(rows)[row_N, at_N]
            scores_N = -logits_N if self.kind == "electric" else F.logsigmoid(-logits_N)
        else:
            ids_BL, real_BL = self._padded(rows)
            mask = torch.tensor(self.tokenizer.mask_token_id, device=self.device)
            inputs = {"input_ids": ids_BL.index_put((row_N, at_N), mask)}
            inputs["attention_mask"] = real_BL
            logits_NV = logits_at(self.model, at_N, short=self.short, **inputs).float()
            scores_N = -F.cross_entropy(logits_NV, ids_BL[row_N, at_N], reduction="none")
        return scores_N.double().cpu().numpy()


def logits_at(model: Any, at_B: Tensor, *, short: bool, **inputs: Tensor) -> Tensor:
    """A masked language model's logits at one position of each row, [B, V].

    short: a hook after the encoder passes only those positions to the head, because the logits of
    the other positions would be most of the work.
    """
    row_B = torch.arange(len(at_B), device=at_B.device)
    if not short:
        return model(**inputs).logits[row_B, at_B]

    def pick(module: Any, arguments: Any, output: Any) -> Any:
        output["last_hidden_state"] = output[0][row_B, at_B][:, None]
        return output

    hook = model.base_model.register_forward_hook(pick)
    try:
        return model(**inputs).logits[:, 0]
    finally:
        hook.remove()


def load_scorer(
    model: str,
    *,
    device: str = "cpu",
    architecture: str | None = None,
    detects: bool = False,
) -> Scorer:
    """The scorer for a folder or Hub id. architecture: one's own, `module:Class`, which is
    imported. detects: see the table.

    | class in config.json        | kind                           | is loaded as         |
    |-----------------------------|--------------------------------|----------------------|
    | of an architecture's binary | rtd, or electric if            | that class           |
    | head                        | electrify.json says energy     |                      |
    | none, and `detects`         | rtd (Microsoft's DeBERTaV3)    | the same             |
    | of its language-model head  | mlm                            | that class           |
    | another, or none            | mlm                            | AutoModelForMaskedLM |

    Raises UserError if the weights of a head are missing, which the library would fill with random
    numbers, or if the tokenizer has no [MASK], [CLS] or [SEP].
    """
    place = pick_device(device)
    if architecture:
        class_at(architecture)  # now `exported_as` knows it
    config, metadata = load_config(model), metadata_of(model)
    logits = metadata.get("logits")
    need(
        logits != "choice",
        f"{model}: its head compares a few candidates and gives no probability. Take the "
        "discriminator/ or the generator/ folder of its run",
    )
    known, named = exported_as(config.model_type), config.architectures or ()
    need(
        known is not None or not detects or "architecture" not in metadata,
        f"{model} has an architecture of your own. Give --architecture "
        f"{metadata.get('architecture')}",
    )
    kind: Kind = "mlm"
    network: Any = transformers.AutoModelForMaskedLM
    reader = known.for_folder(config) if known else None
    asked = reader and (reader.classes["binary"] in named or (detects and not named))
    if reader and asked and reader.has_head(config, "binary"):
        kind = "electric" if logits == "energy" else "rtd"
        network = reader.network_class(reader.classes["binary"])
    else:
        if reader is not None and reader.classes["token"] in named:
            # Ours if the folder says that it has what the library would leave out.
            network = reader.network_class(reader.classes["token"])
        reader = None
    loaded, missing = load_weights(network, model, config)
    if missing and not named and known and reader is None:
        # As Microsoft publishes DeBERTa: the folder does not say how its weights are named.
        loaded, missing = load_weights(network, model, known.as_read(config))
    head = "replaced-token head" if reader or detects else "language-model head"
    need(
        not missing,
        f"{model}: the folder lacks {len(missing)} weights ({', '.join(missing[:1])}, ...). It has "
        f"no {head}, or not all of it",
        "take the discriminator/ or the generator/ folder of a run",
    )
    tokenizer = load_tokenizer(model, vocab_size=config.vocab_size)
    names = ("cls_token", "sep_token", *(["mask_token"] if kind == "mlm" else []))
    lacking = [name for name in names if getattr(tokenizer, f"{name}_id") is None]
    need(not lacking, f"{model}: its tokenizer has no {' and no '.join(lacking)}")
    loaded.to(place)
    short = kind == "mlm" and config.model_type in SHORT
    return Scorer(model, kind, loaded, tokenizer, made_for(loaded), reader, short=short)


# ------------------------------------------------------------------ files of texts


@dataclass
class TextScorer:
    """Examples -> the columns that `score` adds."""

    reader: Scorer
    options: ScoreConfig
    bf16 = False

    @property
    def device(self) -> torch.device:
        return self.reader.device

    def __call__(self, examples: list[Any], after: After) -> list[dict[str, Any]]:
        found = self.reader.token_scores(
            [example.text for example in examples],
            max_seq_length=self.options.max_seq_length,
            batch_tokens=self.options.batch_tokens,
            after=lambda number: after(number / len(examples)),
        )
        columns = [{"score": rounded(its.score), "tokens": len(its.tokens)} for its in found]
        if not self.options.per_token:
            return columns
        return [
            row | {"token": list(its.tokens), "token_score": list(map(rounded, its.token_scores))}
            for row, its in zip(columns, found, strict=True)
        ]


def score_files(options: ScoreConfig) -> str:
    """Writes the score of every text of the files, in order, into the output file, whole or not at
    all, or to standard output; returns what it did. Mistakes in files and options are reported
    before the model is loaded. Raises UserError."""
    began = time.monotonic()
    must_be_ready(options, options.output_file)
    files = Files.of(options, pairs=False)
    files.check()
    scorer = load_scorer(options.model, device=options.device, architecture=options.architecture)
    write_results(options, files, TextScorer(scorer, options), title="score")
    return done(options.output_file, files.texts, began)
