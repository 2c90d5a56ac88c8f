"""What the model cards of folders say about what Hugging Face's library does not compute:
DeBERTaV3's head that detects, and DeBERTa's mask decoder."""

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

DECODER_NOTE = (
    "This masked language model was trained through DeBERTa's mask decoder, which transformers "
    "does not have: its class ignores the table `deberta.embeddings.position_embeddings`, so its "
    "logits are not those of the run. `electrify evaluate FOLDER` computes with the decoder, and "
    "so does a run with `--mask-decoder true` that starts from this folder."
)
