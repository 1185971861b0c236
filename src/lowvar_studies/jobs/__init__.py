"""Studies: experiments at a scale, their jobs, and the commands that the workflow calls."""
