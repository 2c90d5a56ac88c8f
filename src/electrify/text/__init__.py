"""Raw text -> token shards: documents, tokenizer, byte layout, and `prepare`, which combines
them."""
