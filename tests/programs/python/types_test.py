"""The types of the package, and of a program that uses it: types_test.py SOURCE"""
import os
import subprocess
import sys
import tempfile
import unittest

source = sys.argv.pop(1)


class Types(unittest.TestCase):
    def test_strict(self):
        package = os.path.join(source, "dlock")
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "typed.py")
        with tempfile.TemporaryDirectory() as cache:
            done = subprocess.run(
                [sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache, package, program],
                cwd=cache, env=dict(os.environ, MYPYPATH=source), capture_output=True, text=True,
            )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
