"""Fine-tunes an exported encoder with transformers' Trainer.

python examples/trainer.py run/discriminator
"""

import sys
import tempfile

from datasets import Dataset
from reviews import LABELS, TEXTS
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
)


def main(model: str) -> list[float]:
    """The losses of the epochs."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    data = Dataset.from_dict({"text": TEXTS, "label": LABELS})
    data = data.map(lambda rows: tokenizer(rows["text"]), batched=True, remove_columns="text")
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=AutoModelForSequenceClassification.from_pretrained(model, num_labels=2),
            args=TrainingArguments(
                output_dir=folder,
                num_train_epochs=10,
                learning_rate=1e-3,
                logging_strategy="epoch",
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
            ),
            train_dataset=data,
            processing_class=tokenizer,
        )
        trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


if __name__ == "__main__":
    print(main(sys.argv[1]))
