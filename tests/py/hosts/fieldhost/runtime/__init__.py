"""What runs it: the backends, and which one is current."""
