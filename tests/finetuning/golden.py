"""Twenty updates of the published protocol for each kind of task: python tests/finetuning/golden.py

Writes golden.txt anew, only when a change of the numbers is meant. A tiny random encoder, float32,
one thread: the losses of all updates, and of the trained weights the sum and the sum of squares.
"""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

if __name__ == "__main__":  # pytest puts tests/ and this folder there by itself
    sys.path.insert(0, str(Path(__file__).resolve().parent))

from toy import CPU, answering, chunks, reviews_task, task_of, values
from zoo import zoo_in

from electrify.finetuning import loop
from electrify.finetuning.one_run import finetune_one
from electrify.finetuning.options import FinetuneSettings
from electrify.finetuning.tasks import Example, TaskData
from electrify.train.machine import device_name

FILE = Path(__file__).with_name("golden.txt")
UPDATES = 20
SETTINGS: dict[str, Any] = {"protocol": "published", "learning_rate": 1e-3, "bf16": "false"}
SETTINGS |= {"max_seq_length": 32, "eval_steps": 1, "device": "cpu"}


def tasks() -> dict[str, TaskData]:
    texts: Any = reviews_task().train
    pairs = [Example(e.text, f"it was {'one' * (k % 3)}", e.label) for k, e in enumerate(texts)]
    several = [Example(e.text, None, (0,) if e.label else (1, 2), ()) for e in texts]
    return {
        "classes": reviews_task(),
        "pairs": task_of("classification", pairs, symmetric=True),
        "values": values(),
        "several": task_of("multilabel", several),
        "tags": chunks(),
        "squad1": answering(impossible=False),
        "squad2": answering(impossible=True),
    }


def measured(model: str, task: TaskData) -> list[float]:
    """The losses of the updates, and the sums of the weights."""
    sums = []
    real = loop.train

    def train(net: Any, *args: Any, **named: Any) -> Any:
        yield from real(net, *args, **named)
        weights = torch.cat([p.detach().flatten().double() for p in net.parameters()])
        sums.extend([float(weights.sum()), float(weights.square().sum())])

    task = replace(task, validation=task.validation[:4])  # every update is evaluated
    shown = 2 * len(task.train) if task.symmetric else len(task.train)
    size = -(-shown // 5)  # five minibatches an epoch
    settings = FinetuneSettings(per_device_train_batch_size=size, num_train_epochs=4, **SETTINGS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "train", train)
        curve = finetune_one(model, task, seed=0, settings=settings).curve
    assert len(curve) == UPDATES
    return [point.loss for point in curve] + sums


def processor() -> str:
    """On which the numbers are the same to the last digits."""
    return f"{device_name(CPU)}, {torch.backends.cpu.get_cpu_capability()}"


def read() -> tuple[str, dict[str, list[float]]]:
    first, *lines = FILE.read_text(encoding="utf-8").splitlines()
    rows = (line.split() for line in lines)
    return first.removeprefix("# "), {name: list(map(float, its)) for name, *its in rows}


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        model = str(zoo_in(Path(folder)) / "electra")
        found = {name: measured(model, task) for name, task in tasks().items()}
    lines = [" ".join([name, *(f"{x:.8f}" for x in its)]) for name, its in found.items()]
    FILE.write_text("\n".join([f"# {processor()}", *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
