"""The rules of the house as functions: each takes the source tree and returns its violations as lines of text."""

import ast
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
TOP_LEVEL = {"pyproject.toml", "README.md", "Makefile", "LICENSE", "sync_core", "server_relay", "clients", "tests"}
PACKAGES = ("sync_core", "server_relay", "clients")
IMPURE = {"asyncio", "time", "random", "sqlite3", "aiosqlite", "websockets"}
RELAY_MAY_IMPORT = {
    "errors",
    "limits",
    "ids",
    "values",
    "keys",
    "entry",
    "completion",
    "parts",
    "rulings",
    "frames",
    "petitions",
    "wire",
    "scan",
    "guard",
}
SLEEPING_ALLOWED = ("tests/end_to_end/", "tests/benchmarks/", "tests/soak/")
FOREIGN = re.compile(
    r"pypi\.org|pythonhosted\.org|registry\.npmjs|index[-_]url|[a]rtifactory"
    r"|(?<![\w.])/(?:root|work|Users|home/[a-z]\w*)/[\w.]"
)
"""Registry hosts, and paths that exist on one machine only."""


@dataclass(frozen=True)
class Layer:
    """One line of the layer table: files of a folder, lowest first; `pure` ones read no clock, disk or network."""

    folder: str
    files: str
    pure: bool = False

    def modules(self) -> list[str]:
        package = self.folder.replace("/", ".")
        return [package if name == "__init__" else f"{package}.{name}" for name in self.files.split()]


@dataclass(frozen=True)
class Source:
    """One Python file of the tree."""

    path: str
    text: str

    @property
    def module(self) -> str:
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def is_test(self) -> bool:
        return self.path.startswith("tests/")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @property
    def is_marker(self) -> bool:
        """A package's door with nothing behind it but, perhaps, a docstring and an empty `__all__`."""
        body = self.tree.body[ast.get_docstring(self.tree) is not None :]
        return self.path.endswith("__init__.py") and {ast.unparse(node) for node in body} <= {"__all__: list[str] = []"}

    def imports(self, modules: set[str]) -> Iterator[tuple[int, str]]:
        """Every import, also inside functions, as (line, module); `from a import b` is a.b where that is a module."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from {(node.lineno, alias.name) for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                base = "." * node.level + (node.module or "")
                inner = {f"{base}.{alias.name}" for alias in node.names}
                yield from {(node.lineno, name if name in modules else base) for name in inner}


@dataclass
class House:
    """The tree under `root`: the files that are tracked, or would be."""

    root: Path
    table: tuple[Layer, ...]
    crdt_files: frozenset[str]
    paths: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.paths:
            command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
            listed = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=True).stdout
            self.paths = sorted(path for path in listed.splitlines() if (self.root / path).is_file())

    @cached_property
    def sources(self) -> list[Source]:
        python = [path for path in self.paths if path.endswith(".py") and path.split("/")[0] in (*PACKAGES, "tests")]
        return [Source(path, (self.root / path).read_text(encoding="utf-8")) for path in python]

    @cached_property
    def modules(self) -> set[str]:
        return {source.module for source in self.sources}

    @cached_property
    def order(self) -> dict[str, int]:
        return {module: place for place, module in enumerate(m for layer in self.table for m in layer.modules())}

    def violations(self) -> list[str]:
        rules = (layers, purity, crdt, relay, sizes, exports, signatures, sleeps, top_level, foreign)
        return [line for rule in rules for line in rule(self)]


def _program(house: House) -> list[Source]:
    return [source for source in house.sources if not source.is_test]


def layers(house: House) -> Iterator[str]:
    """A file imports only from files above it in the table, so there is no cycle; every file has its place."""
    for source in _program(house):
        place = house.order.get(source.module)
        if place is None:
            if not source.is_marker:
                yield f"{source.path}: has no place in the layer table of tests/test_house.py"
            continue
        for line, target in source.imports(house.modules):
            if target.startswith("."):
                yield f"{source.path}:{line}: a relative import"
            elif target.split(".")[0] in PACKAGES and house.order.get(target, len(house.order)) >= place:
                yield f"{source.path}:{line}: imports {target}, which is not above it in the layer table"
            elif target.split(".")[0] == "tests":
                yield f"{source.path}:{line}: imports {target}, a test"
    for module in house.order:
        if module not in house.modules:
            yield f"{module}: is in the layer table of tests/test_house.py, but not in the tree"


def purity(house: House) -> Iterator[str]:
    pure = {module for layer in house.table if layer.pure for module in layer.modules()}
    for source in _program(house):
        for line, target in source.imports(house.modules):
            if source.module in pure and target.split(".")[0] in IMPURE:
                yield f"{source.path}:{line}: a pure file imports {target}"


def crdt(house: House) -> Iterator[str]:
    for source in _program(house):
        for line, target in source.imports(house.modules):
            if target.split(".")[0] == "pycrdt" and source.path not in house.crdt_files:
                yield f"{source.path}:{line}: imports pycrdt, which only {', '.join(sorted(house.crdt_files))} may"


def relay(house: House) -> Iterator[str]:
    for source in _program(house):
        for line, target in source.imports(house.modules):
            first, _, rest = target.partition(".")
            if source.path.startswith("server_relay/") and first == "sync_core" and rest not in RELAY_MAY_IMPORT:
                yield f"{source.path}:{line}: the relay imports {target}"


def sizes(house: House) -> Iterator[str]:
    for source in house.sources:
        lines = len(source.text.splitlines())
        if lines > FILE_LINES_MAX:
            yield f"{source.path}: {lines} lines, more than {FILE_LINES_MAX}"
        for node in ast.walk(source.tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno is not None:
                length = node.end_lineno - node.lineno + 1
                if length > FUNCTION_LINES_MAX:
                    yield f"{source.path}:{node.lineno}: {node.name} has {length} lines, more than {FUNCTION_LINES_MAX}"


def exports(house: House) -> Iterator[str]:
    """A docstring, and an `__all__` that lists every public name that the module makes, and none that is not there."""
    for source in _program(house):
        if source.is_marker:
            continue
        if not ast.get_docstring(source.tree):
            yield f"{source.path}: has no docstring"
        if source.path.endswith("__main__.py"):
            continue
        listed, made, there = _names(source.tree)
        if listed is None:
            yield f"{source.path}: has no __all__"
            continue
        for name in sorted(made - listed):
            yield f"{source.path}: {name} is not in __all__"
        if "__getattr__" not in there:
            for name in sorted(listed - there):
                yield f"{source.path}: __all__ lists {name}, which is not there"


def _names(tree: ast.Module) -> tuple[set[str] | None, set[str], set[str]]:
    """What `__all__` lists, which public names the module makes, and which names are there, imported ones too."""
    listed: set[str] | None = None
    made: set[str] = set()
    there: set[str] = set()
    for node in _top_level(tree.body):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                made.add(name)
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                listed = set(ast.literal_eval(value))
            case ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar" | "ParamSpec"))):
                pass  # a name that the type checker wants at the top level, and nobody else
            case ast.Assign(targets=targets):
                made |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                made.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                there |= {alias.asname or alias.name.split(".")[0] for alias in names}
    return listed, {name for name in made if not name.startswith("_")}, there | made


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.If):
            yield from _top_level(node.body)
            yield from _top_level(node.orelse)
        elif isinstance(node, ast.Try):
            yield from _top_level(node.body)
            for handler in node.handlers:
                yield from _top_level(handler.body)
        else:
            yield node


def signatures(house: House) -> Iterator[str]:
    """No `Any` in a public signature."""
    for source in _program(house):
        yield from _signatures(source, source.tree.body)


def _signatures(source: Source, body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from _signatures(source, node.body)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not node.name.startswith("_"):
            arguments = node.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
            annotations = [one.annotation for one in every if one is not None] + [node.returns]
            if any(_is_any(part) for one in annotations if one is not None for part in ast.walk(one)):
                yield f"{source.path}:{node.lineno}: Any in the signature of {node.name}"


def _is_any(node: ast.AST) -> bool:
    return (isinstance(node, ast.Name) and node.id == "Any") or (isinstance(node, ast.Attribute) and node.attr == "Any")


def sleeps(house: House) -> Iterator[str]:
    """A test waits for what happens, not for time to pass; `sleep(0)` gives up a loop turn and is no wait."""
    for source in house.sources:
        if not source.is_test or source.path.startswith(SLEEPING_ALLOWED):
            continue
        calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call) and _called(node.func) == "sleep"]
        for call in calls:
            seconds = call.args[0] if call.args else None
            if not isinstance(seconds, ast.Constant) or seconds.value != 0:
                yield f"{source.path}:{call.lineno}: sleeps"


def _called(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def top_level(house: House) -> Iterator[str]:
    for name in sorted({path.split("/")[0] for path in house.paths}):
        if not name.startswith(".") and name not in TOP_LEVEL:
            yield f"{name}: does not belong to the top level of the repository"


def foreign(house: House) -> Iterator[str]:
    for path in house.paths:
        try:
            text = (house.root / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if found := FOREIGN.search(line):
                yield f"{path}:{number}: names {found.group()!r}, a registry or a path of one machine"
