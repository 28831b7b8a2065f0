"""The foot of each chapter: run it, cite it, report a mistake, slides, print, licence.

What has an address gets a link: the repository and Colab (`make address`), slides
(`slides_url` in _config.yml). Where there is none, a sentence says what to do instead.
The citation is that of CITATION.cff, with the chapter's number and name. Both that file
and the licence lie beside the pages.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import yaml
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from workshop.pages import ROOT

CITATION, LICENCE = ROOT / "CITATION.cff", ROOT / "LICENSE"
FILES = {CITATION: "CITATION.cff", LICENCE: "LICENSE.txt"}
AFTER_THE_BUTTONS = 945


def citation() -> dict:
    """What CITATION.cff says."""
    return yaml.safe_load(CITATION.read_text(encoding="utf-8"))


def bibtex(
    cited: Mapping, year: str, chapter: str = "", name: str = "", url: str = ""
) -> str:
    """Return a citation of the book, or of one chapter, for LaTeX.

    Args:
        cited: what CITATION.cff says.
        year: of the edition.
        chapter: its number and title, such as "Chapter 4.3: Pipeline".
        name: of its file, so that two chapters can be cited side by side.
        url: of the chapter; without one, the book's, if it has any.
    """
    fields = {
        "title": f"{{{cited['title']}}}",
        "author": " and ".join(map(author, cited["authors"])),
        "year": year,
        "version": cited["version"],
        "note": chapter,
        "url": url or cited.get("url", ""),
    }
    said = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
    key = "-".join(filter(None, [f"manygpu{year}", name]))
    return "\n".join([f"@misc{{{key},", *said, "}"])


def author(named: Mapping) -> str:
    """One author as BibTeX wants it: an organisation's name in braces of its own."""
    if "name" in named:
        return f"{{{named['name']}}}"
    return f"{named['family-names']}, {named['given-names']}"


def links_of(buttons: list[dict]) -> Iterator[dict]:
    """The buttons above a page that lead somewhere, also those in menus."""
    for button in buttons:
        yield from links_of(button.get("buttons", []))
        if button.get("url"):
            yield button


def report_url(repository: str, page: str) -> str:
    """Where a mistake on a page is reported; "" if the book has no repository."""
    title = quote(f"Mistake on {page}")
    return f"{repository}/issues/new?title={title}" if repository else ""


def add_foot(app, pagename, templatename, context, doctree) -> None:
    """Give a chapter what its foot says."""
    chapter = app.env.chapters.get(pagename)
    if app.builder.format != "html" or not chapter:
        return
    config, options = app.config, app.config.html_theme_options
    launchers = {b.get("text"): b for b in links_of(context.get("header_buttons", []))}
    base, slides = config.html_baseurl, config.slides_url
    address = f"{base}{app.builder.get_target_uri(pagename)}" if base else ""
    name = pagename.rpartition("/")[2]
    context["foot"] = {
        "name": name,
        "is_notebook": context.get("page_source_suffix", "").endswith(".ipynb"),
        "colab": launchers.get("Colab", {}).get("url", ""),
        "report": report_url(options.get("repository_url", ""), pagename),
        "slides": f"{slides.rstrip('/')}/{name}.html" if slides else "",
        "bibtex": bibtex(
            citation(),
            config.copyright,
            f"Chapter {chapter.number}: {chapter.title}",
            name,
            address,
        ),
    }


class BookCitation(SphinxDirective):
    """{book-citation}: takes nothing."""

    def run(self) -> list[nodes.Node]:
        """The book's own entry, as code."""
        text = bibtex(citation(), self.config.copyright)
        return [nodes.literal_block(text, text, language="text")]


def put_files(app, failed: Exception | None) -> None:
    """Copy the citation and the licence beside the pages."""
    if not failed and app.builder.format == "html":
        for file, name in FILES.items():
            shutil.copyfile(file, Path(app.outdir) / name)


def setup(app) -> None:
    """Run on each page once its buttons are there, and at the end."""
    app.add_directive("book-citation", BookCitation)
    app.add_config_value("slides_url", "", "html")
    app.connect("html-page-context", add_foot, priority=AFTER_THE_BUTTONS)
    app.connect("build-finished", put_files)
