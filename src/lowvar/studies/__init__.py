"""Studies: experiments at a scale, their jobs, tables, figures and claims; one folder for each family."""
