"""Cases that a stranger would bring to `lowvar`, what is done with them and how it is judged; see `trust.py`."""
