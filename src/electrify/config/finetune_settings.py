"""How one fine-tuning run goes: training, the examples as the model sees them, the head."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from ..errors import UserError
from .given import Checked
from .protocol import PROTOCOLS, ProtocolName, WordPooling

SELECTION = 0.1
"""The share of the training examples that is held out if the best evaluation is chosen."""


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings(Checked):
    """How one fine-tuning run goes. A value of none takes the protocol's, the task's or the model
    size's own."""

    HEADINGS: ClassVar = {
        "protocol": "the protocol",
        "learning_rate": "training",
        "num_train_epochs": "how long, and which weights are kept",
        "class_weights": "training",
        "max_seq_length": "the examples, as the model sees them",
        "dropout": "training",
        "bf16": "computing",
        "frozen_encoder": "with the encoder left as it is",
        "answer_head": "question answering only",
        "word_pooling": "the examples, as the model sees them",
        "eval_steps": "how long, and which weights are kept",
        "device": "computing",
    }
    protocol: ProtocolName = "electrify"
    """Whose way of fine-tuning: electrify's own, or published, which computes as the public code of
    ELECTRA does. It sets --optim, --lr-scheduler-type, --loss-reduction, --layerwise-lr-skip,
    --head-init, --regression-targets, --group-by-length, --double-unordered, --answer-head,
    --word-pooling, --dropout and --encoder-dropout where they are not given."""
    optim: Literal["adamw", "electra_adam"] | None = None
    """adamw, or electra_adam: without bias correction (the public code's). None takes the
    protocol's."""
    lr_scheduler_type: Literal["linear", "electra"] | None = None
    """linear: warm-up, then from the peak to 0; electra: the decay already runs during warm-up, and
    the first update is at 0 (the public code's). None takes the protocol's."""
    loss_reduction: Literal["mean", "sum"] | None = None
    """Over the examples (tagging: words) of a batch, before the gradients are clipped: mean, or sum
    (the public code's, whose gradients are nearly always clipped). None takes the protocol's."""
    learning_rate: float | None = None
    """Peak learning rate of the head; none takes 3e-4 up to width 256, 1e-4 below width 1024, 5e-5
    from there (the paper's); for tags 3e-3 up to width 128, except under --protocol published."""
    layerwise_lr_decay: float | None = None
    """The learning rate of each layer as a share of that of the layer above; none takes .8, and .9
    from width 1024; 1 switches it off."""
    layerwise_lr_skip: bool | None = None
    """Skip one level of the decay, as the public code does: the top layer gets decay^2 of the
    head's rate. None takes the protocol's."""
    weight_decay: float = 0.0
    """Decoupled weight decay of matrices (the paper: 0; the public code's default: .01)."""
    per_device_train_batch_size: int = 32
    """Examples per update."""
    num_train_epochs: float | None = None
    """Passes over the training examples; none takes the task's (3; STS-B and RTE 10,
    SQuAD 2, BabyLM's 10 and 30), and more for a small set (--min-train-steps)."""
    min_train_steps: int | None = None
    """Fewest updates: a set too small for them is shown more often. None takes 1,000 for tags
    and your own examples and 0 for GLUE's, SQuAD's and BabyLM's, and under --protocol published; no
    effect with --num-train-epochs or --frozen-encoder."""
    load_best_model_at_end: bool = False
    """Hold out a part of the training examples, and keep the weights of the evaluation that is the
    best on them by the first metric; the validation examples take no part in the choice."""
    selection_fraction: float | None = None
    """With --load-best-model-at-end: the share that is held out; none takes .1."""
    early_stopping_patience: int | None = None
    """With --load-best-model-at-end: stop after this many evaluations without a better one."""
    class_weights: Literal["none", "balanced"] = "none"
    """balanced: rare classes count as much as frequent ones in the loss (texts with classes, and
    tags)."""
    warmup_ratio: float = 0.1
    """Share of the updates during which the learning rate rises."""
    max_grad_norm: float = 1.0
    """Gradients are clipped to this norm."""
    max_seq_length: int | None = None
    """Tokens per sequence; none takes 128, 256 for tagging and 512 for question answering and
    BabyLM's, or the model's maximum if that is less. Longer texts are cut (the longer of a pair
    first); longer sentences and contexts are read through windows."""
    max_train_samples: int | None = None
    """Train on this many examples, drawn by the seed: the same ones for every model."""
    double_unordered: bool | None = None
    """Show the training pairs of a symmetric task (MRPC, STS-B; your own pairs only if this is
    true) in both orders. None takes the protocol's."""
    group_by_length: bool | None = None
    """Put examples of similar length into one batch (less padding) instead of random ones. None
    takes the protocol's."""
    regression_targets: Literal["standardised", "unit", "raw"] | None = None
    """Regression learns values standardised by mean and deviation, moved to 0..1 by the task's
    range (the public code's), or as they are. None takes the protocol's."""
    head_init: Literal["normal", "glorot"] | None = None
    """First weights of the head: normal with the model's initializer_range, or Glorot's uniform
    ones (the public code's). None takes the protocol's."""
    dropout: float | None = None
    """Dropout before the head; none takes the model's own, under --protocol published .1 for texts
    and 0 for words and answers."""
    encoder_dropout: float | None = None
    """Dropout of all layers and of attention in the encoder; none takes the model's own, under
    --protocol published .1."""
    bf16: Literal["auto", "true", "false"] = "auto"
    """Compute in bfloat16 (weights stay float32); auto does so if the processor has instructions
    for it."""
    torch_compile: bool = False
    """Compile the encoder (one graph for all lengths): slower at first, faster in long runs."""
    frozen_encoder: Literal["none", "last", "last4", "all"] = "none"
    """Leave the encoder as it is and train a head on the states of its last layer, its last four,
    or all: for tagging on the state of each word, for texts on the mean of a text's states."""
    word_pooling: WordPooling | None = None
    """Tagging: which of a word's tokens stand for it: the first (BERT's), or the mean of all, which
    also says where the word ends. None takes the protocol's."""
    tagging_head: Literal["linear", "bilstm"] = "linear"
    """Tagging with --frozen-encoder: a linear layer, or a bidirectional LSTM before it."""
    answer_head: Literal["electra", "joint", "plain"] | None = None
    """Question answering. electra: the public code's head, the end given the start with beam
    search, where the class token stands for no answer in this window; joint: the same without the
    class token, learning spans from windows with an answer alone; plain: start and end each by
    itself (BERT's). None takes the protocol's."""
    doc_stride: int | None = None
    """Question answering: a window over a long context begins this many tokens after the one
    before; none takes 128."""
    n_best_size: int | None = None
    """Question answering: answers kept for each question; none takes 20."""
    max_answer_length: int | None = None
    """Question answering: the most tokens that an answer may have; none takes 30."""
    eval_steps: int | None = None
    """Evaluate every N updates; none does so after every epoch (every second one of 10). The score
    reported is that of the last update, or of the one that --load-best-model-at-end chose."""
    device: str = "auto"
    """Where to compute: auto, cpu, cuda, cuda:1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive = (
            "learning_rate",
            "layerwise_lr_decay",
            "per_device_train_batch_size",
            "num_train_epochs",
            "max_grad_norm",
            "max_train_samples",
            "eval_steps",
            "doc_stride",
            "n_best_size",
            "max_answer_length",
            "early_stopping_patience",
        )
        for name in positive:
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise UserError(f"{name} must be above 0 and finite, not {value}")
        self._check_selection()
        if self.max_seq_length is not None and self.max_seq_length < 16:
            raise UserError(f"max_seq_length must be at least 16, not {self.max_seq_length}")
        self._check_frozen()
        if self.tagging_head != "linear" and self.frozen_encoder == "none":
            raise UserError(
                f"--tagging-head {self.tagging_head} needs --frozen-encoder last, last4 or all"
            )
        for name in ("warmup_ratio", "dropout", "encoder_dropout"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise UserError(f"{name} must be at least 0 and below 1, not {value}")
        if not 0 <= self.weight_decay < math.inf:
            raise UserError(f"weight_decay must be at least 0 and finite, not {self.weight_decay}")

    def _check_frozen(self) -> None:
        """Raises UserError for an option of the encoder's training if the encoder is not trained.
        What the protocol fills in does not count."""
        own = PROTOCOLS[self.protocol]
        for name, off in (
            ("layerwise_lr_decay", None),
            ("layerwise_lr_skip", own["layerwise_lr_skip"]),
            ("encoder_dropout", own["encoder_dropout"]),
            ("torch_compile", False),
        ):
            if self.frozen_encoder != "none" and getattr(self, name) not in (None, off):
                raise UserError(
                    f"--{name.replace('_', '-')} has no effect with --frozen-encoder: leave one of "
                    "the two out"
                )

    def _check_selection(self) -> None:
        if not self.load_best_model_at_end:
            for name in ("selection_fraction", "early_stopping_patience"):
                if getattr(self, name) is not None:
                    raise UserError(f"{name} has no effect without load_best_model_at_end")
        elif self.selection_fraction is not None and not 0 < self.selection_fraction < 1:
            raise UserError(
                f"selection_fraction must lie between 0 and 1, not {self.selection_fraction}"
            )
        if self.min_train_steps is not None:
            if self.min_train_steps < 0:
                raise UserError(f"min_train_steps must not be below 0, not {self.min_train_steps}")
            for name, off in (("num_train_epochs", None), ("frozen_encoder", "none")):
                if getattr(self, name) != off:
                    raise UserError(f"min_train_steps has no effect with {name}")

    def filled(self) -> FinetuneSettings:
        """The settings with the protocol's values filled in where none are given."""
        return replace(
            self,
            **{
                name: value
                for name, value in PROTOCOLS[self.protocol].items()
                if getattr(self, name) is None
            },
        )
