"""Black-box search: minimize, Searcher, and one file for each search."""
