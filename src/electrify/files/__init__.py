"""Folders and files: whose they are, how they are written whole, how those of others are read."""
