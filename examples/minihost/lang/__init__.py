"""What users write: arrays, kernels, exchange with other libraries."""
