"""What is predicted from what: modules that wrap a model and compute the loss inside their forward."""
