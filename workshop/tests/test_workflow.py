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
# Jobs that run chapters as single files, and what they make.
SINGLE_FILES = {"standalone": "make test-standalone", "hosted": "make test-hosted"}
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
        ("vendor.dependabot", ".github/dependabot.yml"),
        ("vendor.citation-file-format", "CITATION.cff"),
    ],
)
def test_a_file_keeps_to_its_schema(schema, name):
    assert refused(schema, ROOT / name) == ""


def test_the_workflow_may_read_and_uses_pinned_actions():
    assert FLOW["permissions"] == {"contents": "read"}
    used = re.findall(r"\buses: +(.*)", TEXT)
    assert [action for action in used if not PINNED.fullmatch(action)] == []


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
    made = {"make quick", "make unit", "make test", *SINGLE_FILES.values()}
    assert set(runs) == {*made, None}
    assert not any("run" in step for step in FLOW["jobs"]["deploy"]["steps"])


def test_only_what_is_green_on_main_is_deployed():
    deploy = FLOW["jobs"]["deploy"]
    assert deploy["if"] == "github.ref == 'refs/heads/main'"
    assert set(deploy["needs"]) == {"quick", "test"}
    writing = [name for name, job in FLOW["jobs"].items() if "permissions" in job]
    assert writing == ["deploy"]
    assert deploy["permissions"] == {"pages": "write", "id-token": "write"}


@pytest.mark.parametrize("job", SINGLE_FILES)
def test_single_files_run_weekly_by_hand_and_before_a_release(job):
    """They take too long for each change, where `make test` runs a few of them."""
    found = FLOW["jobs"][job]
    words = [word.strip() for word in found["if"].split("||")]
    assert sorted(words) == [
        "github.event_name == 'schedule'",
        "github.event_name == 'workflow_dispatch'",
        "startsWith(github.ref, 'refs/tags/')",
    ]
    assert SINGLE_FILES[job] in [step.get("run") for step in found["steps"]]
    begins = FLOW[True]  # YAML reads `on` so
    assert {"schedule", "workflow_dispatch"} <= {*begins}
    assert begins["push"]["tags"] == ["v*"]
    minutes, hours, *others = begins["schedule"][0]["cron"].split()
    assert others == ["*", "*", "1"], "weekly"


def test_the_hosted_python_is_that_of_the_newest_list():
    (*_, newest) = sorted(ROOT.glob("hosted-*.txt"))
    version = re.search(r"Python (3\.\d+)", newest.read_text(encoding="utf-8"))[1]
    assert given("hosted", "setup-python")["python-version"] == version


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
        f"that is code | at most {sizes.MOST_CODE:.0%} (",
        f"| points of the summary | 1 to {notebooks.SUMMARY_POINTS} |",
        f"| exercises | at least {notebooks.LEAST_EXERCISES} |",
    ):
        assert limit in text
    tags = re.search(r"\| tags of a cell \| ([^;]*);", text)[1]
    assert set(re.findall("`(.*?)`", tags)) == notebooks.ALLOWED_TAGS
