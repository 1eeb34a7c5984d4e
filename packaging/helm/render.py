"""Prints a chart's manifests, as `helm template` would: for packaging/manifests/render, with the Helm of tests/charts.

Usage: render.py CHART NAMESPACE VALUES
"""

import sys
from pathlib import Path

import helm_python


def render(chart, values, namespace="default"):
    """The documents' text by template, for a release of the chart's name."""
    loaded = helm_python.Chart.load(str(chart))
    loaded.validate_schema(values)
    rendered = loaded.render(values, name=loaded.name, namespace=namespace)
    return {path: text.strip("\n") for path, text in sorted(rendered.items()) if text.strip()}


if __name__ == "__main__":
    chart, namespace, values = sys.argv[1:]
    documents = render(chart, helm_python.values_from_yaml(Path(values).read_text()), namespace)
    print("\n".join(f"---\n# {path}\n{text}" for path, text in documents.items()))
