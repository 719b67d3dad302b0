"""Every block of Python in the documentation runs, against the server of a backend: docs_test.py BACKEND"""
import os
import re

import dlock
import support
from dlock import errors

TREE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def read(*path):
    """A file of the tree."""
    with open(os.path.join(TREE, *path)) as file:
        return file.read()


class Blocks(support.Case):
    def run_blocks(self, *path):
        """One after the other, as a reader would type them, with the test's server in the place of the example's."""
        fences = []

        def write_report(fence):
            fences.append(fence)

        names = {"write_report": write_report}
        blocks = re.findall(r"^```python\n(.*?)^```$", read(*path), re.M | re.S)
        self.assertTrue(blocks)
        server = support.uri(prefix=self.name + "-")
        for block in blocks:
            code = block.replace("redis://locks.example", server)
            exec(compile(code, os.path.join(*path), "exec"), names)
        names["client"].close()
        return fences

    def test_readme(self):
        self.assertEqual(len(self.run_blocks("README.md")), 1)

    def test_readme_of_the_package(self):
        self.assertEqual(len(self.run_blocks("bindings", "python", "README.md")), 1)

    def test_page(self):
        self.assertEqual(len(self.run_blocks("docs", "python.md")), 5)


class Tables(support.Case):
    def test_exceptions(self):
        """The page's table is that of the package."""
        rows = re.findall(r"^\| `(\w+)` \| `DLOCK_(\w+)` \| (?:`(\w+)`)? *\|$", read("docs", "python.md"), re.M)
        told = []
        for kind in errors.BY_CODE.values():
            builtin = [base.__name__ for base in kind.__bases__ if base is not dlock.Error]
            told.append((kind.__name__, re.search(r"DLOCK_(\w+)", kind.__doc__).group(1), "".join(builtin)))
        self.assertEqual(rows, told)


if __name__ == "__main__":
    support.main()
