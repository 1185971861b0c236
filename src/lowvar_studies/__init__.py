"""The laboratory: experiments that reproduce and check papers, and their reports."""

PAGES = "docs/reproduction"  # the folder of kept pages
