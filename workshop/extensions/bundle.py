"""Give each page one stylesheet and one script, with nothing in them that no page uses.

Once all pages are there, the rules whose classes stand on no page are left out, and the
rest is joined. icons.css has those of Font Awesome's icons that are used. What one page
needs (search, results) is loaded by that page alone, the formulas' font only where a
formula is, and Bootstrap when somebody moves: see widgets-later.js.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

import tinycss2
from tinycss2.ast import Node

STYLES, SCRIPTS = "bundle.css", "bundle.js"
MATH = "book-math.css"
# The theme's own, which its templates name; those of extensions follow.
THEME_STYLES = ("styles/theme.css", "styles/pydata-sphinx-theme.css")
THEME_SCRIPTS = ("scripts/pydata-sphinx-theme.js",)
OF_ONE_PAGE = ("searchtools.js", "search-results.js", "results.js")  # it asks for them
BOOTSTRAP = "scripts/bootstrap.js"  # widgets-later.js does; few words are needed
NEEDED = re.compile(r"\b(?:show|showing|hiding|fade|collaps\w*|(?:bs-)?tooltip[\w-]*)")
# No page needs them: there are no toggles, no tabs, and no server for live cells.
IDLE = ("togglebutton.js", "togglebutton.css", "design-tabs.js")
IDLE += ("sphinx-thebe.js", "sphinx-thebe.css")
ICONS = "icons.css"
FONT_AWESOME = re.compile(r"fa[srb]?(-.+)?")
WORD = re.compile(r"-?[A-Za-z_][\w-]*")
NESTED = ("media", "supports", "container", "layer")  # rules that hold rules
IMPORT = re.compile(r"@import (?:url\()?[\"']?([\w./-]+)[\"']?\)?;")
ATTRIBUTE = re.compile(r'\b(?:class|id)="([^"]*)"')
COMMENT = re.compile(r"/\*(?!!).*?\*/", re.S)
AFTER_THE_THEME = 950


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


def words_of(pages: list[str], scripts: Iterable[str]) -> set[str]:
    """The classes of all pages, and those that a script may add, but no icon's."""
    text = "".join(pages)
    known = set(" ".join(ATTRIBUTE.findall(text)).split())
    for script in [*scripts, *re.findall(r"<script>(.*?)</script>", text, re.S)]:
        known |= set(WORD.findall(script))
    return {word for word in known if not FONT_AWESOME.fullmatch(word)}


def names(files) -> list[str]:
    """The files of ours that a page of Sphinx asks for, in their order."""
    found = [str(f.filename) for f in files if f.filename]
    ours = [f for f in found if "://" not in f]  # nothing of a network
    return [f.partition("?")[0].removeprefix("_static/") for f in ours]


def lighten(app, pagename, templatename, context, doctree) -> None:
    """Let a page ask for the bundle, and for the font if it has a formula."""
    if app.builder.format != "html":
        return
    styles = [STYLES, *([MATH] if "<math" in context.get("body", "") else [])]
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

    def read(*names: str) -> list[str]:
        return [(static / name).read_text(encoding="utf-8") for name in names]

    scripts = dict.fromkeys([*names(app.builder._js_files), *THEME_SCRIPTS])
    code = read(*(n for n in scripts if n not in (*IDLE, *OF_ONE_PAGE)))
    pages = static.parent.rglob("*.html")
    texts = [p.read_text(encoding="utf-8") for p in pages if static not in p.parents]
    of_bootstrap = " ".join(NEEDED.findall(*read(BOOTSTRAP)))
    known = words_of(texts, [*code, *read(*OF_ONE_PAGE), of_bootstrap])
    css = {}
    for name in [*THEME_STYLES, *names(app.builder._css_files)]:
        css[name] = COMMENT.sub("", with_imports(static / name))
    sheets = {n: css[n] if n == ICONS else purged(css[n], known) for n in css}
    joined = "\n".join(sheets[n] for n in sheets if n not in (MATH, *IDLE))
    (static / STYLES).write_text(joined, encoding="utf-8")
    joined = "\n;\n".join(re.sub(r"//# sourceMapp\S*", "", script) for script in code)
    (static / SCRIPTS).write_text(joined, encoding="utf-8")


def with_imports(sheet: Path) -> str:
    """A stylesheet with those that it imports in their place."""

    def imported(found: re.Match) -> str:
        return (sheet.parent / found[1]).read_text(encoding="utf-8")

    return IMPORT.sub(imported, sheet.read_text(encoding="utf-8"))


def use_templates(app, config) -> None:
    """Let the book's templates come before the theme's."""
    config.templates_path.insert(0, str(Path(__file__).parent / "templates"))


def setup(app) -> None:
    """Run on each page once all others have added to it, and at the end."""
    app.connect("config-inited", use_templates)
    app.connect("html-page-context", lighten, priority=AFTER_THE_THEME)
    app.connect("build-finished", put_bundles, priority=AFTER_THE_THEME)
