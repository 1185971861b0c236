"""``auto`` and what it decides by: cross-fitting, held-out residuals, tails, a test of the scores."""
