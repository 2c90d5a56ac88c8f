"""A component of spaCy that marks the words that look replaced, as the spans "replaced".

python examples/spacy_detect.py run "The chef ate the meal and washed the banana."
"""

import sys

import spacy
from spacy.language import Language
from spacy.tokens import Doc

import electrify


@Language.factory("electrify_detect", default_config={"threshold": 0.5})
class Detect:
    def __init__(self, nlp: Language, name: str, model: str, threshold: float) -> None:
        self.encoder = electrify.load(model)
        self.threshold = threshold

    def __call__(self, doc: Doc) -> Doc:
        words = self.encoder.detect(doc.text).words
        found = [word for word in words if word.probability >= self.threshold]
        spans = [doc.char_span(w.start, w.end, alignment_mode="expand") for w in found]
        doc.spans["replaced"] = [span for span in spans if span is not None]
        return doc


def main(model: str, text: str, threshold: float = 0.5) -> list[str]:
    """The words that look replaced."""
    nlp = spacy.blank("xx")
    nlp.add_pipe("electrify_detect", config={"model": model, "threshold": threshold})
    doc = nlp(text)
    return [span.text for span in doc.spans["replaced"]]


if __name__ == "__main__":
    print(main(*sys.argv[1:3]))
