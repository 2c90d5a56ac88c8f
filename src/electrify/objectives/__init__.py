"""Corrupted -> Terms. Objectives grade, they never choose tokens."""
