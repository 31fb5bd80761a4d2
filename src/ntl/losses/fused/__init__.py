"""Base and number terms together: what is minimised, as data, and what computes it with its gradient."""
