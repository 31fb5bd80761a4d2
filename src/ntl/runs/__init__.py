"""A run: its folder with lock and checkpoints, and the data, the tokenizer and the model that its config names."""
