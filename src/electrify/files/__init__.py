"""Folders and files: whose they are, how they are written whole, and how files of others are read."""
