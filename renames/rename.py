"""Give files, SQL functions and identifiers their new names, all at once, as the maps beside this file say.

  python renames/rename.py [--check] [MAP.toml ...]      without maps: all beside this file

A map has these tables. All paths are those before the change; `in` and `except` hold files, folders or globs of tracked files.

  [files]                     "daemon/pgrouse/crew.py" = "daemon/pgrouse/worker/executor.py"
      moves the file, and rewrites imports (`from a.b import c`, `import a.b`), `python -m a.b`, dotted names in strings that are followed
      by `:` or `.name`, and mentions of the path.
  [sql]                       ring = "wake/notify_topics"          # or "wake/" to move it without a new name
      moves sql/{functions,triggers,views}/ring.sql to sql/wake/notify_topics.sql and tests/sql/test_ring.py with it; rewrites
      `messages.ring(`, `messages.ring` where no table or type has the name, and names in the comments of SQL files ("Called by: ring").
  [new]                       "daemon/pgrouse/worker/__init__.py" = 'its text'
      a file that is made, as those of new packages.
  [[words]]  in = [...]  except = [...]  to = { Crew = "HandlerExecutor", "in hand" = "in flight" }
      whole words (letters, digits, underscores), in code, strings and comments alike.
  [[attributes]]  in = [...]  to = { let_go = "remove" }
      `.let_go`, `def let_go` and the same in [..] of `__slots__`; not a variable of that name.
  [[patterns]]  in = [...]  from = 'regular expression'  to = 'replacement'
      what the others are too blunt for; after them, in the order of the map.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("daemon/", "pipeline/", "")
UNTOUCHED = ("renames/", "uv.lock", "tests/deploy/schemas/", "daemon/pgrouse/web/static/vendor/")


@dataclass
class Maps:
    files: dict[str, str] = field(default_factory=dict)
    sql: dict[str, str] = field(default_factory=dict)
    new: dict[str, str] = field(default_factory=dict)
    words: list[dict[str, Any]] = field(default_factory=list)
    attributes: list[dict[str, Any]] = field(default_factory=list)
    patterns: list[dict[str, Any]] = field(default_factory=list)

    def add(self, path: Path) -> None:
        read = tomllib.loads(path.read_text())
        self.new |= read.pop("new", {})
        for name in ("files", "sql"):
            for old, new in read.pop(name, {}).items():
                if getattr(self, name).setdefault(old, new) != new:
                    sys.exit(f"{path.name}: [{name}] {old}: {new!r}, but another map says {getattr(self, name)[old]!r}")
        for name in ("words", "attributes", "patterns"):
            for rule in read.pop(name, []):
                getattr(self, name).append(rule | {"map": path.name})
        if read:
            sys.exit(f"{path.name}: unknown tables {', '.join(read)}")


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [each for each in listed.split("\0") if each and not each.startswith(UNTOUCHED)]


def covers(globs: list[str], path: str) -> bool:
    return any(path == g or path.startswith(g.rstrip("/") + "/") or fnmatch(path, g) for g in globs)


def applies(rule: dict[str, Any], path: str) -> bool:
    return covers(rule.get("in", ["*"]), path) and not covers(rule.get("except", []), path)


def merged(rules: list[dict[str, Any]], path: str) -> dict[str, str]:
    """The renames for one file; two maps that disagree are an error."""
    found: dict[str, str] = {}
    for rule in rules:
        if applies(rule, path):
            for old, new in rule["to"].items():
                if found.setdefault(old, new) != new:
                    sys.exit(f"{rule['map']}: {path}: {old} -> {new!r}, but another rule says {found[old]!r}")
    return found


def alternatives(names: Any) -> str:
    return "|".join(re.escape(each) for each in sorted(names, key=len, reverse=True))


def rename_words(text: str, to: dict[str, str]) -> str:
    if not to:
        return text
    return re.sub(rf"(?:(?<!\w)|(?<=\\n))(?:{alternatives(to)})(?!\w)", lambda m: to[m[0]], text)  # also after a \\n in a string


def rename_attributes(text: str, to: dict[str, str]) -> str:
    if not to:
        return text
    return re.sub(rf"((?<=\.)|(?<=\bdef ))(?:{alternatives(to)})(?!\w)", lambda m: to[m[0]], text)


def relations() -> set[str]:
    made = re.compile(r"CREATE (?:UNLOGGED )?(?:TABLE|TYPE|SEQUENCE|VIEW|DOMAIN)(?: IF NOT EXISTS)? messages\.(\w+)")
    return {name for file in (ROOT / "sql").rglob("*.sql") for name in made.findall(file.read_text())}


class Sql:
    """The new names of SQL functions."""

    def __init__(self, to: dict[str, str]) -> None:
        self.names = {old: PurePosixPath(new).name if not new.endswith("/") else old for old, new in to.items()}
        self.changed = {old: new for old, new in self.names.items() if old != new}
        self.free = set(self.changed) - relations()

    def rename(self, text: str, path: str) -> str:
        if not self.changed:
            return text
        text = re.sub(
            rf"(?<![\w.])messages\.({alternatives(self.changed)})(?=\s*\()", lambda m: f"messages.{self.changed[m[1]]}", text
        )
        if self.free:
            text = re.sub(
                rf"(?<![\w.])messages\.({alternatives(self.free)})(?!\w)", lambda m: f"messages.{self.changed[m[1]]}", text
            )
        return self._in_comments(text) if path.endswith(".sql") else text

    def _in_comments(self, text: str) -> str:
        lines = text.split("\n")
        inside = False
        for number, line in enumerate(lines):
            if not line.lstrip().startswith("--"):
                inside = False
                continue
            inside = inside or "Called by:" in line
            long = {old: new for old, new in self.changed.items() if "_" in old}
            lines[number] = rename_words(line, long)
            if inside:
                end = lines[number].find(". ")
                head, tail = (lines[number], "") if end < 0 else (lines[number][:end], lines[number][end:])
                lines[number] = rename_words(head, self.changed) + tail
                inside = end < 0 and not line.rstrip().endswith(".")
        return "\n".join(lines)


def moves(maps: Maps, paths: list[str]) -> dict[str, str]:
    """Every file that moves, old path to new."""
    found = dict(maps.files)
    for old, new in maps.sql.items():
        where = [f"sql/{kind}/{old}.sql" for kind in ("functions", "triggers", "views")]
        file = next((each for each in where if each in paths), None)
        if file is None:
            sys.exit(f"[sql] {old}: no such file")
        name = old if new.endswith("/") else PurePosixPath(new).name
        room = new.rstrip("/") if new.endswith("/") else str(PurePosixPath(new).parent)
        found[file] = f"sql/{room}/{name}.sql"
        test = f"tests/sql/test_{old}.py"
        if name != old and test in paths:
            found.setdefault(test, f"tests/sql/test_{name}.py")
    return {old: new for old, new in found.items() if old != new}


def dotted(path: str) -> str | None:
    if not path.endswith(".py"):
        return None
    for package in PACKAGES:
        if path.startswith(package):
            return path.removeprefix(package).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return None


class Modules:
    """The new names of Python modules."""

    def __init__(self, moved: dict[str, str]) -> None:
        pairs = {dotted(old): dotted(new) for old, new in moved.items()}
        self.to = {old: new for old, new in pairs.items() if old and new and old != new}
        self.any = alternatives(self.to)
        self.children: dict[str, set[str]] = {}
        for old in self.to:
            parent, _, name = old.rpartition(".")
            self.children.setdefault(parent, set()).add(name)

    def rename(self, text: str) -> str:
        if not self.to:
            return text
        text = re.sub(rf"(?<![\w./-])({self.any})(?!\w)", self._named, text)
        return re.sub(r"(?m)^(\s*)from ([\w.]+) import (\((?:[^()]*)\)|[^\n(]+)$", self._members, text)

    def _named(self, match: re.Match[str]) -> str:
        before, after = match.string[: match.start()], match.string[match.end() :]
        meant = re.search(r"(?:from|import|-m) $", before[-10:]) or re.match(r":\w|\.[A-Za-z_]", after)
        return self.to[match[1]] if meant else match[1]

    def _members(self, match: re.Match[str]) -> str:
        """`from pgrouse import crew, events`: take out those that moved."""
        indent, package, listed = match.groups()
        moved = self.children.get(package)
        if not moved:
            return match[0]
        listed, hash_, comment = listed.partition("  #")
        names = [each.strip() for each in listed.strip("()").split(",") if each.strip()]
        stay = [each for each in names if each.split()[0] not in moved]
        lines = [f"{indent}from {package} import {', '.join(stay)}{hash_}{comment}"] if stay else []
        for each in names:
            if each.split()[0] in moved:
                new_package, _, new_name = self.to[f"{package}.{each.split()[0]}"].rpartition(".")
                alias = each.partition(" as ")[2] or each.split()[0]
                said = new_name if alias == new_name else f"{new_name} as {alias}"
                lines.append(f"{indent}from {new_package} import {said}{hash_}{comment}")
        return "\n".join(lines)


def rename_paths(text: str, moved: dict[str, str]) -> str:
    if not moved:
        return text
    return re.sub(rf"(?<![\w-])(?:{alternatives(moved)})(?!\w)", lambda m: moved[m[0]], text)


def new_text(path: str, text: str, maps: Maps, sql: Sql, modules: Modules, moved: dict[str, str]) -> str:
    text = modules.rename(text)
    text = rename_paths(text, moved)
    text = sql.rename(text, path)
    text = rename_words(text, merged(maps.words, path))
    text = rename_attributes(text, merged(maps.attributes, path))
    for rule in maps.patterns:
        if applies(rule, path):
            text, hits = re.subn(rule["from"], rule["to"], text)
            rule["hits"] = rule.get("hits", 0) + hits
    return text


def report_unused(maps: Maps, before: dict[str, str]) -> None:
    """Name what a map says and nothing in the tree has."""
    for kind in ("words", "attributes"):
        for rule in getattr(maps, kind):
            texts = [text for path, text in before.items() if applies(rule, path)]
            for old in rule["to"]:
                if not any(re.search(rf"(?<!\w){re.escape(old)}(?!\w)", text) for text in texts):
                    print(f"{rule['map']}: [{kind}] {old}: nowhere in {rule.get('in', '*')}")
    for rule in maps.patterns:
        if not rule.get("hits"):
            print(f"{rule['map']}: [patterns] {rule['from']!r}: matches nothing in {str(rule.get('in', '*'))[:200]}")


def main(arguments: list[str]) -> None:
    check = "--check" in arguments
    named = [Path(each) for each in arguments if each != "--check"]
    maps = Maps()
    for path in named or sorted(Path(__file__).parent.glob("*.toml")):
        maps.add(path)
    paths = tracked()
    moved = moves(maps, paths)
    missing = [old for old in moved if old not in paths]
    if missing:
        sys.exit(f"[files] not there: {', '.join(missing)}")
    taken = [new for new in moved.values() if list(moved.values()).count(new) > 1 or (new in paths and new not in moved)]
    if taken:
        sys.exit(f"[files] several want, or it is there already: {', '.join(sorted(set(taken)))}")
    before: dict[str, str] = {}
    for path in paths:
        try:
            if not (ROOT / path).is_symlink():
                before[path] = (ROOT / path).read_text()
        except UnicodeDecodeError:
            continue
    sql, modules = Sql(maps.sql), Modules(moved)
    after = {path: new_text(path, text, maps, sql, modules, moved) for path, text in before.items()}
    report_unused(maps, before)
    print(f"{sum(after[p] != before[p] for p in before)} files change, {len(moved)} move")
    if check:
        return
    for path, text in after.items():
        if text != before[path]:
            (ROOT / path).write_text(text)
    for old, new in sorted(moved.items()):
        (ROOT / new).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "mv", "-f", old, new], cwd=ROOT, check=True)
    for path, text in maps.new.items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(text.strip() + "\n")
        subprocess.run(["git", "add", path], cwd=ROOT, check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
