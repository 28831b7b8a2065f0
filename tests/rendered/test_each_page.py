"""Every page of the rendered book, opened once in a real browser.

A page is opened from the disk, half of them on a dark screen; then the theme is
changed, the window made wide and as small as a phone's, and axe asked. Each promise
is a function that returns what breaks it, so that one visit names all that is wrong.
AXE=all in the environment asks axe in both themes and widths, not in one in turns.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import axe_playwright_python
import pytest

from tests.rendered.conftest import DESK, PHONE
from tests.rendered.test_pages import all_pages, pages
from workshop.pages import reading_order

WIDE = {"width": 1440, "height": 900}
MOST_BYTES, MOST_REQUESTS, MOST_NODES = 860_000, 15, 3_700
MOST_IN_THE_INDEX = 5_000  # nodes: a bare list of every name, without a drawing

AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"
# Two frames; a page that a browser takes for hidden gets none, and would wait for good.
FRAMES = """() => new Promise(done => {
    requestAnimationFrame(() => requestAnimationFrame(done));
    setTimeout(done, 2000);
})"""
STILL = "*, ::before, ::after { transition: none !important }"
RUN = """async (options) => (await axe.run("html", {
    resultTypes: ["violations"], preload: false, ...options,
})).violations.map(v => [v.id, v.nodes.length, v.nodes[0].html.slice(0, 200)])"""
# The contrast of letters is asked of two, at most, that look alike: in ink and size,
# in what is painted behind them from their parents on, and in what else lies there.
# The inks of code are few: see test_weight.py.
ALIKE = """() => {
    const INK = ["color", "fontSize", "fontWeight", "textShadow", "textIndent"];
    const GROUND = ["backgroundColor", "backgroundImage", "opacity", "filter", "clip",
        "mixBlendMode", "display", "visibility", "clipPath", "overflow", "position"];
    const numbers = new Map(), looks = new Map(), painted = [], seen = new Map();
    for (const e of document.querySelectorAll("*")) {
        const style = getComputedStyle(e), of = (names) => names.map(n => style[n]);
        const behind = [looks.get(e.parentElement)?.ground, ...of(GROUND)].join();
        const ground = numbers.get(behind) ?? numbers.size;
        numbers.set(behind, ground);
        looks.set(e, { ground, ink: of(INK) });
        if (!/, 0[)]$/.test(style.backgroundColor) || style.backgroundImage !== "none")
            painted.push([e, e.getBoundingClientRect(), ground]);
    }
    for (const [e, { ground, ink }] of looks) {
        if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
        const { left, right, top, bottom } = e.getBoundingClientRect();
        const others = painted.filter(([other, box]) => !other.contains(e)
            && box.left < right && box.right > left
            && box.top < bottom && box.bottom > top).map(([, , its]) => its);
        const isOff = !e.checkVisibility() || e.closest(":disabled, [aria-disabled]");
        const look = [!isOff, ground, ...ink, ...others].join();
        const count = (seen.get(look) ?? 0) + 1;
        seen.set(look, count);
        e.toggleAttribute("data-alike", count > 2);
    }
    const selector = ":not([data-alike], div.highlight pre *)";
    axe.configure({ rules: [{ id: "color-contrast", selector }] });
}"""
# Also a rule that axe calls experimental.
RULES = {"rules": {"label-content-name-mismatch": {"enabled": True}}}

# What waits for a guess: see test_guesses.py.
ALL = """() => [...document.querySelectorAll(".guess-waits, .guess-hides")].forEach(
    e => e.classList.remove("guess-waits", "guess-hides"))"""
FEET = """() => [...document.querySelectorAll(".math-block")].filter(
    e => e.scrollHeight > e.clientHeight).map(e => e.textContent)"""
# Tokens, for the browser tells the fonts of a node and its children, and no deeper.
MATH = "article math :is(mi, mn, mo, ms, mtext)"
TOKENS = """found => [...document.querySelectorAll(found)].map(
    e => [e.outerHTML, getComputedStyle(e).fontFamily])"""
ICONS = """() => [...document.querySelectorAll("[class*=fa-], button.copybtn")].map(e =>
    [e.className, getComputedStyle(e, "::before").maskImage])"""
LINES = """() => [...document.querySelectorAll(
    "div.cell_input pre, div.cell_output pre")].map(getComputedStyle).map(
    ({ lineHeight, fontSize }) => parseFloat(lineHeight) / parseFloat(fontSize))"""
# On a desk: blocks with a line past their edge, also of code that is folded away.
CUT = """() => {
    const folds = [...document.querySelectorAll("details:not([open])")];
    for (const fold of folds) fold.open = true;
    const boxes = document.querySelectorAll("div.highlight pre, div.cell_output pre");
    const cut = [...boxes].filter(e => e.scrollWidth > e.clientWidth).map(
        e => e.textContent.slice(0, 60));
    for (const fold of folds) fold.open = false;
    return cut;
}"""
FIGURES = """() => [...document.querySelectorAll("figure.manygpu-figure svg")].filter(
    svg => svg.checkVisibility() && svg.clientWidth).map(svg => {
    const { width, height } = svg.getBoundingClientRect();
    const ink = getComputedStyle(svg).color;
    return [svg.getAttribute("aria-label") || "", width, height, ink];
})"""
ON_A_PHONE = """() => [...document.querySelectorAll(".manygpu-figure:has(svg)")].map(
    figure => {
        const svg = [...figure.querySelectorAll("svg")].find(s => s.clientWidth);
        const scale = svg.clientWidth / svg.viewBox.baseVal.width;
        const sizes = [...svg.querySelectorAll("text")].map(
            text => scale * parseFloat(getComputedStyle(text).fontSize));
        const isNarrow = svg.parentElement.matches(".narrow");
        return [isNarrow, svg.clientWidth - figure.clientWidth, Math.min(99, ...sizes)];
    })"""


@pytest.fixture
def take(tabs) -> Iterator[Callable]:
    """Take a tab of the browser."""
    with tabs.lent() as take:
        yield take


@pytest.mark.parametrize("page", all_pages())
def test_a_page_keeps_what_every_page_promises(html_root, take, page):
    first, second = ["light", "dark"][:: 1 if all_pages().index(page) % 2 else -1]
    is_notebook = page in reading_order()
    heard = take(viewport=WIDE, color_scheme=first, reduced_motion="reduce")
    tab = heard.tab
    tab.goto((html_root / f"{page}.html").as_uri())
    tab.evaluate(ALL)
    wrong = [*code(tab, WIDE)] if is_notebook else []
    tab.set_viewport_size(DESK)
    wrong += head_and_icons(tab, page)
    wrong += [f"past the edge: {text!r}" for text in tab.evaluate(CUT)]
    for theme in (first, second):
        tab.emulate_media(color_scheme=theme)
        tab.evaluate(FRAMES)
        wrong += inks(tab, theme, is_notebook)
    wrong += code(tab, DESK) if is_notebook else []
    tab.wait_for_load_state("networkidle")  # half a second, most of which is over
    wrong += weight(tab, heard.asked, page)
    if is_notebook:
        wrong += set_up_cell(tab)  # a click, which may fetch more
    tab.set_viewport_size(PHONE)
    tab.evaluate(FRAMES)  # in which what draws itself is drawn for its new width
    wrong += phone(tab)
    wrong += axe(tab, page)
    tab.set_viewport_size(DESK)
    said = heard.errors + heard.failed  # before tools, which ask for styles in vain
    wrong += [*said, *formulas(tab)]
    assert wrong == []


def weight(tab, asked: list[str], page: str) -> Iterator[str]:
    """Nothing from a network, few files, few bytes, few elements."""
    yield from (
        f"fetches {url}" for url in asked if not url.startswith(("file:", "data:"))
    )
    files = [urlsplit(url) for url in asked if url.startswith("file:")]
    heavy = sum(Path(unquote(file.path)).stat().st_size for file in files)
    nodes = tab.evaluate("document.querySelectorAll('*').length")
    for what, found, most in (
        ("bytes", heavy, MOST_BYTES),
        ("files", len(asked), MOST_REQUESTS),
        ("elements", nodes, MOST_IN_THE_INDEX if page == "genindex" else MOST_NODES),
    ):
        if found > most:
            yield f"{found} {what}, at most {most}"


def head_and_icons(tab, page: str) -> Iterator[str]:
    """One title; each icon that the theme names is in icons.css."""
    titles = tab.locator("article h1").count()
    if page in pages() and titles != 1:
        yield f"{titles} titles"
    masks = tab.evaluate(ICONS)
    if page in pages() and len(masks) < 5:
        yield f"only {len(masks)} icons"
    for name, mask in masks:
        if not mask.startswith('url("data:'):
            yield f"no drawing for {name}"


def formulas(tab) -> Iterator[str]:
    """Each glyph is in the book's font, and no formula is cut at its foot."""
    yield from (f"cut at its foot: {text}" for text in tab.evaluate(FEET))
    tools = tab.context.new_cdp_session(tab)
    for domain in ("DOM", "CSS"):
        tools.send(f"{domain}.enable")
    root = tools.send("DOM.getDocument")["root"]["nodeId"]
    asked = {"nodeId": root, "selector": MATH}
    nodes = tools.send("DOM.querySelectorAll", asked)["nodeIds"]
    alike = dict(zip(map(tuple, tab.evaluate(TOKENS, MATH)), nodes, strict=True))
    for (text, _), node in alike.items():
        used = tools.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"]
        for font in {font["familyName"] for font in used} - {"Book Math"}:
            yield f"{font}: {re.sub(r'<[^>]*>', '', text)}"
    tools.detach()


def inks(tab, theme: str, has_figures: bool) -> Iterator[str]:
    """The page takes the theme, and each figure a text, a size and the page's ink."""
    if (shown := tab.evaluate("document.documentElement.dataset.theme")) != theme:
        yield f"{shown} on a {theme} screen"
    figures = tab.evaluate(FIGURES)
    if not has_figures:
        return
    if not figures:
        yield "no figure"
    ink = tab.evaluate("getComputedStyle(document.querySelector('article')).color")
    for text, width, height, its_ink in figures:
        if len(text.split()) < 4 or width <= 100 or height <= 30 or its_ink != ink:
            yield f"{theme}: figure {text!r} {width} x {height}, {its_ink} on {ink}"


def code(tab, size: dict[str, int]) -> Iterator[str]:
    """Half a line of room between lines, whatever the theme likes; wide, too."""
    if (least := min(tab.evaluate(LINES))) <= 1.45:
        yield f"{size['width']} px: lines of code are {least:.2f} high"


def set_up_cell(tab) -> Iterator[str]:
    """It is lower than a heading, says what it is, and opens on a click."""
    cell = tab.locator("div.cell.set-up")
    summary, hidden = cell.locator("summary"), cell.locator("pre")
    if not summary.inner_text().strip().startswith("Set-up: fetches the package"):
        yield f"set-up cell says {summary.inner_text()!r}"
    if summary.bounding_box()["height"] >= 40:
        yield f"set-up cell is {summary.bounding_box()['height']} px high"
    if cell.locator("details").evaluate("e => getComputedStyle(e).boxShadow") != "none":
        yield "set-up cell has a shadow"
    closed = not hidden.is_visible()
    summary.click()
    if not closed or not hidden.is_visible():
        yield "set-up cell doesn't open on a click"


def phone(tab) -> Iterator[str]:
    """At 390 px nothing scrolls the page sideways, and letters have eleven pixels.

    Mathematics has smaller exponents. Where the texts have no room, there is no narrow
    form: what has nine fields in a row is scrolled, and its letters have nine pixels.
    """
    wide = tab.evaluate("document.documentElement.scrollWidth")
    if wide > PHONE["width"]:
        yield f"{wide} px wide on a phone"
    for i, (is_narrow, beyond, letters) in enumerate(tab.evaluate(ON_A_PHONE)):
        if letters <= 8.9 or (is_narrow and (beyond > 0 or letters <= 10.9)):
            yield f"phone: figure {i} is {beyond} px over, letters {letters:.1f} px"


def axe(tab, page: str) -> Iterator[str]:
    """axe finds nothing, in one of both themes and widths or, if asked, in all."""
    settings = [(size, theme) for size in (PHONE, DESK) for theme in ("light", "dark")]
    if os.environ.get("AXE") != "all":
        settings = [settings[all_pages().index(page) % len(settings)]]
    tab.add_style_tag(content=STILL)
    tab.evaluate(AXE.read_text(encoding="utf-8"))
    for size, theme in settings:
        tab.set_viewport_size(size)
        tab.evaluate("name => document.documentElement.dataset.theme = name", theme)
        tab.evaluate(FRAMES)  # and axe looks at what was resized
        tab.evaluate(ALIKE)
        for found in tab.evaluate(RUN, RULES):
            yield f"axe, {size['width']} px, {theme}: {found}"
