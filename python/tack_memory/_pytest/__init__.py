"""What the pytest plug-in does once a test or an option asks for it. `_tack_memory_pytest`, which pytest loads, imports it then and not before."""
