"""The algorithms of Sun, Barp and Briol as published: mini-batches, their rates and their starts."""
