"""Datasets: catalogue, download and conversion to arrays.

`catalogue` lists the datasets; `fetch` brings their raw files into ``data/raw`` and checks their hashes; `prepare`
parses them strictly, scales the columns and writes one npz; `load` reads such an npz, or a user's own. A new dataset
needs one entry in `catalogue`, and a reader in `readers` if its file format is new.
"""
