"""What users write: fields, kernels, exchange with other libraries."""
