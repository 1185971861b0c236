"""Shared code of all figures: style, panels, lines, selection of rows, and files."""
