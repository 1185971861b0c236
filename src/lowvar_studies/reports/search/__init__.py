"""Black-box search."""
