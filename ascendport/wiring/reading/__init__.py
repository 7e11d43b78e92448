"""Reads one Python file into a summary: `scopes` → `mentions` → `reader`."""
