"""Arrays and automatic differentiation, random keys and base noise, files, and the loop: shared by all doors."""
