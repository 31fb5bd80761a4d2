"""Training: one call trains with the Hugging Face Trainer, decodes, scores and writes the record."""
