"""What publishes the book, before it is pushed: schemas, and a few rules of our own.

`check-jsonschema` carries the schemas, so nothing is fetched.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import manygpu
from workshop import build, notebooks, sizes

ROOT = build.ROOT
BOOK = ROOT / ".github" / "workflows" / "book.yml"
TEXT = BOOK.read_text(encoding="utf-8")
FLOW = yaml.safe_load(TEXT)
WORKFLOW = ("vendor.github-workflows", "custom.github-workflows-require-timeout")
PINNED = re.compile(r"[\w-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
MAKE = re.compile(r"make ([a-z-]+)(?: [A-Z]+=\S+)*")
STRICT = "set -euo pipefail"


def refused(schema: str, file: Path) -> str:
    """What a schema of check-jsonschema has against a file; "" if nothing."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema]
    said = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    command += ["--force-filetype", "yaml", str(file)]
    done = subprocess.run(command, check=False, encoding="utf-8", **said)
    return done.stdout if done.returncode else ""


def broken(text: str) -> list[str]:
    """Which rules of our own a workflow breaks, a sentence each."""
    flow, targets = yaml.safe_load(text), made()
    wrong = []
    if flow.get("permissions") != {"contents": "read"}:
        wrong.append("permissions of all jobs must be `contents: read`, and stated")
    for used in re.findall(r"\buses: +(.*)", text):
        if not PINNED.fullmatch(used):
            wrong.append(f"{used}: pin it to a commit, with its version behind it")
    for job in flow["jobs"].values():
        for step in job["steps"]:
            first, *more = lines = step.get("run", STRICT).splitlines()
            if more and first != STRICT:
                wrong.append(f"{first}: several lines must begin with `{STRICT}`")
            for line in lines:
                target = MAKE.fullmatch(line)
                if line != STRICT and not (target and target[1] in targets):
                    wrong.append(f"{line}: the Makefile has no such target")
    return wrong


def made() -> set[str]:
    """What the Makefile can make."""
    rules = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z-]+):", rules, flags=re.M))


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        *((schema, ".github/workflows/book.yml") for schema in WORKFLOW),
        ("vendor.dependabot", ".github/dependabot.yml"),
        ("vendor.citation-file-format", "CITATION.cff"),
    ],
)
def test_a_file_keeps_to_its_schema(schema, name):
    assert refused(schema, ROOT / name) == ""


def test_each_workflow_keeps_the_rules():
    for path in BOOK.parent.iterdir():
        assert broken(path.read_text(encoding="utf-8")) == [], path.name


@pytest.mark.parametrize(
    ("schema", "was", "is_now", "said"),
    [
        (WORKFLOW[0], "runs-on:", "run-on:", "'runs-on' is a required property"),
        (WORKFLOW[0], "pull_request:", "pull-request:", "is not valid under any"),
        (WORKFLOW[1], "    timeout-minutes: 90\n", "", "'timeout-minutes' is a req"),
    ],
)
def test_the_schema_notices(tmp_path, schema, was, is_now, said):
    file = tmp_path / "book.yml"
    file.write_text(changed(was, is_now), encoding="utf-8")
    assert said in refused(schema, file)


@pytest.mark.parametrize(
    ("was", "is_now", "said"),
    [
        ("permissions:\n  contents: read\n", "", "permissions of all jobs"),
        ("  contents: read", "  contents: write", "permissions of all jobs"),
        ("3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1", "v7", "@v7: pin it"),
        (" # v7.0.0", "", "with its version behind it"),
        ("make quick", "make quickly", "make quickly: the Makefile has no such target"),
        (
            "run: make test",
            "run: pip install x",
            "pip install x: the Makefile",
        ),
        (
            "run: make test",
            "run: |\n          make lock\n          make test",
            f"make lock: several lines must begin with `{STRICT}`",
        ),
    ],
)
def test_the_rules_notice(was, is_now, said):
    assert any(said in sentence for sentence in broken(changed(was, is_now)))


def changed(was: str, is_now: str) -> str:
    """The workflow with one thing replaced, which must be there."""
    assert was in TEXT
    return TEXT.replace(was, is_now, 1)


def test_several_lines_may_run_if_a_failure_ends_them():
    lines = f"run: |\n          {STRICT}\n          make lock\n          make test"
    assert broken(changed("run: make test", lines)) == []


def given(job: str, action: str) -> dict:
    """What a step of a job hands to an action."""
    return next(
        step["with"]
        for step in FLOW["jobs"][job]["steps"]
        if step.get("uses", "").startswith(f"actions/{action}@")
    )


def test_readers_get_the_pages_that_the_tests_opened():
    """No second build: what was not looked at is not published."""
    opened = build.CHECKED.relative_to(ROOT) / "_build" / "html"
    assert given("test", "upload-pages-artifact")["path"] == opened.as_posix()
    runs = [step.get("run") for job in FLOW["jobs"].values() for step in job["steps"]]
    assert set(runs) == {"make quick", "make unit", "make test", None}
    assert not any("run" in step for step in FLOW["jobs"]["deploy"]["steps"])


def test_only_what_is_green_on_main_is_deployed():
    deploy = FLOW["jobs"]["deploy"]
    assert deploy["if"] == "github.ref == 'refs/heads/main'"
    assert set(deploy["needs"]) == {"quick", "test"}
    writing = [name for name, job in FLOW["jobs"].items() if "permissions" in job]
    assert writing == ["deploy"]
    assert deploy["permissions"] == {"pages": "write", "id-token": "write"}


def test_what_was_executed_can_be_read_where_it_failed():
    executed = build.CHECKED.relative_to(ROOT) / "book"
    assert given("test", "upload-artifact")["path"] == executed.as_posix()


def test_the_version_is_the_packages():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(cited["version"]) == manygpu.__version__


# What CONTRIBUTING.md and README.md say


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_a_command_that_is_named_is_one(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", text, flags=re.M))
    assert len(named) >= 5
    assert named <= made()


def test_the_limits_are_those_that_lint_has():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    of_class = notebooks.MOST_CLASS_LINES
    for limit in (
        f"| code cells that a reader sees | at most {sizes.MOST_CELLS} |",
        f"| lines of a code cell | at most {notebooks.MOST_LINES} |",
        f"| lines of a cell that holds one class | at most {of_class} |",
        f"that is code | at most {sizes.MOST_CODE:.0%} (",
        f"| points of the summary | 1 to {notebooks.SUMMARY_POINTS} |",
        f"| exercises | at least {notebooks.LEAST_EXERCISES} |",
    ):
        assert limit in text
    tags = re.search(r"\| tags of a cell \| ([^;]*);", text)[1]
    assert set(re.findall("`(.*?)`", tags)) == notebooks.ALLOWED_TAGS
