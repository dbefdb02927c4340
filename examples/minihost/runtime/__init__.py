"""What runs it: devices, the driver, buffers, launches."""
