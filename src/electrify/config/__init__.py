"""The options that a user can choose: one frozen dataclass per verb, its field docstrings are the
help text. No torch, no I/O beyond YAML."""
