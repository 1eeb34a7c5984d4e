"""Prints the licences of the crates that a binary is built from: each crate with what its manifest says, then the texts that
come with their sources, each once. The same input gives the same bytes.

Usage: third-party.py bcd|relay TARGET      (TARGET as Rust names it: x86_64-unknown-linux-gnu)
"""

import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
from crates import license_of, locked, metadata, reachable

# At the top of the sources, and below where a crate brings those of others along (aws-lc, SQLite).
TEXTS = re.compile(r"(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)([-._].*)?", re.IGNORECASE)


def main():
    name, target = sys.argv[1:]
    described = metadata("--filter-platform", target)
    crates = [crate for crate in reachable(name, locked()) if "source" in crate]
    keys = [(crate["name"], crate["version"]) for crate in crates]
    numbers, rows = {}, []
    for key in keys:
        if key in described:
            crate = described[key]
            own = [numbers.setdefault(text, len(numbers) + 1) for text in texts(Path(crate["manifest_path"]).parent)]
            rows.append((f"{key[0]} {key[1]}", ", ".join(map(str, own)) or "-", license_of(crate) or "as its text says"))
    print(f"{name} is under the Apache License 2.0. What others wrote, and what is linked into it or builds it:\n")
    rows.append(("Rust's standard library", "-", "MIT OR Apache-2.0"))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for crate, own, license in rows:
        print(f"{crate:{widths[0]}}  {own:{widths[1]}}  {license}")
    print("\nThe numbers are those of the texts that follow, as the sources have them; with - there is none.")
    for text, number in numbers.items():
        print(f"\n{'=' * 30} {number} {'=' * 30}\n\n{text}")


def texts(folder):
    files = [path for pattern in ("*", "*/*") for path in folder.glob(pattern) if path.is_file() and TEXTS.fullmatch(path.name)]
    files = [path for path in files if path.suffix not in {".rs", ".py", ".html"}]
    read = (path.read_text(errors="replace").replace("\r\n", "\n").strip("\n") for path in sorted(files))
    return list(dict.fromkeys(text for text in read if text))


main()
