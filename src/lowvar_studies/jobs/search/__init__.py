"""Jobs of black-box search."""
