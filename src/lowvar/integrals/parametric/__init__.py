"""Control variates with a fixed number of parameters: polynomials, and a small network."""
