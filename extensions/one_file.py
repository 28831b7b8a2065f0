"""Let each page's download button give the file that runs alone, and add Kaggle.

Sphinx copies a page's notebook to where that button leads. Once all pages are written,
the file that carries what the chapter imports (tools/standalone.py) takes its place.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from sphinx.errors import ExtensionError

TOOL = Path("tools") / "standalone.py"
TOOLTIP = "Download this page as one notebook that runs anywhere"
AFTER_THE_THEME = 900


def book_root(source: Path) -> Path:
    """The repository, though the pages may be rendered from a copy of them.

    It is where MANYGPU_ROOT says, else the folder of the pages or the one above, else
    where the package is installed from.
    """
    given, found = os.environ.get("MANYGPU_ROOT"), importlib.util.find_spec("manygpu")
    places = [Path(given)] if given else [source, source.parent]
    places += [Path(found.origin).parent.parent] if found and found.origin else []
    for place in places:
        if (place / TOOL).is_file():
            return place.resolve()
    raise ExtensionError(
        f"the download buttons need {TOOL.as_posix()}, which is not below {source}: "
        "set MANYGPU_ROOT to the folder of the book's repository"
    )


def load_tool(root: Path) -> ModuleType:
    """tools/standalone.py of that repository, whatever else is called tools."""
    name = "manygpu_standalone"
    spec = importlib.util.spec_from_file_location(name, root / TOOL)
    tool = importlib.util.module_from_spec(spec)
    sys.modules[name] = tool  # dataclasses look their module up
    if str(root) not in sys.path:
        sys.path.append(str(root))  # for the tools that it imports itself
    spec.loader.exec_module(tool)
    return tool


def put_files(app, failed: Exception | None) -> None:
    """Write each notebook's file to where its page's download button leads."""
    if failed or app.builder.format != "html":
        return
    source = Path(app.srcdir)
    pages = [Path(app.env.doc2path(name)) for name in sorted(app.env.found_docs)]
    pages = [page for page in pages if page.suffix == ".ipynb"]
    if not pages:
        return
    root = book_root(source)
    tool = load_tool(root)
    for page in pages:
        place = page.relative_to(source)
        text = tool.text_of(tool.standalone(page, place.as_posix(), root))
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
    return [
        {
            "type": "link",
            "text": "Kaggle",
            "tooltip": "Launch on Kaggle",
            "icon": "fab fa-kaggle",
            "url": f"{start}?src={notebook}",
        }
    ]


def setup(app) -> dict:
    """Run on each page once the theme has made its buttons, and at the end."""
    app.connect("html-page-context", mend_buttons, priority=AFTER_THE_THEME)
    app.connect("build-finished", put_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
