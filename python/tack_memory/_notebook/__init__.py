"""The package in IPython and Jupyter: `%load_ext tack_memory` (magics.py), and what only a stored traceback keeps alive (stale.py, kept.py).

Nothing here imports IPython until the extension is loaded."""
