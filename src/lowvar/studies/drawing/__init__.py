"""What the figures of all families share: their look, their panels and lines, the choice of rows, and files."""
