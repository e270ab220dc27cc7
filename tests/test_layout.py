"""The package's shape: imports point one way, the package list is complete, and importing it is light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import tunesmith

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(tunesmith.__file__).parent
LAYERS = ("machine", "kernels", "schedules", "tuning", "integrate", "cli")
HEAVY = ("tvm", "tvm_ffi", "numpy", "torch", "psutil", "xgboost", "onnx", "click", "importlib.metadata")


def imported_layers(source, depth):
    """Yield what a module in the depth-th folder below the root imports of the package, by layer."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level > depth:
            names = [node.module.split(".")[0]] if node.module else [alias.name for alias in node.names]
            yield from names
        elif (
            isinstance(node, ast.ImportFrom) and node.level == 0 and node.module.split(".")[0] == "tunesmith"
        ):
            yield "tunesmith (absolute)"
        elif isinstance(node, ast.Import):
            if any(alias.name.split(".")[0] == "tunesmith" for alias in node.names):
                yield "tunesmith (absolute)"


def wrong_imports(root):
    """List the imports of the package at `root` that point upwards or are not relative."""
    wrong = []
    for rank, layer in enumerate(LAYERS):
        for path in sorted((root / layer).rglob("*.py")):
            depth = len(path.relative_to(root).parts) - 1
            for found in imported_layers(path.read_text(encoding="utf-8"), depth):
                if found not in LAYERS[: rank + 1] and found != "__version__":
                    wrong.append(f"{path.relative_to(root)} imports {found}")
    return wrong


def test_imports_point_one_way():
    assert wrong_imports(ROOT) == []


@pytest.mark.parametrize(
    "line",
    [
        "from ..kernels import matmul",
        "from .. import tuning",
        "from ..schedules.rule import ScheduleRule",
        "def late():\n    from ..cli.main import main",
        "import tunesmith.machine.errors",
        "from tunesmith.machine import errors",
    ],
)
def test_a_wrong_import_is_found(tmp_path, line):
    (tmp_path / "machine").mkdir()
    (tmp_path / "machine" / "planted.py").write_text(line)
    assert len(wrong_imports(tmp_path)) == 1


def test_a_right_import_is_allowed(tmp_path):
    (tmp_path / "schedules" / "cpu").mkdir(parents=True)
    (tmp_path / "schedules" / "cpu" / "planted.py").write_text(
        "from ...machine.facts import facts\nfrom ..rule import ScheduleRule\nfrom ... import __version__\n"
    )
    assert wrong_imports(tmp_path) == []


def test_the_package_list_names_every_folder():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = [
        path.parent.relative_to(ROOT) for layer in LAYERS for path in (ROOT / layer).rglob("__init__.py")
    ]
    assert sorted(listed) == sorted(["tunesmith", *(".".join(("tunesmith", *f.parts)) for f in folders)])


def test_every_folder_with_code_is_a_package():
    for layer in LAYERS:
        for path in (ROOT / layer).rglob("*.py"):
            assert (path.parent / "__init__.py").is_file(), f"{path.parent} has no __init__.py"


def test_no_other_module_lies_at_the_root():
    assert [path.name for path in ROOT.glob("*.py")] == ["__init__.py"]


def test_importing_the_package_loads_nothing_heavy():
    code = f"import tunesmith, sys; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def scripts_parsed_at_import(source):
    """Name the TVMScript functions that a module has outside of its own functions."""
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return [f.name for f in functions if any("prim_func" in ast.unparse(d) for d in f.decorator_list)]


def test_importing_parses_no_tvmscript():
    # TVM looks at the whole stack to parse one: 0.2 s each in an import, in every process and worker.
    assert scripts_parsed_at_import("@T.prim_func(s_tir=True)\ndef f(a: T.handle): ...") == ["f"]
    modules = {path: path.read_text("utf-8") for layer in LAYERS for path in (ROOT / layer).rglob("*.py")}
    assert [path for path, text in modules.items() if scripts_parsed_at_import(text)] == []


@pytest.mark.parametrize("name", tunesmith.__all__)
def test_every_public_name_is_there(name):
    assert getattr(tunesmith, name) is not None


def test_an_unknown_public_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'tunesmith' has no attribute 'matmull'"):
        tunesmith.matmull  # noqa: B018
