"""The laboratory: experiments that reproduce and check papers, and their reports."""
