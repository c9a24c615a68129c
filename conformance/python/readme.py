"""Reads recipes from the project's README, so that the tests run what people copy.

A recipe is a fenced block after a comment `<!-- recipe: NAME -->`.
"""

import pathlib
import re

import harness

# The address that the README uses.
ADDRESS = "http://127.0.0.1:8484"


def recipe(name):
    """Returns the text of a recipe, with the address of the gateway under test."""
    block = rf"<!-- recipe: {re.escape(name)} -->\n+```\w*\n(.*?)```"
    found = re.search(block, _readme(), re.DOTALL)
    if not found:
        raise SystemExit(f"FAILED  the README has no recipe `{name}`")
    return found[1].replace(ADDRESS, harness.GATEWAY)


def _readme():
    """Returns the README of the repository that contains the working directory."""
    here = pathlib.Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "throughline.example.toml").exists():
            return (folder / "README.md").read_text(encoding="utf-8")
    raise SystemExit("FAILED  run this inside the repository")
