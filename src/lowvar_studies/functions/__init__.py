"""Black-box functions, known only through their values."""
