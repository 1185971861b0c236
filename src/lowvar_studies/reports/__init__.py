"""Reports: tables, figures, effects and claims; one folder for each family."""
