"""Every figure, drawn from run records and committed numbers; the same bytes for the same numbers."""
