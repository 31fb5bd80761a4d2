"""Every figure, drawn from run records and two small CSV files; the same bytes for the same numbers."""
