"""The algorithms of Sun, Barp and Briol as published, and two others for their objective (10)."""
