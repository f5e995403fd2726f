"""The house's rules, read off its files: which room may import which, and where."""

import ast
import functools
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / "tfp_lhnn"
TESTS = ROOT / "tests"

# A room may import itself and those before it.
ROOMS = (
    *("support", "targets", "model", "evaluation", "network"),
    *("mcmc", "learning", "posterior", "sampling"),
)
# What every room may import.
FREE = ("tfp_lhnn._version",)
# The one file that may touch what TFP does not promise to keep.
TFP_COMPAT = "tfp_lhnn.support.tfp_compat"
PRIVATE = ("python", "internal")
LARGEST_ROOT = 8


def module_name(path):
    """The name by which a file of the package is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@functools.cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imported_by(node, module, is_package):
    """Names that an import statement may bind, as whole dotted names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        levels = node.level - 1 if is_package else node.level
        parts = module.split(".")
        parents = parts[: len(parts) - levels]
        base = ".".join([*parents, base] if base else parents)
    # `from a import b` imports `a`, and `a.b` if that is a module.
    return [base, *(f"{base}.{alias.name}" for alias in node.names)]


def import_statements(tree):
    return [x for x in ast.walk(tree) if isinstance(x, (ast.Import, ast.ImportFrom))]


@functools.cache
def imports_of(path, module):
    """Modules of the package that a file imports, the package itself included."""
    is_package = path.name == "__init__.py"
    found = set()
    for node in import_statements(tree_of(path)):
        for name in imported_by(node, module, is_package):
            if name in MODULES:
                found.add(name)
        # A public name of the package: as good as an import of the whole package.
        is_from = isinstance(node, ast.ImportFrom)
        if is_from and node.module == "tfp_lhnn" and not node.level:
            names = {f"tfp_lhnn.{alias.name}" for alias in node.names}
            if names <= MODULES.keys():
                found.discard("tfp_lhnn")
    # `from tfp_lhnn.support import arguments` imports a file, not only its room.
    return {x for x in found if not is_room(x) or not any(is_in(y, x) for y in found)}


def is_room(module):
    return module in {f"tfp_lhnn.{room}" for room in ROOMS}


def is_in(module, room):
    return module.startswith(f"{room}.")


def room_of(module):
    """The room of a file; `None` for a file in the root of the package."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS else None


def inner_imports(tree):
    """Import statements that do not stand at the top of a file, with lines.

    Those in a `try` or `with` at the top do: they run when the file is imported.
    """
    blocks = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
    for node in ast.walk(tree):
        is_guarded = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        if isinstance(node, blocks) or is_guarded:
            yield from import_statements(node)


def calls_import(tree):
    """Calls of `__import__` and `import_module`, which no statement shows."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            name = getattr(function, "id", getattr(function, "attr", ""))
            if name in ("__import__", "import_module"):
                yield node


def private_uses(tree):
    """What a file uses of TFP's private modules, as dotted names."""
    aliases = {"tensorflow_probability": "tensorflow_probability"}
    for node in import_statements(tree):
        if isinstance(node, ast.Import):
            pairs = [(alias.asname, alias.name) for alias in node.names]
        else:
            pairs = [
                (alias.asname or alias.name, f"{node.module}.{alias.name}")
                for alias in node.names
            ]
        for bound, name in pairs:
            if name.split(".")[0] == "tensorflow_probability":
                if bound is not None:
                    aliases[bound] = name
                yield from [name] if is_private(name) else []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            first, *rest = dotted(node)
            if first in aliases:
                name = ".".join([aliases[first], *rest])
                yield from [name] if is_private(name) else []


def dotted(node):
    """The names of a chain of attributes; the first is "" if it is no plain name."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id if isinstance(node, ast.Name) else "", *reversed(names)]


def is_private(name):
    parts = name.split(".")
    return any(x in PRIVATE or (x[0] == "_" and x[:2] != "__") for x in parts if x)


def test_the_rooms_are_those_of_the_plan():
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert rooms == set(ROOMS)
    # No room within a room.
    assert {len(path.relative_to(PACKAGE).parts) for path in MODULES.values()} == {1, 2}


def test_the_root_is_small():
    files = [path for path in PACKAGE.iterdir() if path.is_file()]
    assert len(files) <= LARGEST_ROOT
    assert {f"tfp_lhnn.{path.stem}" for path in PACKAGE.glob("[!_]*.py")} == set()


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_those_before_it(room):
    allowed = ROOMS[: ROOMS.index(room) + 1]
    wrong = [
        f"{module} imports {name}"
        for module, path in MODULES.items()
        if room_of(module) == room
        for name in sorted(imports_of(path, module))
        if name not in FREE and room_of(name) not in allowed
    ]
    assert not wrong


def test_no_files_import_each_other():
    graph = {module: imports_of(path, module) for module, path in MODULES.items()}
    done, open_now = set(), []

    def visit(module):
        if module in open_now:
            pytest.fail(" -> ".join([*open_now[open_now.index(module) :], module]))
        if module not in done:
            open_now.append(module)
            for name in sorted(graph[module]):
                visit(name)
            done.add(open_now.pop())

    for module in graph:
        visit(module)


@pytest.mark.parametrize("module", MODULES)
def test_imports_are_at_the_top(module):
    if module == "tfp_lhnn":
        return  # it loads ArviZ and plots when they are asked for
    tree = tree_of(MODULES[module])
    wrong = [f"line {node.lineno}" for node in inner_imports(tree)]
    wrong += [f"line {node.lineno}: a call" for node in calls_import(tree)]
    assert not wrong


@pytest.mark.parametrize("module", MODULES)
def test_one_file_touches_private_modules_of_tfp(module):
    uses = sorted(set(private_uses(tree_of(MODULES[module]))))
    if module == TFP_COMPAT:
        assert uses, "it is there for nothing"
    else:
        assert not uses


def has_code(path):
    """Whether there is more in a file than a docstring, imports and names."""
    plain = (ast.Expr, ast.Import, ast.ImportFrom, ast.Assign)
    return not all(isinstance(node, plain) for node in tree_of(path).body)


@functools.cache
def homes():
    """Files by the public names that the package and its rooms give to their parts."""
    found = {}
    for module, path in MODULES.items():
        for node in import_statements(tree_of(path)) if path.stem == "__init__" else ():
            for alias in node.names if isinstance(node, ast.ImportFrom) else ():
                part, name = f"{node.module}.{alias.name}", f"{module}.{alias.name}"
                home = part if part in MODULES else node.module
                if home in MODULES and home != name:
                    found[name] = home
    return found


def home_of(name):
    """The file that a public name comes from; `None` for any other name."""
    home = homes().get(name)
    if home is None:
        return None
    # The package may have it from a room, and the room from a file.
    return home_of(f"{home}.{name.split('.')[-1]}") or home


def used_by(tree):
    """Dotted names that a test imports, or uses as attributes of what it imports."""
    aliases, used = {}, set()
    for node in import_statements(tree):
        used |= set(imported_by(node, "", is_package=False))
        for alias in node.names:
            is_from = isinstance(node, ast.ImportFrom)
            name = f"{node.module}.{alias.name}" if is_from else alias.name
            aliases[alias.asname or alias.name] = name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            first, *rest = dotted(node)
            used.add(".".join([aliases.get(first, first), *rest]))
    return used


@pytest.mark.parametrize(
    "module", [m for m, path in MODULES.items() if room_of(m) and has_code(path)]
)
def test_every_file_has_tests_that_import_it(module):
    """By its own name, or by the name of one of its parts that is public."""
    room = room_of(module)
    used = set()
    for path in (TESTS / room).glob("*.py"):
        used |= used_by(tree_of(path))
    is_used = module in used or any(home_of(name) == module for name in used)
    assert is_used, f"no file in tests/{room} imports {module}"


def test_tests_have_no_room_that_the_package_has_not():
    rooms = {path.name for path in TESTS.iterdir() if any(path.glob("test_*.py"))}
    assert rooms == set(ROOMS)


# The rules above prove nothing unless what they read finds what is wrong.
def test_what_is_read_off_a_file():
    tree = ast.parse(
        "import tensorflow_probability as tfp\n"
        "from tensorflow_probability.python.mcmc import nuts\n"
        "from tensorflow_probability import distributions as tfd\n"
        "a = tfp.python.mcmc\n"
        "b = tfp.mcmc.internal.util\n"
        "c = tfd._x\n"
        "d = tfp.mcmc.sample_chain\n"
        "def f():\n"
        "    import arviz\n"
        "class C:\n"
        "    import numpy\n"
        "try:\n"
        "    import fcntl\n"
        "except ImportError:\n"
        "    fcntl = None\n"
        "if TYPE_CHECKING:\n"
        "    from tfp_lhnn.support import progress\n"
        "importlib.import_module('os')\n"
    )
    prefix = "tensorflow_probability."
    found = {name.removeprefix(prefix) for name in private_uses(tree)}
    wanted = {"python.mcmc.nuts", "python.mcmc", "mcmc.internal.util"}
    assert found == wanted | {"mcmc.internal", "distributions._x", "python"}
    assert {node.lineno for node in inner_imports(tree)} == {9, 11, 17}
    assert [node.lineno for node in calls_import(tree)] == [18]
    assert {"tensorflow_probability.mcmc.sample_chain", "arviz"} <= used_by(tree)
    assert home_of("tfp_lhnn.fit") == "tfp_lhnn.learning.fit"
    assert home_of("tfp_lhnn.trace_stats") == "tfp_lhnn.mcmc.results"
    assert home_of("tfp_lhnn.plots") == "tfp_lhnn.posterior.plots"
    assert home_of("tfp_lhnn.mcmc") is home_of("os.path") is None
    relative = ast.parse("from ..support import progress").body[0]
    names = imported_by(relative, "tfp_lhnn.mcmc.nuts", is_package=False)
    assert names == ["tfp_lhnn.support", "tfp_lhnn.support.progress"]
