"""The page's table of exceptions is that of the package. Its blocks are run by tests/programs/docs/blocks_test.py."""
import os
import re
import unittest

import dlock
from dlock import errors

TREE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")


def read(*path):
    """A file of the tree."""
    with open(os.path.join(TREE, *path)) as file:
        return file.read()


class Tables(unittest.TestCase):
    def test_exceptions(self):
        """The page's table is that of the package."""
        rows = re.findall(r"^\| `(\w+)` \| `DLOCK_(\w+)` \| ((?:`\w+`(?:, )?)*) *\|$", read("docs", "python.md"), re.M)
        told = []
        for kind in sorted(errors.BY_CODE.values(), key=lambda kind: -kind.code):
            others = [f"`{base.__name__}`" for base in kind.__bases__ if base is not dlock.Error]
            told.append((kind.__name__, re.search(r"DLOCK_(\w+)", kind.__doc__).group(1), ", ".join(others)))
        self.assertEqual(rows, told)


if __name__ == "__main__":
    unittest.main(verbosity=2)
