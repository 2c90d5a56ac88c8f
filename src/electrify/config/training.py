"""The section of a pre-training recipe that says how it is trained."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from .given import Checked


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Checked):
    """The run."""

    HEADINGS: ClassVar = {
        "max_steps": "length of the run, its batches and rows",
        "learning_rate": "learning rate",
        "optim": "optimiser and clipping",
        "seed": "device, precision and processes",
        "logging_steps": "log, validation and checkpoints",
        "non_finite": "what happens to bad updates",
        "ddp_timeout": "device, precision and processes",
        "init_discriminator": "where the weights start",
        "generator_steps": "two stages: the generator first",
    }
    max_steps: int
    """Optimiser updates of the whole run; the schedule ends there."""
    train_batch_size: int
    """Rows in one update over all processes; this decides the result."""
    batch_size_schedule: dict[int, float] = field(default_factory=dict)
    """Smaller batches first: 32=.1,64=.1 takes 32 rows for a tenth of the updates, 64 for the next,
    train_batch_size for the rest; none takes a recipe's schedule away."""
    per_device_train_batch_size: int | None = None
    """Rows in one forward pass of one process; by default all its rows. Together with
    --gradient-accumulation-steps it sets train_batch_size."""
    gradient_accumulation_steps: int | None = None
    """Forward passes per update; by default derived from train_batch_size,
    per_device_train_batch_size and the number of processes."""
    learning_rate: float
    """Peak learning rate."""
    generator_learning_rate: float | None = None
    """Peak learning rate of the parameters that only the generator trains (with tie gdes its word
    table is one of them); by default learning_rate."""
    lr_scheduler_type: Literal["electra", "linear", "cosine", "wsd", "constant"] = "electra"
    """electra = the paper's (linear decay that already runs during warm-up); the others decay after
    warm-up; wsd holds, then decays over the last fifth."""
    warmup_steps: int
    """Updates until the peak learning rate."""
    generator_warmup_steps: int | None = None
    """Updates until the peak learning rate of the parameters that only the generator trains; by
    default warmup_steps."""
    optim: Literal["electra_adam", "adamw"] = "electra_adam"
    """electra_adam = Adam without bias correction and with decoupled weight decay, as published;
    adamw = torch's."""
    weight_decay: float = 0.01
    """Decoupled weight decay; not on biases and LayerNorm."""
    generator_weight_decay: float | None = None
    """Decoupled weight decay of the parameters that only the generator trains; by default
    weight_decay."""
    adam_beta1: float = 0.9
    """Decay of Adam's first moment."""
    adam_beta2: float = 0.999
    """Decay of Adam's second moment."""
    adam_epsilon: float = 1e-6
    """Epsilon, added to the root of Adam's second moment."""
    max_grad_norm: float = 1.0
    """Gradients are clipped to this norm; 0 switches it off."""
    clip: Literal["together", "apart"] = "together"
    """together = by the norm of all gradients; apart = the parameters that only the generator
    trains by their own norm, and all others by theirs, so that neither loss scales the updates of
    the other's network."""
    seed: int = 0
    """Random seed of initial values, order of the data, masks, samples and dropout."""
    bf16: bool | None = None
    """Autocast to bfloat16; parameters and optimiser stay float32. none: if the device multiplies
    bfloat16 in hardware (a run that goes on computes as it began)."""
    reduce_dtype: Literal["float32", "bfloat16"] = "float32"
    """Data type in which processes exchange gradients; bfloat16 halves the traffic and rounds each
    process's sum."""
    fsdp: Literal["no_shard", "full_shard"] = "no_shard"
    """no_shard = every process holds the whole model; full_shard = only its share of parameters,
    gradients and optimiser state, for models that do not fit on one device: the same numbers for
    more traffic. With one process both are the same."""
    torch_compile: bool = False
    """Compile the objective. For GPUs: on a CPU the first step takes half a minute, and the others
    are not faster."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    threads: str = "auto"
    """Threads that compute on a CPU: a number, or auto: OMP_NUM_THREADS if it is set, else the
    number that a continued run had, else a measurement of one second."""
    logging_steps: int = 50
    """Updates between two lines of metrics.jsonl."""
    eval_steps: int = 1000
    """Updates between two validations; 0 validates at the end only."""
    eval_rows: int = 512
    """Rows of the valid split used in a validation, always the same ones."""
    save_steps: int = 1000
    """Updates between two checkpoints; there is always one at the end."""
    save_total_limit: int | None = 2
    """Number of newest checkpoints to keep."""
    max_minutes: float | None = None
    """Wall time after which the run saves and stops; the same command goes on for as long again."""
    report_to: tuple[str, ...] = ("tensorboard",)
    """Trackers beside metrics.jsonl: tensorboard, or none."""
    non_finite: Literal["stop", "skip", "rollback"] = "stop"
    """If the loss or gradient of an update is not finite, on which all processes agree before any
    parameter changes: stop without saving; skip this update; or rollback to the newest checkpoint
    and go on with the batches after this one."""
    max_non_finite: int = 10
    """With skip and rollback: number of updates that may be refused for this reason before the run
    stops.
    """
    spike: Literal["warn", "skip", "rollback"] = "warn"
    """If the loss of an update is spike_sigmas standard deviations above those of up to 128 updates
    before it: warn and train on it, as published; skip this update; or rollback as above."""
    spike_sigmas: float = 6.0
    """How far above the earlier losses a spike is, in their standard deviations."""
    max_spikes: int = 10
    """With skip and rollback: number of spikes that may be refused before the run stops.
    """
    ddp_timeout: float = 1800.0
    """Seconds that a process waits for the others, at the start and in every collective operation,
    before it gives up."""
    init_discriminator: str | None = None
    """Hugging Face folder or Hub id from which the kept encoder starts; it also decides the
    encoder's shape."""
    init_generator: str | None = None
    """Hugging Face folder or Hub id from which the generator starts; it also decides the
    generator's shape.
    """
    generator_steps: int = 0
    """Two stages: number of updates of the generator alone, as a run of its own in
    RUN/generator-stage, before the max_steps (after which it is frozen, or trained
    adversarially)."""
    discriminator_start: Literal["generator", "random"] = "generator"
    """With generator_steps: whether the discriminator starts from the generator's weights (needs
    equal shapes) or from random values."""
