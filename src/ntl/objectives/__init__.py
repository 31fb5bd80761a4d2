"""Training objectives: modules that wrap a model and compute the loss in their forward."""
