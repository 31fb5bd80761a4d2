"""Figures, each a function of run records and of files in ``results``, and the page that shows them."""
