"""Token shards -> batches of Tokens: sequences of a length, packing, and the pure function (seed,
step) -> rows. No masking, ever."""
