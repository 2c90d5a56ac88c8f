"""Folders and files: whose they are, how they are written whole, and how those of others are read."""
