"""Trains sentence vectors from an exported encoder with sentence-transformers: the two texts of a
pair are drawn together, and those of other pairs apart.

    python examples/sentence_pairs.py run/discriminator
"""

import sys
import tempfile

from datasets import Dataset
from reviews import BAD, GOOD
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer


def main(model: str) -> SentenceTransformer:
    """The trained model."""
    words = Transformer(model)
    encoder = SentenceTransformer(modules=[words, Pooling(words.get_embedding_dimension())])
    pairs = {"anchor": GOOD[:2] + BAD[:2], "positive": GOOD[2:] + BAD[2:]}
    with tempfile.TemporaryDirectory() as folder:
        trainer = SentenceTransformerTrainer(
            model=encoder,
            args=SentenceTransformerTrainingArguments(
                output_dir=folder,
                num_train_epochs=30,
                learning_rate=1e-3,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
            ),
            train_dataset=Dataset.from_dict(pairs),
            loss=MultipleNegativesRankingLoss(encoder),
        )
        trainer.train()
    return encoder


if __name__ == "__main__":
    trained = main(sys.argv[1])
    print(trained.similarity(trained.encode(GOOD), trained.encode(GOOD + BAD)))
