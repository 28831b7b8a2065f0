"""Let each page's download button give the file that runs alone, and add Kaggle.

Sphinx copies a page's notebook to where that button leads. Once all pages are written,
the file that carries what the chapter imports (workshop/standalone.py) takes its place.
"""

from __future__ import annotations

from pathlib import Path

from workshop import standalone

TOOLTIP = "Download this page as one notebook that runs anywhere"
AFTER_THE_THEME = 900


def put_files(app, failed: Exception | None) -> None:
    """Write each notebook's file to where its page's download button leads."""
    if failed or app.builder.format != "html":
        return
    for name in sorted(app.env.found_docs):
        page = Path(app.env.doc2path(name))
        if page.suffix != ".ipynb":
            continue
        place = page.relative_to(app.srcdir)
        text = standalone.text_of(standalone.standalone(page, place.as_posix()))
        target = Path(app.outdir) / "_sources" / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


def mend_buttons(app, pagename, templatename, context, doctree) -> None:
    """Say what the download is, and put Kaggle beside Colab where there is a Colab."""
    if not context.get("page_source_suffix", "").endswith(".ipynb"):
        return
    for group in context.get("header_buttons", []):
        for button in group.get("buttons", []):
            if button.get("label") == "download-source-button":
                button["tooltip"] = TOOLTIP
        if group.get("label") == "launch-buttons":
            group["buttons"] += kaggle(app.config.html_theme_options, pagename)


def kaggle(options: dict, page: str) -> list[dict[str, str]]:
    """The button that opens a page's notebook on Kaggle; none without an address."""
    start = options.get("launch_buttons", {}).get("kaggle_url")
    repository = options.get("repository_url")
    if not (start and repository):
        return []
    branch = options.get("repository_branch") or "main"
    notebook = f"{repository}/blob/{branch}/{page}.ipynb"
    button = {"type": "link", "text": "Kaggle", "tooltip": "Launch on Kaggle"}
    return [button | {"icon": "fab fa-kaggle", "url": f"{start}?src={notebook}"}]


def setup(app) -> None:
    """Run on each page once the theme has made its buttons, and at the end."""
    app.connect("html-page-context", mend_buttons, priority=AFTER_THE_THEME)
    app.connect("build-finished", put_files)
