"""Integrals: expectations of one or several related functions under targets with known scores."""
