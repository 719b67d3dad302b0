"""Finding libdlock: the errors when it is missing, or is another one."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

library = os.environ["DLOCK_LIBRARY"]
sources = os.environ["PYTHONPATH"]


def imported(**variables):
    """The status of `import dlock` in a separate process, and its output."""
    environment = dict(os.environ, **variables)
    code = "import dlock; print(dlock.library_version())"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


class Library(unittest.TestCase):
    def test_named_by_the_environment(self):
        self.assertEqual(imported()[0], 0)

    def test_found_by_the_linker(self):
        """By its soname, where nothing names it. Compiler and ldconfig, which find_library asks, need not be there."""
        status, said = imported(DLOCK_LIBRARY="", LD_LIBRARY_PATH=os.path.dirname(library), PATH="/nonexistent")
        self.assertEqual(status, 0, said)

    def test_in_the_package(self):
        """As in a wheel, before any other of the system."""
        with tempfile.TemporaryDirectory() as folder:
            package = os.path.join(folder, "dlock")
            shutil.copytree(os.path.join(sources, "dlock"), package)
            os.mkdir(os.path.join(package, "_lib"))
            inside = os.path.join(package, "_lib", "libdlock.so.0.1")
            shutil.copy(library, inside)
            status, said = imported(DLOCK_LIBRARY="", PYTHONPATH=folder)
            self.assertEqual(status, 0, said)
            os.truncate(inside, 0)
            status, said = imported(DLOCK_LIBRARY="", PYTHONPATH=folder, LD_LIBRARY_PATH=os.path.dirname(library))
            self.assertEqual(status, 1)
            self.assertIn(inside, said)

    def test_missing(self):
        status, said = imported(DLOCK_LIBRARY="/nonexistent/libdlock.so")
        self.assertEqual(status, 1)
        for word in ("ImportError", "/nonexistent/libdlock.so", "DLOCK_LIBRARY", "Install"):
            self.assertIn(word, said)

    def test_another_library(self):
        status, said = imported(DLOCK_LIBRARY="libc.so.6")
        self.assertEqual(status, 1)
        self.assertIn("libc.so.6 is not dlock's library", said)

    def test_another_version(self):
        code = """
import sys, types
sys.modules["dlock._version"] = types.SimpleNamespace(__version__="0.2.0")
import dlock
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("this package is for dlock 0.2.x", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
