"""What tests and publishes the book, before it is pushed: schemas, and a few own rules.

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
from workshop import build, goals, notebooks, visible

ROOT = build.ROOT
BOOK = ROOT / ".github" / "workflows" / "book.yml"
TEXT = BOOK.read_text(encoding="utf-8")
FLOW = yaml.safe_load(TEXT)
SINGLE_FILES = BOOK.with_name("single-files.yml")
HANDED_IN = BOOK.with_name("handed-in.yml")
WORKFLOW = ("vendor.github-workflows", "custom.github-workflows-require-timeout")
PINNED = re.compile(r"[\w-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


def refused(schema: str, file: Path) -> str:
    """What a schema of check-jsonschema has against a file; "" if nothing."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema]
    said = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    command += ["--force-filetype", "yaml", str(file)]
    done = subprocess.run(command, check=False, encoding="utf-8", **said)
    return done.stdout if done.returncode else ""


def made() -> set[str]:
    """What the Makefile can make."""
    rules = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z-]+):", rules, flags=re.M))


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        *((schema, ".github/workflows/book.yml") for schema in WORKFLOW),
        *((schema, ".github/workflows/single-files.yml") for schema in WORKFLOW),
        *((schema, ".github/workflows/handed-in.yml") for schema in WORKFLOW),
        ("vendor.dependabot", ".github/dependabot.yml"),
        ("vendor.citation-file-format", "CITATION.cff"),
    ],
)
def test_a_file_keeps_to_its_schema(schema, name):
    assert refused(schema, ROOT / name) == ""


@pytest.mark.parametrize(
    "file", [BOOK, SINGLE_FILES, HANDED_IN], ids=lambda path: path.stem
)
def test_a_workflow_may_read_and_uses_pinned_actions(file):
    text = file.read_text(encoding="utf-8")
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
    used = re.findall(r"\buses: +(.*)", text)
    assert used and [action for action in used if not PINNED.fullmatch(action)] == []


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        (SINGLE_FILES, {"make test-standalone", "make test-hosted"}),
        (HANDED_IN, {"make hostile", "make odd-values"}),
    ],
    ids=["single files", "handed in"],
)
def test_what_takes_long_runs_weekly_by_hand_and_before_a_release(file, wanted):
    """It would take too long for each change, where the tests run a part of it."""
    flow = yaml.safe_load(file.read_text(encoding="utf-8"))
    begins, jobs = flow[True], flow["jobs"].values()  # YAML reads `on` as true
    assert {*begins} == {"push", "schedule", "workflow_dispatch"}
    assert begins["push"] == {"tags": ["v*"]}
    (weekly,) = begins["schedule"]
    assert weekly["cron"].split()[2:] == ["*", "*", "1"]
    runs = {step["run"] for job in jobs for step in job["steps"] if "run" in step}
    assert runs == wanted
    assert {run.removeprefix("make ") for run in runs} <= made()
    assert not any("if" in each for job in jobs for each in [job, *job["steps"]])


def test_the_hosted_files_have_the_python_of_the_newest_list():
    *_, newest = sorted(ROOT.glob("hosted-*.txt"))
    version = re.search(r"Python (3\.\d+)", newest.read_text(encoding="utf-8"))[1]
    flow = yaml.safe_load(SINGLE_FILES.read_text(encoding="utf-8"))
    _, python, _ = flow["jobs"]["hosted"]["steps"]
    assert python["with"]["python-version"] == version


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
        f"| code cells that a reader sees | at most {notebooks.MOST_CELLS} |",
        f"| lines of a code cell | at most {notebooks.MOST_LINES} |",
        f"| lines of a cell that holds one class | at most {of_class} |",
        f"| at most 88, and {visible.MOST_LETTERS} where the reader sees it |",
        f"| at most {goals.MOST_SUSPICIOUS}, or {goals.FEW_SUSPICIOUS} on the page |",
        f"| at most {goals.MOST_SEMICOLONS}, or {goals.FEW_SEMICOLONS} on the page |",
        f"| points of the summary | 1 to {notebooks.SUMMARY_POINTS} |",
        f"| exercises | at least {notebooks.LEAST_EXERCISES} |",
    ):
        assert limit in text
    tags = re.search(r"\| tags of a cell \| ([^;]*);", text)[1]
    assert set(re.findall("`(.*?)`", tags)) == notebooks.ALLOWED_TAGS
