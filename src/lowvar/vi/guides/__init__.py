"""Guides: mean field, low rank, full rank, amortised."""
