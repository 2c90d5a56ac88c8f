"""The options of `electrify prepare`."""
