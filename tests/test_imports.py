"""The layering of the packages, read from their source, and what `import onstage` loads."""

import ast
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

LAYERS = ("stage", "ops", "autodiff", "export", "models")
MAX_LINES = 500
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}
LAZY_MODULE = "export/_lazy.py"
# The modules that import by name, and why.
BY_NAME = {
    LAZY_MODULE: "onnx, onnxruntime and the like at first use",
    "stage/dtypes.py": "ml_dtypes at the first bfloat16",
    "stage/tree_def.py": "the classes that a stored tree names",
}
# What only the lazy module may reach, and the scripts that run apart from the package.
LAZILY_IMPORTED = {"onnx", "onnxruntime", "onnxscript", "onnx_ir", "ml_dtypes"}
SCRIPTS = {"export/make_kernels.py", "export/demo_replay.py"}
# Loaded at first use only.
HEAVY = {
    "onnx",
    "onnxruntime",
    "onnxscript",
    "onnx_ir",
    "ml_dtypes",
    "scipy",
    "sklearn",
    "matplotlib",
    "rich",
    "click",
}

SPEC = importlib.util.find_spec("onstage")
assert SPEC is not None and SPEC.origin is not None
PACKAGE = Path(SPEC.origin).parent
ROOT = PACKAGE.parent


def source_files() -> list[tuple[str, Path]]:
    """Every module of the package as (path inside the package, file), the facade last."""
    files: list[tuple[str, Path]] = []
    for layer in LAYERS:
        folder = (PACKAGE / layer).resolve()
        files += [(f"{layer}/{path.relative_to(folder).as_posix()}", path) for path in sorted(folder.rglob("*.py"))]
    return files + [(path.name, path) for path in sorted(PACKAGE.glob("*.py"))]


FILES = source_files()
IN_LAYERS = [(name, path) for name, path in FILES if "/" in name]


def by_name(files: list[tuple[str, Path]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("name", "path"), files, ids=[name for name, _ in files])


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imported_modules(name: str, tree: ast.AST) -> list[tuple[int, str]]:
    """(line, absolute module name) of each import, relative ones resolved against onstage.<name>."""
    parts = ("onstage/" + name).removesuffix(".py").split("/")
    package = parts[:-1]  # right for __init__ too: its package is its folder
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - (node.level - 1)] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found.append((node.lineno, module))
            found += [(node.lineno, f"{module}.{alias.name}") for alias in node.names]
    return found


def layer_faults(name: str, tree: ast.AST) -> list[str]:
    layer = name.split("/")[0]
    rank = LAYERS.index(layer)
    faults: list[str] = []
    for line, module in imported_modules(name, tree):
        parts = module.split(".")
        if parts[0] in LAYERS and layer != "models":
            faults.append(f"{name}:{line}: absolute import of {module}; the packages are only under onstage")
        if parts[0] != "onstage" or layer == "models":
            continue
        if len(parts) == 1 and rank < LAYERS.index("models"):
            continue  # `from .. import x`: the imported name follows as an entry of its own
        target = parts[1] if len(parts) > 1 else ""
        if target not in LAYERS:
            faults.append(f"{name}:{line}: imports {module} of the public face")
        elif LAYERS.index(target) > rank:
            faults.append(f"{name}:{line}: {layer} imports {module}, which stands above it")
    return sorted(set(faults))


def nested_imports(tree: ast.AST) -> list[int]:
    """Lines of the imports inside functions."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return sorted({node.lineno for function in functions for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom)})


def is_importer(node: ast.Name | ast.Attribute) -> bool:
    """Whether a name or attribute is importlib.import_module or __import__."""
    return (node.id if isinstance(node, ast.Name) else node.attr) in ("import_module", "__import__")


@by_name(IN_LAYERS)
def test_imports_flow_one_way(name: str, path: Path) -> None:
    assert layer_faults(name, parse(path)) == []


@by_name(FILES)
def test_no_import_inside_a_function(name: str, path: Path) -> None:
    lines = nested_imports(parse(path))
    assert lines == [], f"{name} imports inside a function at lines {lines}"


@by_name([(name, path) for name, path in FILES if name != LAZY_MODULE and name not in SCRIPTS])
def test_heavy_libraries_are_reached_through_the_lazy_module(name: str, path: Path) -> None:
    tree = parse(path)
    direct = [(line, m) for line, m in imported_modules(name, tree) if m.split(".")[0] in LAZILY_IMPORTED]
    assert direct == []
    by_hand = [n.lineno for n in ast.walk(tree) if isinstance(n, ast.Name | ast.Attribute) and is_importer(n)]
    assert by_hand == [] or name in BY_NAME, f"{name} imports by name at lines {by_hand}"


@by_name(FILES)
def test_file_is_short_and_well_named(name: str, path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_LINES, f"{name} has {lines} lines"
    assert not FORBIDDEN_NAMES & set(name.removesuffix(".py").split("/")), f"{name}: a name that says nothing"


@by_name(FILES)
def test_every_module_says_what_it_is(name: str, path: Path) -> None:
    assert ast.get_docstring(parse(path)), f"{name} has no docstring"


@pytest.mark.parametrize("layer", LAYERS)
def test_every_folder_is_a_package(layer: str) -> None:
    folder = PACKAGE / layer
    missing = [
        path.parent.relative_to(folder.resolve()).as_posix()
        for path in folder.resolve().rglob("*.py")
        if not (path.parent / "__init__.py").exists()
    ]
    assert missing == []


def test_import_loads_only_numpy() -> None:
    program = "import sys, json; import onstage; print(json.dumps(sorted({n.split('.')[0] for n in sys.modules})))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = set(json.loads(result.stdout))
    assert "onstage" in loaded
    assert loaded & HEAVY == set()
    # The folders at the repository's root are reached through onstage only.
    assert loaded & set(LAYERS) == set()
    allowed = {"onstage", "numpy"} | set(sys.stdlib_module_names) | {"__main__", "__mp_main__"}
    third_party = {n for n in loaded - allowed if not n.startswith(("_", "sitecustomize", "usercustomize"))}
    assert third_party == set()


@pytest.mark.parametrize(
    ("name", "source", "fault"),
    [
        ("stage/x.py", "from ..ops import add", "stands above"),
        ("stage/passes/x.py", "from ...autodiff.forward import jvp", "stands above"),
        ("ops/x.py", "from onstage.export import lower", "stands above"),
        ("ops/x.py", "from .. import export", "stands above"),
        ("ops/x.py", "def f():\n    import onstage.autodiff", "stands above"),
        ("autodiff/x.py", "from .. import numpy", "public face"),
        ("autodiff/x.py", "import onstage.nn", "public face"),
        ("export/x.py", "import stage", "absolute import"),
        (
            "export/x.py",
            "from ..stage import spec\nfrom ..ops.math import add\nfrom . import kernels\nimport numpy",
            "",
        ),
        ("ops/__init__.py", "from .math import add\nfrom ..stage.spec import ArraySpec", ""),
        ("stage/x.py", "from .. import stage\nfrom . import spec", ""),
        ("models/x.py", "import onstage as ons\nfrom onstage.numpy import exp", ""),
    ],
)
def test_layer_check_itself(name: str, source: str, fault: str) -> None:
    faults = layer_faults(name, ast.parse(source))
    assert all(fault in text for text in faults)
    assert bool(faults) == bool(fault)


def test_nested_import_check_itself() -> None:
    assert nested_imports(ast.parse("import a\nif a:\n    import b\ndef f():\n    def g():\n        import c\n")) == [6]
