"""Which line of a program holds the memory of its NumPy arrays, now and when it was most?

python examples/numpy_tracking.py               prints the report, and writes numpy_tracking.html in the current folder
python examples/numpy_tracking.py out.html      writes it there

The program looks for the main shapes of a set of pictures (principal components), in the way in which many a script does it. The report shows what that
costs: the peak is three times the data, since a line in `centred` makes a copy that nobody needs, and one in `covariance` another copy, transposed, that is
there while it works.
"""

import argparse
from pathlib import Path

from needed import needed

with needed("numpy", "tack_memory"):
    import numpy as np

    import tack_memory.numpy

PICTURES, SIDE, SHAPES = 400, 96, 5


def pictures(count: int, side: int) -> np.ndarray:
    """Smooth blobs at random places, with noise."""
    random = np.random.default_rng(7)
    y, x = np.mgrid[0:side, 0:side] / side
    found = np.empty((count, side * side))
    for i in range(count):
        at_x, at_y, width = random.uniform(0.2, 0.8, 2).tolist() + [random.uniform(0.05, 0.2)]
        blob = np.exp(-((x - at_x) ** 2 + (y - at_y) ** 2) / (2 * width**2))  # a few temporaries for each picture
        found[i] = (blob + random.normal(0, 0.05, blob.shape)).ravel()
    return found


def centred(data: np.ndarray) -> np.ndarray:
    return data - data.mean(axis=0)


def covariance(data: np.ndarray) -> np.ndarray:
    transposed = np.ascontiguousarray(data.T)
    return data @ transposed / (len(data) - 1)


def shapes(data: np.ndarray, count: int) -> np.ndarray:
    around = centred(data)
    values, vectors = np.linalg.eigh(covariance(around))
    return vectors[:, -count:].T @ around


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "page", nargs="?", type=Path, default=Path("numpy_tracking.html"), metavar="PAGE", help="where the web page goes (default: %(default)s)"
    )
    page: Path = parser.parse_args().page
    with tack_memory.numpy.track() as track:
        data = pictures(PICTURES, SIDE)
        found = shapes(data, SHAPES)
    report = track.report()
    report.print()
    report.to_html(page)
    print(f"\n{found.shape[0]} shapes of {found.shape[1]:,} points; the same report as a page: {page}")


if __name__ == "__main__":
    main()
