"""The words and the shape of the models that are scored here."""

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY += ["the", "chef", "cook", "##ed", "##s", "ate", "meal", ",", ".", "a", "b", "c", "d"]
SHAPE = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 16,
}
