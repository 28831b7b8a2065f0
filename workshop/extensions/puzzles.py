"""Puzzles that run in their page: the Python that does it is fetched by a click.

`{puzzle} NAME` is a puzzle of the package, with its start answer to be changed.
`{puzzle-python}` says what the first click fetches, or why there is nothing to fetch.
`{puzzle-hall}` is the table of records, without the answers.

Pyodide and the package's puzzles are put beside puzzles.js, for which only pages with a
puzzle ask. A build that can't get Pyodide says so on the page.
"""

from __future__ import annotations

import html
import re
import zipfile
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from manygpu.exercises.puzzles import KNOWN, Puzzle, hall
from manygpu.exercises.puzzles.scoring import number
from manygpu.tables import columns_of, table_html
from workshop import page_python
from workshop.pages import ROOT

FOLDER = "_static/puzzles"
# What Python in a page has of the package: the puzzles, and what they import.
MODULES = ("__init__.py", "_files.py", "_inks.py", "_numpy.py", "_tensorflow.py")
MODULES += ("checks.py", "hops.py", "trace/__init__.py", "trace/spans.py")
MODULES += ("scratch/__init__.py", "scratch/splitting/__init__.py")
MODULES += ("scratch/splitting/pipeline.py",)
MODULES += ("exercises/__init__.py", "exercises/puzzles/*.*")
CODE = re.compile(r"`(.+?)`")
LEAST_ROWS = 6  # of a field
AFTER_THE_BUNDLE = 960

PIECE = """<div class="manygpu-puzzle" data-puzzle="{name}">
{task}
<label for="answer-{name}">Your answer, in Python</label>
<textarea id="answer-{name}" rows="{rows}" wrap="off" spellcheck="false"
 autocapitalize="off" autocomplete="off">
{start}</textarea>
<div class="puzzle-buttons" hidden>
<button type="button" data-does="run">Run</button>
<button type="button" data-does="stop" hidden>Stop</button>
<button type="button" data-does="reset">Back to the start</button>
</div>
<output class="puzzle-said" for="answer-{name}"></output>
<pre class="puzzle-printed" tabindex="0" aria-label="What it printed" hidden></pre>
<div class="puzzle-drawing"></div>
<details><summary>Why no plan does better than {bound}</summary><p>{proof}</p></details>
</div>"""
READY = """<p class="puzzle-python" data-bytes="{size}">When you press <em>Run</em> for
the first time, this page loads Python itself, {mb:.0f} MB, from the book's own pages.
This happens once, and nothing is loaded before. The Python is Pyodide {version}
(<a href="https://pyodide.org">pyodide.org</a>, Mozilla Public License 2.0). Your
answers stay in this browser.</p>"""
MISSING = """<p class="puzzle-python" data-missing="">This copy of the book was built
without Python for its pages, so the puzzles can't run here: {why}. They do run in a
notebook.</p>"""


def paragraphs(task: str) -> str:
    """A task as HTML."""
    texts = [html.escape(" ".join(part.split())) for part in task.split("\n\n")]
    return "\n".join(f"<p>{text}</p>" for text in map(with_code, texts))


def with_code(text: str) -> str:
    """What stands between backticks as code."""
    return CODE.sub(r"<code>\1</code>", text)


def piece(puzzle: Puzzle) -> str:
    """A puzzle as HTML: it can be read without a script, and run with one."""
    return PIECE.format(
        name=puzzle.name,
        task=paragraphs(puzzle.task),
        rows=max(LEAST_ROWS, puzzle.start.count("\n") + 1),
        start=html.escape(puzzle.start, quote=False),
        bound=number(puzzle.bound),
        proof=html.escape(puzzle.proof),
    )


class PuzzlePiece(SphinxDirective):
    """{puzzle} NAME."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Where it is to be solved."""
        name = self.arguments[0]
        if name not in KNOWN:
            raise self.error(f"puzzle must be one of {', '.join(KNOWN)}, got {name!r}")
        self.env.metadata[self.env.docname]["puzzles"] = "yes"
        return [nodes.raw("", piece(KNOWN[name]), format="html")]


class PuzzlePython(SphinxDirective):
    """{puzzle-python}: takes nothing."""

    def run(self) -> list[nodes.Node]:
        """What a click fetches."""
        file, why = page_python.package()
        if file is None:
            text = MISSING.format(why=html.escape(why))
        else:
            size = page_python.size(file)
            text = READY.format(size=size, mb=size / 1e6, version=page_python.VERSION)
        return [nodes.raw("", text, format="html")]


class PuzzleHall(SphinxDirective):
    """{puzzle-hall}: takes nothing."""

    def run(self) -> list[nodes.Node]:
        """Bound, best score, who and when, of each puzzle."""
        best = {name: hall.best(name) for name in KNOWN}
        rows = [
            [one.title, name, number(one.bound), number(one.best), of.name, of.date]
            for one, (name, of) in zip(KNOWN.values(), best.items(), strict=True)
        ]
        heads = ["puzzle", "its name", "bound", "best known score", "found by", "date"]
        caption = "The best known score of each puzzle, beside its bound."
        shown = table_html(columns_of(rows, heads, [], {}), caption)
        return [nodes.raw("", shown, format="html")]


def give_script(app, pagename, templatename, context, doctree) -> None:
    """Let a page with a puzzle, and no other, ask for script and style."""
    if 'class="manygpu-puzzle"' in context.get("body", ""):
        context["css_files"] = [*context["css_files"], f"{FOLDER}/puzzles.css"]
        script = f"{'../' * pagename.count('/')}{FOLDER}/puzzles.js"
        context["body"] += f'<script defer src="{script}"></script>'


def put_python(app, failed: Exception | None) -> None:
    """Put Pyodide and the package's puzzles where the script looks for them."""
    has_puzzles = any("puzzles" in data for data in app.env.metadata.values())
    if failed or app.builder.format != "html" or not has_puzzles:
        return
    folder = Path(app.outdir) / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    pack(folder / "manygpu.zip")
    file, _ = page_python.package()
    if file is not None:
        page_python.unpack(file, folder / "pyodide")


def pack(file: Path) -> None:
    """What a page needs of the package, as one file that is the same in each build."""
    root = ROOT / "manygpu"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for pattern in MODULES:
            for module in sorted(root.glob(pattern)):
                name = module.relative_to(ROOT).as_posix()
                info = zipfile.ZipInfo(name)  # a day long past: no build is dated
                info.compress_type = zipfile.ZIP_DEFLATED
                packed.writestr(info, module.read_bytes())


def setup(app) -> None:
    """Add the directives, and what their pages ask for."""
    app.add_directive("puzzle", PuzzlePiece)
    app.add_directive("puzzle-python", PuzzlePython)
    app.add_directive("puzzle-hall", PuzzleHall)
    app.connect("html-page-context", give_script, priority=AFTER_THE_BUNDLE)
    app.connect("build-finished", put_python, priority=AFTER_THE_BUNDLE)
