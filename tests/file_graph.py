"""Which files of a checkout depend on which, by their text alone: no module is imported, and no test collected."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

# Where the names of modules begin.
SOURCES = ("daemon/", "pipeline/", "")
# The files that depend on other files. The name of a program has no suffix.
READ = {"", ".md", ".py", ".pyi", ".sh", ".sql", ".toml", ".yaml", ".yml"}
WITHOUT_PROCESSES = ("tests/sql/", "tests/unit/")
# An object of the queue as statements name it, and as the bindings of the client do.
OBJECT = re.compile(r"\bmessages\.(\w+)|\bfunction_call\(\s*\"(\w+)\"|^@binding.*\ndef (\w+)", re.MULTILINE)
KINDS = "FUNCTION|PROCEDURE|TABLE|TYPE|VIEW|DOMAIN|SEQUENCE"
CREATED = re.compile(rf"^CREATE [\w ]*?(?:{KINDS}) (?:IF NOT EXISTS )?messages\.(\w+)", re.MULTILINE)
IMPORTED = re.compile(r"^\s*from ([\w.]+) import (\([^)]*\)|.*)", re.MULTILINE)
DOTTED = re.compile(r"\b[a-z]\w*(?:\.\w+)+")
# A word with a dot or a slash. Those without are words of the language: `run` is not `.ci/run`.
PATH = re.compile(r"[\w@-]*[./][\w@./-]*\w")


@dataclass(frozen=True)
class Tree:
    """The files of a checkout by their paths, and which of them depend on which.

    Attributes:
        root: the folder of the checkout.
        files: the paths of all files, also of those that the change deleted.
    """

    root: Path
    files: tuple[str, ...]
    texts: dict[str, str] = field(default_factory=dict)

    def nearest_tests(self, changed: Iterable[str]) -> dict[str, int]:
        """Return the files of tests that depend on changed files, with their distance from these, nearest first."""
        distances = dict.fromkeys(changed, 0)
        subjects = {f"test_{PurePosixPath(path).stem}.py" for path in distances}
        reached = list(distances)
        for path in reached:  # It grows as the walk goes on.
            new = [each for each in sorted(self.dependents[path]) if each not in distances]
            distances.update(dict.fromkeys(new, distances[path] + 1))
            reached += new

        def rank(test: str) -> tuple[int, bool, bool, bool, int]:
            return distances[test], PurePosixPath(test).name not in subjects, *self.effort(test)

        return {path: distances[path] for path in sorted(self.tests.intersection(reached), key=rank)}

    def effort(self, test: str) -> tuple[bool, bool, int]:
        """Return what a file of tests takes, as far as that shows without running it.

        It is marked as slow, has processes, or has a size.
        """
        text = self.text(test)
        return "pytest.mark.slow" in text, not test.startswith(WITHOUT_PROCESSES), len(text)

    @cached_property
    def tests(self) -> set[str]:
        """All files of tests, except those of projects that have a pytest of their own."""
        found = {path for path in self.files if re.fullmatch(r"tests/(.+/)?test_\w+\.py", path)}
        return found.difference(*self.projects.values())

    @cached_property
    def projects(self) -> dict[str, set[str]]:
        """The files of each project whose tests run in processes of their own, by the name of its folder."""
        folders = [PurePosixPath(path).parent for path in self.by_name.get("pytest.ini", ())]
        return {each.name: {path for path in self.files if path.startswith(f"{each}/")} for each in folders}

    @cached_property
    def dependents(self) -> dict[str, set[str]]:
        """Which files depend on a file, directly."""
        found: dict[str, set[str]] = defaultdict(set)
        for path in self.files:
            for each in self.dependencies(path):
                found[each].add(path)
        named = set(found) | self.tests
        for path in set(self.files) - self.tests:
            if not found.get(path) or (path.endswith(".py") and not any(map(self.is_code, found[path]))):
                found[path] |= self.neighbours(path, named)
        return found

    def is_code(self, path: str) -> bool:
        """Return whether a file is neither a test nor a page."""
        return path not in self.tests and not path.endswith(".md")

    def neighbours(self, path: str, named: set[str]) -> set[str]:
        """Return the files next to one that no code names, because something finds it in its folder.

        They are tests and what others name, or those above.
        """
        above = [str(folder) for folder in PurePosixPath(path).parents][:-1]
        beside = ({each for each in named if each.rpartition("/")[0] == folder} for folder in above)
        return next(filter(None, beside), set())

    def dependencies(self, path: str) -> set[str]:
        """Return the files that a file depends on directly."""
        text = self.text(path)
        objects = {name for groups in OBJECT.findall(text) for name in groups if name}
        found = {each for name in objects for each in self.definitions.get(name, ())}
        found |= {each for word in set(PATH.findall(text)) for each in self.files_called(word)}
        if path.endswith((".py", ".pyi")):
            found |= {each for name, project in self.projects.items() if f'"{name}"' in text for each in project}
            found |= {each for name in imports(text) for each in self.modules_of(name)}
        if path in self.tests:
            found |= self.subjects(path)
        return found - {path}

    def subjects(self, test: str) -> set[str]:
        """Return what a file of tests is about by its place.

        test_claim.py is about each claim.*; tests/docs/ and tests/sql/claim/ are about docs/ and sql/claim/.
        """
        folder, _, name = test.rpartition("/")
        stem = name.removeprefix("test_").removesuffix(".py")
        conftests = {f"{each}/conftest.py" for each in PurePosixPath(test).parents}
        pages = self.pages.get(folder.removeprefix("tests/"), set()) if folder != "tests" else set()
        scripts = self.scripts.get(folder.removeprefix("tests/"), set())
        return self.by_stem.get(stem, set()) | (conftests & self.by_name["conftest.py"]) | pages | scripts

    def text(self, path: str) -> str:
        """Return the text of a file; nothing of one that is deleted, or is no text that depends on others."""
        if path not in self.texts:
            file = self.root / path
            readable = PurePosixPath(path).suffix in READ and file.is_file()
            self.texts[path] = file.read_text(encoding="utf-8", errors="replace") if readable else ""
        return self.texts[path]

    def files_called(self, word: str) -> list[str]:
        """Return the file that a word names, by its path or the end of that: no file, if it could be several."""
        candidates = self.by_name.get(word.rpartition("/")[2], ())
        word = re.sub(r"^(\.{1,2}/)+", "", word)
        found = [path for path in candidates if f"/{path}".endswith(f"/{word}")]
        return found if len(found) == 1 else [path for path in found if path == word]

    def modules_of(self, name: str) -> Iterator[str]:
        """Yield the file of a module by its dotted name, and those of its packages.

        The name may go on inside the module.
        """
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            yield from self.modules.get(".".join(parts[:count]), ())

    @cached_property
    def modules(self) -> dict[str, set[str]]:
        """The files of the modules, by dotted names.

        A public name of a package, as in its stub, stands for its module.
        """
        found: dict[str, set[str]] = defaultdict(set)
        for path in self.files:
            if path.endswith(".py"):
                source = next(each for each in SOURCES if path.startswith(each))
                found[path.removeprefix(source).removesuffix(".py").removesuffix("/__init__").replace("/", ".")].add(
                    path
                )
        for stub in [path for path in self.files if path.endswith("__init__.pyi")]:
            package = PurePosixPath(stub).parent.name
            for module, names in IMPORTED.findall(self.text(stub)):
                found[f"{package}.{names.split()[0]}"] |= found[module]
        return found

    @cached_property
    def definitions(self) -> dict[str, set[str]]:
        """The SQL files that create an object of the schema, by its name."""
        return _index(
            (name, path) for path in self.files if path.endswith(".sql") for name in CREATED.findall(self.text(path))
        )

    @cached_property
    def pages(self) -> dict[str, set[str]]:
        """The files in each folder of the root that are neither Python nor SQL."""
        return _index(
            (path.partition("/")[0], path) for path in self.files if not path.endswith((".py", ".pyi", ".sql"))
        )

    @cached_property
    def scripts(self) -> dict[str, set[str]]:
        """The SQL files in each folder of sql/."""
        return _index((path.rpartition("/")[0], path) for path in self.files if path.endswith(".sql"))

    @cached_property
    def by_name(self) -> dict[str, set[str]]:
        """The paths, by the names of the files."""
        return _index((PurePosixPath(path).name, path) for path in self.files)

    @cached_property
    def by_stem(self) -> dict[str, set[str]]:
        """The paths, by the names of the files without their suffix."""
        return _index((PurePosixPath(path).stem, path) for path in self.files)


def _index(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for name, path in pairs:
        found[name].add(path)
    return found


def imports(text: str) -> set[str]:
    """Return the dotted names that a text imports or mentions.

    Code inside a string and names for monkeypatch count, too.
    """
    members = (
        f"{module}.{name}"
        for module, names in IMPORTED.findall(text)
        for name in re.findall(r"\w+", re.sub(r"#.*| as \w+", "", names))
    )
    return {*members, *DOTTED.findall(text)}
