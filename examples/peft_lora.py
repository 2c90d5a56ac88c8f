"""Fine-tunes an exported encoder with LoRA: low-rank changes of two matrices of each layer.

python examples/peft_lora.py run/discriminator
"""

import sys

import torch
from peft import LoraConfig, TaskType, get_peft_model
from reviews import LABELS, TEXTS
from transformers import AutoModelForSequenceClassification, AutoTokenizer

# The names of the projections in each kind of encoder.
TARGETS = {
    "electra": ["query", "value"],
    "bert": ["query", "value"],
    "deberta-v2": ["query_proj", "value_proj"],
    "modernbert": ["Wqkv"],
}


def main(model: str, updates: int = 60) -> list[float]:
    """The losses of the updates."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModelForSequenceClassification.from_pretrained(model, num_labels=2)
    targets = TARGETS[network.config.model_type]
    config = LoraConfig(task_type=TaskType.SEQ_CLS, r=8, lora_alpha=16, target_modules=targets)
    network = get_peft_model(network, config)
    network.print_trainable_parameters()
    optimizer = torch.optim.AdamW((p for p in network.parameters() if p.requires_grad), lr=3e-3)
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    losses = []
    for _ in range(updates):
        loss = network(**batch, labels=torch.tensor(LABELS)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    print(main(sys.argv[1])[-1])
