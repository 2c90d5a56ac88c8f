"""Token shards -> batches of Tokens: sequences of limited length, packing, and the pure function
(seed, step) -> rows. No token is masked here."""
