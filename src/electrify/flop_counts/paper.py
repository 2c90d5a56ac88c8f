"""The pre-training FLOPs of the models that ELECTRA's authors compare, in the convention of their
script."""

from __future__ import annotations

from dataclasses import replace

from ..model.costs import CHOSEN, Sizes, binary_flops, encoder_flops, output_flops

# The cost of a backward pass relative to a forward pass. In truth, a product has two gradients, of
# its input and of its weights.
BACKWARD = 1

# Two that are not plain transformers: the authors measured the forward pass with TensorFlow.
# ELMo: 10 epochs over the words of LM1B in batches of 20 x 128.
ELMO = 2 * 10 * 768_648_884 / (20 * 128) * 568_093_262_680
# XLNet: 500k steps of batch 8192; 32 examples were measured.
XLNET = 2 * 500_000 * 8192 / 32 * 15_064_773_691_518

SMALL = Sizes(width=256, layers=12, length=128, embedding=128)
SMALL_GENERATOR = Sizes(width=64, layers=12, length=128, embedding=128)
BASE = Sizes(width=768, layers=12)
BASE_GENERATOR = Sizes(width=256, layers=12, embedding=768)
LARGE = Sizes(width=1024, layers=24)
LARGE_GENERATOR = Sizes(width=256, layers=24, embedding=1024)
GPT = Sizes(width=768, layers=12, vocab=40000)
ROBERTA = Sizes(width=1024, layers=24, vocab=50265)
ALBERT = Sizes(width=4096, layers=12, vocab=30000, embedding=128)
T5 = Sizes(width=1024, layers=24, vocab=32000, feed_forward=65536, heads=128, attention=128 * 128)
T5_DECODER = replace(T5, attentions=2)


def published() -> dict[str, float]:
    """FLOPs of the pre-training of the models that ELECTRA's authors compare, by name, in the
    paper's convention."""
    return {
        "elmo": ELMO,
        "xlnet": XLNET,
        "gpt": lm(GPT, batch=128, steps=960_800, share=1),
        "bert_small": lm(SMALL, batch=128, steps=1.45e6),
        "bert_base": lm(BASE, batch=256, steps=1e6),
        "bert_large": lm(LARGE, batch=256, steps=1e6),
        "electra_small": electra(SMALL, SMALL_GENERATOR, batch=128, steps=1e6),
        "electra_base": electra(BASE, BASE_GENERATOR, batch=256, steps=766_000),
        "electra_400k": electra(LARGE, LARGE_GENERATOR, batch=2048, steps=400_000),
        "electra_1.75M": electra(LARGE, LARGE_GENERATOR, batch=2048, steps=1.75e6),
        "roberta": lm(ROBERTA, batch=8000, steps=500_000),
        # This is in the paper's Table 2; the script counts only the long run.
        "roberta_100k": lm(ROBERTA, batch=8000, steps=100_000),
        "albert": lm(ALBERT, batch=4096, steps=1.5e6),
        "t5_11b": (
            lm(T5, batch=2048, steps=1e6, share=0) + lm(T5_DECODER, batch=2048, steps=1e6, share=1)
        ),
    }


def train(batch: float, steps: float, s: Sizes, per_token: float) -> float:
    return (1 + BACKWARD) * batch * steps * s.length * per_token


def lm(s: Sizes, *, batch: float, steps: float, share: float = CHOSEN) -> float:
    """A language model. share: share of the tokens for which a word is predicted."""
    return train(batch, steps, s, encoder_flops(s) + share * output_flops(s))


def electra(s: Sizes, generator: Sizes, *, batch: float, steps: float) -> float:
    """A discriminator with its generator."""
    discriminator = train(batch, steps, s, encoder_flops(s) + binary_flops(s.width))
    return discriminator + lm(generator, batch=batch, steps=steps)
