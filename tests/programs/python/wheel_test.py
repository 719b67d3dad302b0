"""wheel_test.py SOURCE: the wheel builds without network and compiler, is installed, and works from there."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

source = sys.argv.pop(1)

USE = """
import dlock, sys
print(dlock.__file__)
with dlock.Client("file:" + sys.argv[1]) as client, client.lock("x", timeout=5) as grant:
    print(grant.held)
"""


class Wheel(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        # A build writes into the source's folder.
        leave_out = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
        shutil.copytree(source, self.path("source"), ignore=leave_out)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def run_python(self, *arguments, **variables):
        """In an environment without a compiler and without this tree's package."""
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment.update({"CC": "false", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "HOME": self.folder}, **variables)
        done = subprocess.run(
            [sys.executable, *arguments], cwd=self.folder, env=environment, capture_output=True, text=True
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_wheel(self):
        pip = ("-m", "pip", "--quiet")
        offline = ("--no-build-isolation", "--no-index")
        self.run_python(*pip, "wheel", *offline, "--wheel-dir", self.path("wheels"), "./source")
        [wheel] = os.listdir(self.path("wheels"))
        self.assertRegex(wheel, r"^libdlock-\d+\.\d+\.\d+-py3-none-any\.whl$")
        names = zipfile.ZipFile(self.path("wheels", wheel)).namelist()
        modules = {f"dlock/{name}" for name in os.listdir(self.path("source", "src", "dlock"))}
        self.assertIn("dlock/py.typed", modules)
        self.assertEqual({name for name in names if name.startswith("dlock/")}, modules)
        self.assertTrue([name for name in names if name.endswith("LICENSE")], names)

        target = self.path("target")
        self.run_python(*pip, "install", "--no-index", "--target", target, self.path("wheels", wheel))
        shutil.rmtree(self.path("source"))
        os.mkdir(self.path("locks"))
        lines = self.run_python("-c", USE, self.path("locks"), PYTHONPATH=target).splitlines()
        self.assertEqual(lines, [os.path.join(target, "dlock", "__init__.py"), "True"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
