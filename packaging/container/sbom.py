"""Prints what an image is made of, as CycloneDX 1.5: the crates that a binary is built from, by Cargo.lock, and Debian's
packages, with their licences. The same input gives the same bytes.

Cargo.lock says more than is linked: it has what other platforms would need too. It never says less.
Licences are what a crate says in its manifest, and what a package says in a copyright file that machines can read: all that
its sources have. Of the few packages whose file only people can read, none is said.

Usage: sbom.py bcd|relay PACKAGES COPYRIGHTS
    PACKAGES    lines of name, version, architecture, as dpkg-query shows them
    COPYRIGHTS  a tar of NAME/copyright, from the image's /usr/share/doc
"""

import json
import re
import sys
import tarfile
from pathlib import Path
from urllib.parse import quote

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from crates import license_of, locked, metadata, reachable

# Debian's names of licences that SPDX has by another one, beside those of the GNU; in lower case.
SPDX = {
    "apache-2": "Apache-2.0", "apache-2.0": "Apache-2.0", "artistic": "Artistic-1.0-Perl", "artistic-2": "Artistic-2.0",
    "bsd-2-clause": "BSD-2-Clause", "bsd-3-clause": "BSD-3-Clause", "bsd-4-clause": "BSD-4-Clause",
    "bsd-4-clause-uc": "BSD-4-Clause-UC", "bsl-1": "BSL-1.0", "cc0-1.0": "CC0-1.0", "cc-by-3.0": "CC-BY-3.0", "expat": "MIT",
    "fsfap": "FSFAP", "fsfullr": "FSFULLR", "isc": "ISC", "mit": "MIT", "ms-pl": "MS-PL", "x11": "X11", "zlib": "Zlib",
}
GNU = re.compile(r"(L?GPL)-([123](?:\.[01])?)(\+?)")

def main():
    name, packages, copyrights = sys.argv[1:]
    lock = locked()
    crates = reachable(name, lock)
    version = next(crate["version"] for crate in lock if crate["name"] == name)
    root = f"pkg:cargo/{name}@{version}"
    licenses, debian = crate_licenses(), debian_licenses(copyrights)
    components = [crate_component(crate, licenses) for crate in crates] + [
        debian_component(*line.split("\t"), debian) for line in Path(packages).read_text().splitlines()
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


def crate_licenses():
    return {key: license_of(crate) for key, crate in metadata().items()}


def crate_component(crate, licenses):
    purl = f"pkg:cargo/{crate['name']}@{quote(crate['version'])}"
    component = {"type": "library", "bom-ref": purl, "name": crate["name"], "version": crate["version"], "purl": purl}
    if "checksum" in crate:
        component["hashes"] = [{"alg": "SHA-256", "content": crate["checksum"]}]
    license = licenses.get((crate["name"], crate["version"]))
    return component | ({"licenses": [{"expression": license}]} if license else {})


def debian_licenses(copyrights):
    """By package, the licences of the parts of its sources, each once."""
    found = {}
    with tarfile.open(copyrights) as archive:
        for member in archive:
            text = archive.extractfile(member).read().decode(errors="replace")
            if re.match(r"\s*Format(-Specification)?:", text):
                names = (" ".join(name.split()) for name in re.findall(r"^License:(.+)", text, re.MULTILINE))
                licenses = dict.fromkeys(debian_license(name) for name in names if name)
                found[Path(member.name).parent.name] = [{"license": {kind: name}} for kind, name in licenses]
    return found


def debian_license(name):
    """An SPDX id where the name has one, else the name: it may be a choice, or words."""
    if gnu := GNU.fullmatch(name):
        family, number, later = gnu.groups()
        number = number if "." in number else f"{number}.0"
        return "id", f"{family}-{number}-{'or-later' if later else 'only'}"
    spdx = SPDX.get(name.lower())
    return ("id", spdx) if spdx else ("name", name)


def debian_component(name, version, architecture, licenses):
    purl = f"pkg:deb/debian/{quote(name)}@{quote(version)}?arch={architecture}&distro=bookworm"
    component = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    return component | ({"licenses": licenses[name]} if licenses.get(name) else {})


main()
