"""Studies: what runs, and what is made of it; one folder for each family."""
