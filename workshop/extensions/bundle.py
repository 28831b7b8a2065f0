"""Give each page one stylesheet and one script, with nothing in them that no page uses.

The theme and the extensions bring a dozen stylesheets and as many scripts, made for all
books that could be written with them. Once all pages are there, the rules whose classes
stand on no page are left out, and the rest is joined. The theme's icons come from
Font Awesome, whose script has two thousand of them; icons.css has those that are used.
Search is loaded by its own page alone, the formulas' font only where a formula is, and
Bootstrap when somebody moves: see widgets-later.js.
"""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

import tinycss2
from sphinx.util import logging
from tinycss2.ast import Node

STYLES, SCRIPTS = "bundle.css", "bundle.js"
MATH = "book-math.css"
# The theme's own, which its templates name; those of extensions follow.
THEME_STYLES = ("styles/theme.css", "styles/pydata-sphinx-theme.css")
THEME_SCRIPTS = ("scripts/pydata-sphinx-theme.js",)  # widgets-later.js has the other
# Scripts that do nothing here, and what a page would have that needs one.
IDLE = {
    "togglebutton.js": re.compile(r'class="[^"]*\b(toggle|admonition dropdown)\b'),
    "design-tabs.js": re.compile(r'class="[^"]*\bsd-tab-set\b'),
}
# Not in the bundle: they are asked for by search.html, and by widgets-later.js.
LATER = ("searchtools.js", "search-results.js", "scripts/bootstrap.js")
WHOLE = ("icons.css", "inks.css")  # theirs are classes that a script makes up
IDLE_STYLES = {"togglebutton.css"}
# Bootstrap knows many more widgets than pages have: of its words these are needed.
BOOTSTRAP = re.compile(
    r"(show|showing|hiding|fade|collaps\w*|tooltip\S*|bs-tooltip\S*)"
)
FONT_AWESOME = re.compile(r"fa[srb]?(-.+)?")
WORD = re.compile(r"-?[A-Za-z_][\w-]*")
NESTED = ("media", "supports", "container", "layer")  # rules that hold rules
IMPORT = re.compile(r"@import (?:url\()?[\"']?([\w./-]+)[\"']?\)?;")
ATTRIBUTE = re.compile(r'\b(?:class|id)="([^"]*)"')
COMMENT = re.compile(r"/\*(?!!).*?\*/", re.S)
AFTER_THE_THEME = 950

logger = logging.getLogger(__name__)


def purged(css: str | list[Node], known: set[str]) -> str:
    """A stylesheet without the selectors that have a class which isn't known."""
    rules = tinycss2.parse_rule_list(css, skip_whitespace=True)
    return "\n".join(filter(None, (kept_of(rule, known) for rule in rules)))


def kept_of(rule: Node, known: set[str]) -> str:
    """What is left of a rule, or of a comment; "" if nothing is."""
    if rule.type == "comment":  # a licence: the others are gone
        return rule.serialize()
    body = tinycss2.serialize(rule.content or []).strip()
    if rule.type == "qualified-rule":
        found = groupby(rule.prelude, lambda token: token == ",")
        selectors = [list(tokens) for is_comma, tokens in found if not is_comma]
        wanted = [s for s in selectors if may_match(s, known)]
        head = ",".join(tinycss2.serialize(s).strip() for s in wanted)
        return f"{head}{{{body}}}" if wanted else ""
    if rule.lower_at_keyword in NESTED:
        body = purged(rule.content, known)
        head = tinycss2.serialize(rule.prelude).strip()
        return f"@{rule.at_keyword} {head}{{{body}}}" if body else ""
    return "" if "Awesome" in body else rule.serialize()


def may_match(selector: list[Node], known: set[str]) -> bool:
    """Whether all classes that a selector asks for, outside brackets, are known."""
    pairs = zip(selector, selector[1:], strict=False)
    return all(name.value in known for dot, name in pairs if dot == ".")


def words_of(pages: list[str], scripts: dict[str, str]) -> set[str]:
    """The classes of all pages, and those that a script may add."""
    known = {
        name
        for page in pages
        for said in ATTRIBUTE.findall(page)
        for name in said.split()
    }
    for name, script in scripts.items():
        words = set(WORD.findall(script))
        if name.endswith("bootstrap.js"):
            words = {word for word in words if BOOTSTRAP.fullmatch(word)}
        known |= words
    inline = re.findall(r"<script>(.*?)</script>", "".join(pages), re.S)
    known |= {word for script in inline for word in WORD.findall(script)}
    return known


def names(files) -> list[str]:
    """The files of ours that a page of Sphinx asks for, in their order."""
    found = [str(f.filename) for f in files if f.filename]
    return [f.partition("?")[0].removeprefix("_static/") for f in found]


def lighten(app, pagename, templatename, context, doctree) -> None:
    """Let a page ask for the bundle, and for the font if it has a formula."""
    if app.builder.format != "html":
        return
    body = context.get("body", "")
    for script, needed in IDLE.items():
        if needed.search(body):
            logger.warning(
                "this page needs %s: see bundle.py", script, location=pagename
            )
    styles = [STYLES, *([MATH] if "<math" in body else [])]
    context["css_files"] = [f"_static/{name}" for name in styles]
    context["script_files"] = []
    context["bundle_script"] = f"_static/{SCRIPTS}"
    # Without scripts, nobody finds out what a reader's system prefers: pages are light.
    context["first_mode"], context["default_mode"] = context["default_mode"], "light"


def put_bundles(app, failed: Exception | None) -> None:
    """Join what the pages ask for, once all of it is there."""
    if failed or app.builder.format != "html":
        return
    static = Path(app.outdir) / "_static"
    styles = [*THEME_STYLES, *names(app.builder._css_files)]
    scripts = [*names(app.builder._js_files), *THEME_SCRIPTS]
    code = {
        name: (static / name).read_text(encoding="utf-8")
        for name in dict.fromkeys(scripts)
        if name not in IDLE and name not in LATER
    }
    pages = [
        p.read_text(encoding="utf-8")
        for p in Path(app.outdir).rglob("*.html")
        if "_static" not in p.parts
    ]
    later = {n: (static / n).read_text(encoding="utf-8") for n in LATER}
    known = words_of(pages, code | later)
    known -= {word for word in known if FONT_AWESOME.fullmatch(word)}
    sheets = []
    for name in dict.fromkeys(styles):
        if name in (MATH, *IDLE_STYLES):
            continue
        css = with_imports(static / name)
        css = COMMENT.sub("", css)
        sheets.append(css if name in WHOLE else purged(css, known))
    (static / STYLES).write_text("\n".join(sheets), encoding="utf-8")
    joined = "\n;\n".join(re.sub(r"//# sourceMapp\S*", "", s) for s in code.values())
    (static / SCRIPTS).write_text(joined, encoding="utf-8")


def with_imports(sheet: Path) -> str:
    """A stylesheet with those that it imports in their place."""

    def imported(found: re.Match) -> str:
        return (sheet.parent / found[1]).read_text(encoding="utf-8")

    return IMPORT.sub(imported, sheet.read_text(encoding="utf-8"))


def use_templates(app, config) -> None:
    """Let the book's templates come before the theme's."""
    config.templates_path.insert(0, str(Path(__file__).parent / "templates"))


def setup(app) -> dict:
    """Run on each page once all others have added to it, and at the end."""
    app.connect("config-inited", use_templates)
    app.connect("html-page-context", lighten, priority=AFTER_THE_THEME)
    app.connect("build-finished", put_bundles, priority=AFTER_THE_THEME)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
