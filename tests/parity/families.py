"""The shapes in which each architecture is compared with Hugging Face's library."""

from typing import Any

from two_networks import Family

from electrify.architectures.deberta import DebertaShape
from electrify.architectures.modernbert import ModernBertShape
from electrify.model.shape import Shape


def electra_shape(**numbers: Any) -> Shape:
    """Three blocks; a projection, heads and vocabulary of odd sizes."""
    return Shape(
        **{
            "vocab_size": 41,
            "embedding_size": 8,
            "hidden_size": 24,
            "num_hidden_layers": 3,
            "num_attention_heads": 3,
            "intermediate_size": 20,
            "max_position_embeddings": 600,
        }
        | numbers
    )


def modernbert_shape(**numbers: Any) -> ModernBertShape:
    """Four blocks, two of them local; heads and vocabulary of odd sizes."""
    return ModernBertShape(
        **{
            "vocab_size": 41,
            "embedding_size": 24,
            "hidden_size": 24,
            "num_hidden_layers": 4,
            "num_attention_heads": 3,
            "intermediate_size": 20,
            "max_position_embeddings": 600,
            "local_attention": 128,
            "global_attn_every_n_layers": 3,
            "global_rope_theta": 160_000.0,
            "local_rope_theta": 10_000.0,
        }
        | numbers
    )


def deberta_shape(**numbers: Any) -> DebertaShape:
    """Three blocks; heads and vocabulary of odd sizes, and more distances than buckets."""
    return DebertaShape(
        **{
            "vocab_size": 41,
            "embedding_size": 24,
            "hidden_size": 24,
            "num_hidden_layers": 3,
            "num_attention_heads": 3,
            "intermediate_size": 20,
            "max_position_embeddings": 600,
            "position_buckets": 256,
        }
        | numbers
    )


ELECTRA = Family(
    "electra",
    "electra",
    (
        electra_shape(),
        electra_shape(embedding_size=24, max_position_embeddings=40),
        electra_shape(
            hidden_size=10, num_hidden_layers=1, num_attention_heads=1, layer_norm_eps=1e-5
        ),
        electra_shape(vocab_size=101, embedding_size=24, hidden_size=12, num_attention_heads=2),
        electra_shape(embedding_size=4, hidden_size=64, num_attention_heads=8, layer_norm_eps=1e-3),
    ),
)
MODERNBERT = Family(
    "modernbert",
    "model",
    (
        modernbert_shape(),
        modernbert_shape(local_attention=6, global_attn_every_n_layers=2, global_rope_theta=50.0),
        modernbert_shape(
            hidden_size=64, embedding_size=64, num_attention_heads=1, layer_norm_eps=1e-3
        ),
        modernbert_shape(global_attn_every_n_layers=1, num_hidden_layers=2),
        modernbert_shape(global_attn_every_n_layers=9, local_attention=2, vocab_size=50),
    ),
)
DEBERTA = Family(
    "deberta",
    "deberta",
    (
        deberta_shape(),
        deberta_shape(position_buckets=8, max_position_embeddings=64),
        deberta_shape(position_buckets=2, max_position_embeddings=40),
        deberta_shape(
            hidden_size=64, embedding_size=64, num_attention_heads=1, layer_norm_eps=1e-3
        ),
        deberta_shape(
            position_buckets=64, max_position_embeddings=41, num_hidden_layers=1, vocab_size=50
        ),
    ),
)
FAMILIES = (ELECTRA, MODERNBERT, DEBERTA)
