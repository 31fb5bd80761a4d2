"""``make report``: tables, figures, runs and a loss explorer in one HTML page that needs no network. Without torch."""
