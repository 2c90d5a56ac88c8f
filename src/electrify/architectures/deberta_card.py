"""What the model card of a folder with DeBERTaV3's head that detects says of reading it."""

NOTE = (
    "transformers has no class with this head, which is DeBERTaV3's own: it reads the encoder, and "
    "reports the weights `mask_predictions` as unexpected. The code above computes the head from "
    "the encoder's states; so does `electrify detect FOLDER TEXT`."
)
READING = (
    "from safetensors.torch import load_file",
    "from torch.nn.functional import gelu, layer_norm, linear",
    "from transformers import AutoModel, AutoTokenizer",
    "",
    'tokenizer = AutoTokenizer.from_pretrained("FOLDER")',
    'model = AutoModel.from_pretrained("FOLDER")',
    'weights = load_file("FOLDER/model.safetensors")',
    "",
    "",
    "def layer(name):",
    '    return [weights[f"mask_predictions.{name}.{part}"] for part in ("weight", "bias")]',
    "",
    "",
    "def replaced(states):  # of padded texts: padded on the right",
    "    x = states + states[:, :1]",
    '    x = layer_norm(x, x.shape[-1:], *layer("LayerNorm"), model.config.layer_norm_eps)',
    '    return linear(gelu(linear(x, *layer("dense"))), *layer("classifier")).squeeze(-1)',
    "",
    "",
)
"""The encoder, and a function from its states to logits."""
