"""Write slides of each chapter that has run, from its page: `make slides`.

python -m workshop.slides [CHAPTER...]    what is named, or all that `make book` has run

They go to _slides/, with reveal.js beside them: no other host is asked. A folder that
was copied elsewhere works there, also opened as files.
"""

from __future__ import annotations

import html
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import yaml

from manygpu.records import write_whole
from workshop.build import EXECUTED
from workshop.pages import ROOT, reading_order, title_of

EXERCISES = "\n## Exercises\n"
SLIDES = ROOT / "_slides"
OTHERS = shutil.ignore_patterns(".doctrees", ".buildinfo", "objects.inv")
OURS = ("markup", "captions", "code_cells", "citations", "lean_figures", "slides")
CONFIG = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
project = "Training on Many GPUs"
language = "en"
templates_path = ["_templates"]
ours = [f"workshop.extensions.{{name}}" for name in {OURS!r}]
extensions = ["myst_nb", "sphinxcontrib.bibtex", *ours]
bibtex_bibfiles = ["references.bib"]
html_math_renderer = "mathml"
html_copy_source = False
nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["colon_fence", "dollarmath", "linkify"]
suppress_warnings = ["toc", "myst.xref_missing", "mystnb.mime_priority"]
revealjs_static_path = ["_static"]
revealjs_style_theme = "white"
revealjs_css_files = ["slides.css"]
revealjs_script_plugins = [
    {{"name": "RevealNotes", "src": "revealjs/plugin/notes/notes.js"}},
]
revealjs_script_conf = {{
    "width": 1280, "height": 720, "margin": 0.04, "center": False,
    "hash": True, "slideNumber": "c/t", "transition": "none",
}}
"""
# The theme's own forbids a reader to enlarge the page, and has a main part within one.
PAGE = """{% extends "!page.html" %}{% block extrahead %}
<meta name="viewport" content="width=device-width">{% endblock %}
{% block content %}<main style="height: 100%">
{{ super().replace(' role="main"', "") }}</main>{% endblock %}
"""
INDEX = """<!doctype html><html lang="en"><meta charset="utf-8">
<title>Slides: Training on Many GPUs</title>
<meta name="viewport" content="width=device-width">
<style>body{{font:18px/1.7 sans-serif;max-width:40rem;margin:2rem auto;padding:0 1rem;
color-scheme:light dark}}</style><h1>Slides</h1><ol>{links}</ol></html>
"""


def write_slides(pages: Mapping[str, Path], target: Path) -> None:
    """Write `target`/NAME.html of each page, executed if it can be, and an index.

    What Sphinx says is shown only if it fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "source", Path(folder) / "made" / "slides"
        source.mkdir()
        for name in ("_static", "_templates"):
            (source / name).mkdir()
        write_whole(CONFIG, source / "conf.py")
        write_whole(PAGE, source / "_templates" / "page.html")
        shutil.copy(
            ROOT / "workshop" / "static" / "slides" / "slides.css", source / "_static"
        )
        shutil.copy(ROOT / "book" / "back" / "references.bib", source)
        for name, file in pages.items():
            shutil.copyfile(file, source / f"{name}{file.suffix}")
        first, *_ = pages
        command = [sys.executable, "-m", "sphinx", "-q", "-b", "revealjs"]
        command += ["-D", f"root_doc={first}", source, made]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, encoding="utf-8", check=False
        )
        if done.returncode:
            sys.exit(f"the slides can't be written: {done.stderr[-5000:]}")
        shutil.copytree(made, target, ignore=OTHERS, dirs_exist_ok=True)
    links = "".join(
        f'<li><a href="{name}.html">{html.escape(heading(file))}</a></li>'
        for name, file in pages.items()
    )
    write_whole(INDEX.format(links=links), target / "index.html")


def heading(page: Path) -> str:
    """What a page begins with."""
    return title_of(page.stem, page.parent)


def chapters() -> dict[str, Path]:
    """Where each chapter's page is by its name: run, if it is a notebook.

    A chapter has exercises. Other pages that aren't notebooks have no slides.
    """
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    parts = [part for part in toc["parts"] if part["caption"][0].isdigit()]
    listed = [each["file"] for part in parts for each in part["chapters"]]
    notebooks, found = reading_order(), {}
    for page in listed:
        text = ROOT / f"{page}.md"
        if page in notebooks:
            found[Path(page).name] = EXECUTED / f"{page}.ipynb"
        elif EXERCISES in text.read_text(encoding="utf-8"):
            found[Path(page).name] = text
    return found


def main(names: list[str]) -> int:
    """Write the slides of these chapters, or of all; return the exit status."""
    known = chapters()
    if wrong := [name for name in names if name not in known]:
        sys.exit(f"C must be one of {', '.join(known)}, got {wrong[0]!r}")
    asked = {name: known[name] for name in names or known}
    there = {name: file for name, file in asked.items() if file.is_file()}
    if lacking := [name for name in asked if name not in there]:
        how = f"`make chapter C={lacking[0]}`" if names else "`make book`"
        print(f"not run yet, so it has no slides: {', '.join(lacking)} ({how} runs it)")
    if not there:
        return 1
    shutil.rmtree(SLIDES, ignore_errors=True)
    write_slides(there, SLIDES)
    print(f"{len(there)} chapters: {SLIDES / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
