"""Folders and files: who owns them, how they are written atomically, and how foreign ones are
read."""
