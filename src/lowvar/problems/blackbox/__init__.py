"""Functions of which only values can be had."""
