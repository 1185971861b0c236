"""Integrals: expectations of functions under targets whose scores are known, alone or several that are related."""
