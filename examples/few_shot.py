"""A classifier from eight texts with SetFit.

python examples/few_shot.py run/discriminator
"""

import sys
import tempfile

from datasets import Dataset
from reviews import LABELS, TEXTS
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from setfit import SetFitModel, Trainer, TrainingArguments
from sklearn.linear_model import LogisticRegression


def main(model: str) -> list[int]:
    """What the classifier says of its own texts."""
    words = Transformer(model)
    body = SentenceTransformer(modules=[words, Pooling(words.get_embedding_dimension())])
    classifier = SetFitModel(model_body=body, model_head=LogisticRegression())
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(output_dir=folder, num_epochs=1, batch_size=8, report_to="none")
        data = Dataset.from_dict({"text": TEXTS, "label": LABELS})
        Trainer(model=classifier, args=args, train_dataset=data).train()
    return [int(label) for label in classifier.predict(TEXTS)]


if __name__ == "__main__":
    print(main(sys.argv[1]))
