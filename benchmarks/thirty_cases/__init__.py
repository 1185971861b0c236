"""The models of ``benchmarks/thirty.py``: one declaration each, grouped by what is unusual about them."""
