"""Models whose likelihood depends on a few linear predictors for each row: designs, links and the problem of both."""
