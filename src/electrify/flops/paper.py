"""The models that ELECTRA's authors compare, in the convention of their script."""

from __future__ import annotations

from ..model.costs import CHOSEN, Sizes, binary_flops, encoder_flops, output_flops

BACKWARD = (
    1  # of a forward pass; in truth a product has two gradients, of its input and of its weights
)


def published() -> dict[str, float]:
    """FLOPs of the pre-training of the models that ELECTRA's authors compare, by name, in the
    paper's convention."""

    def train(batch: float, steps: float, s: Sizes, per_token: float) -> float:
        return (1 + BACKWARD) * batch * steps * s.length * per_token

    def lm(s: Sizes, *, batch: float, steps: float, share: float = CHOSEN) -> float:
        return train(batch, steps, s, encoder_flops(s) + share * output_flops(s))

    def electra(s: Sizes, generator: Sizes, *, batch: float, steps: float) -> float:
        return train(batch, steps, s, encoder_flops(s) + binary_flops(s.width)) + lm(
            generator, batch=batch, steps=steps
        )

    base = Sizes(width=768, layers=12)
    large = Sizes(width=1024, layers=24)
    small = Sizes(width=256, layers=12, length=128, embedding=128)
    small_g = Sizes(width=64, layers=12, length=128, embedding=128)
    roberta = Sizes(width=1024, layers=24, vocab=50265)
    base_g = Sizes(width=256, layers=12, embedding=768)
    large_g = Sizes(width=256, layers=24, embedding=1024)
    t5 = Sizes(
        width=1024, layers=24, vocab=32000, feed_forward=65536, heads=128, attention=128 * 128
    )
    t5_decoder = Sizes(
        width=1024,
        layers=24,
        vocab=32000,
        feed_forward=65536,
        heads=128,
        attention=128 * 128,
        attentions=2,
    )
    return {
        # Two that are no plain transformers: the authors measured the forward pass with TensorFlow.
        "elmo": 2
        * 10
        * 768_648_884
        / (20 * 128)
        * 568_093_262_680,  # 10 epochs over the words of LM1B in batches of 20 x 128
        "xlnet": 2
        * 500_000
        * 8192
        / 32
        * 15_064_773_691_518,  # 500k steps of batch 8192; 32 examples were measured
        "gpt": lm(Sizes(width=768, layers=12, vocab=40000), batch=128, steps=960_800, share=1),
        "bert_small": lm(small, batch=128, steps=1.45e6),
        "bert_base": lm(base, batch=256, steps=1e6),
        "bert_large": lm(large, batch=256, steps=1e6),
        "electra_small": electra(small, small_g, batch=128, steps=1e6),
        "electra_base": electra(base, base_g, batch=256, steps=766_000),
        "electra_400k": electra(large, large_g, batch=2048, steps=400_000),
        "electra_1.75M": electra(large, large_g, batch=2048, steps=1.75e6),
        "roberta": lm(roberta, batch=8000, steps=500_000),
        "roberta_100k": lm(
            roberta, batch=8000, steps=100_000
        ),  # of the paper's Table 2; the script counts the long run only
        "albert": lm(
            Sizes(width=4096, layers=12, vocab=30000, embedding=128), batch=4096, steps=1.5e6
        ),
        "t5_11b": lm(t5, batch=2048, steps=1e6, share=0)
        + lm(t5_decoder, batch=2048, steps=1e6, share=1),
    }
