"""ArviZ is imported in silence, and by one file."""

import pathlib
import re
import subprocess
import sys

import pytest

import tfp_lhnn
from tfp_lhnn.support import arviz_import

PACKAGE = pathlib.Path(tfp_lhnn.__file__).parent

# An ArviZ that announces something, as it does at its first import of a day. The first
# import fails if it is told so, as it does if another process writes the date.
CODE = """
import importlib.util, sys, types, warnings
warnings.simplefilter("error")

class Loud:
    def find_spec(self, name, path=None, target=None):
        if name == "arviz":
            return importlib.util.spec_from_loader(name, self)
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        warnings.warn("a new ArviZ is coming", FutureWarning)
        if sys.argv.pop() == "fails once":
            raise FileNotFoundError("daily_warning.tmp")

sys.meta_path.insert(0, Loud())
spec = importlib.util.spec_from_file_location("arviz_import", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(module.az.__name__)
try:
    warnings.warn("another", FutureWarning)
except FutureWarning:
    print("still an error")
"""


@pytest.mark.parametrize("first_import", ["works", "fails once"])
def test_its_announcement_is_not_heard(first_import):
    done = subprocess.run(
        [sys.executable, "-c", CODE, arviz_import.__file__, "second", first_import],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("arviz\nstill an error\n", "")


def test_no_other_file_imports_it():
    importers = [
        path.name
        for path in PACKAGE.rglob("*.py")
        if re.search(r"^\s*(import arviz|from arviz)", path.read_text(), re.MULTILINE)
    ]
    assert importers == ["arviz_import.py"]
