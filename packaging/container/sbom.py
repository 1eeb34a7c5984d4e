"""Prints what an image is made of, as CycloneDX 1.5: the crates that a binary is built from, by Cargo.lock, and Debian's
packages. The same input gives the same bytes.

Cargo.lock says more than is linked: it has what other platforms would need too. It never says less.

Usage: sbom.py bcd|relay PACKAGES    (PACKAGES: lines of name, version, architecture, as dpkg-query shows them)
"""

import json
import sys
import tomllib
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parent.parent.parent


def main():
    name, packages = sys.argv[1:]
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    crates = reachable(name, lock)
    version = next(crate["version"] for crate in lock if crate["name"] == name)
    root = f"pkg:cargo/{name}@{version}"
    components = [crate_component(crate) for crate in crates] + [
        debian_component(*line.split("\t")) for line in Path(packages).read_text().splitlines()
    ]
    json.dump({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {
            "type": "container", "bom-ref": root, "name": name, "version": version, "purl": root,
            "licenses": [{"license": {"id": "Apache-2.0"}}],
        }},
        "components": components,
        "dependencies": [{"ref": root, "dependsOn": [component["bom-ref"] for component in components]}],
    }, sys.stdout, indent=1)
    print()


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


def crate_component(crate):
    purl = f"pkg:cargo/{crate['name']}@{quote(crate['version'])}"
    component = {"type": "library", "bom-ref": purl, "name": crate["name"], "version": crate["version"], "purl": purl}
    if "checksum" in crate:
        component["hashes"] = [{"alg": "SHA-256", "content": crate["checksum"]}]
    return component


def debian_component(name, version, architecture):
    purl = f"pkg:deb/debian/{quote(name)}@{quote(version)}?arch={architecture}&distro=bookworm"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


main()
