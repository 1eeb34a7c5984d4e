"""The crates that a binary is built from, by Cargo.lock, and what they say of themselves. No program, but what several need."""

import json
import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def locked():
    """All that Cargo.lock has."""
    return tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]


def reachable(name, lock):
    """The crates that `name` is built from, without what only tests of this workspace need."""
    by_name = {}
    for crate in lock:
        by_name.setdefault(crate["name"], []).append(crate)
    seen, ahead = {}, [crate for crate in by_name[name]]
    while ahead:
        crate = ahead.pop()
        key = (crate["name"], crate["version"])
        if key in seen:
            continue
        seen[key] = crate
        for dependency in crate.get("dependencies", []):
            # "name", or "name version" where there are several.
            wanted, _, version = dependency.partition(" ")
            version = version.split(" ")[0]
            if "source" not in crate and wanted not in declared(crate["name"]):
                continue
            ahead += [found for found in by_name[wanted] if version in ("", found["version"])]
    return [crate for _, crate in sorted(seen.items()) if crate["name"] != name]


def declared(member):
    """What a crate of the workspace is built from: its dependencies, also those of one platform, but not those of its tests."""
    manifest = tomllib.loads((ROOT / member / "Cargo.toml").read_text())
    tables = [manifest, *manifest.get("target", {}).values()]
    names = set()
    for table in tables:
        for kind in ("dependencies", "build-dependencies"):
            for key, value in table.get(kind, {}).items():
                names.add(value.get("package", key) if isinstance(value, dict) else key)
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"].get("dependencies", {})
    renamed = {key: value["package"] for key, value in workspace.items() if isinstance(value, dict) and "package" in value}
    return {renamed.get(name, name) for name in names}


def metadata(*more):
    """What each crate says in its manifest, which Cargo.lock has not, by name and version."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--manifest-path", str(ROOT / "Cargo.toml"), *more]
    metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return {(crate["name"], crate["version"]): crate for crate in metadata["packages"]}


def license_of(crate):
    """Its expression, or nothing. A slash is how `OR` was written before there were expressions."""
    return re.sub(r"\s*/\s*", " OR ", crate["license"] or "")
