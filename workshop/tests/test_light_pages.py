"""What makes pages light: lean figures, plain code, joined styles, fewer tags."""

from __future__ import annotations

import html
import re
import xml.etree.ElementTree as ET

import pytest
from pygments import highlight
from pygments.lexers import PythonLexer

from workshop.extensions import bundle, markup
from workshop.extensions import lean_figures as figures

BOX = "M {0} 10 \nL {1} 10 \nL {1} 20 \nL {0} 20 \nz\n"
BLUE = "fill: #0072b2; stroke: #0072b2; stroke-width: 0.8"
RED = "fill: #d55e00"
LETTER = "font-size: 10px; font-family: 'DejaVu Sans', sans-serif; text-anchor: middle"


def drawing(*inside: str) -> str:
    """A figure as Matplotlib writes it."""
    return (
        '<svg role="img" style="width:100%" xmlns:xlink="http://www.w3.org/1999/xlink"'
        ' viewBox="0 0 100 50" xmlns="http://www.w3.org/2000/svg" version="1.1">'
        f'<defs><style type="text/css">{figures.JOIN}</style></defs>'
        f"<g>{''.join(f'<g>{part}</g>' for part in inside)}</g></svg>"
    )


def box(left: float, right: float, style: str = BLUE) -> str:
    return f'<path d="{BOX.format(left, right)}" style="{style}"/>'


def letter(text: str, x: float) -> str:
    turned = f'transform="rotate(-0 {x} 17.12)"'
    return f'<text style="{LETTER}" x="{x}" y="17.123456" {turned}>{text}</text>'


def tags(svg: str) -> list[str]:
    return [element.tag for element in ET.fromstring(svg).iter()][1:]


def test_paths_of_one_style_become_one():
    svg = figures.lean(drawing(box(0, 10), box(10, 20), box(30.126, 40)))
    assert tags(svg) == ["path"]
    assert "M0 10L10 10L10 20L0 20zM10 10" in svg
    assert "M30.13 10" in svg


def test_what_lies_between_two_paths_stays_between_them():
    covering = box(5, 35, RED)
    svg = figures.lean(drawing(box(0, 10), covering, box(30, 40)))
    fills = re.findall('style="(fill: .*?)[;"]', svg)
    assert fills == ["fill: #0072b2", "fill: #d55e00", "fill: #0072b2"]


def test_shapes_that_shine_through_each_other_stay_apart():
    pale = f"{BLUE}; fill-opacity: 0.3"
    assert len(tags(figures.lean(drawing(box(0, 10, pale), box(5, 20, pale))))) == 2
    assert len(tags(figures.lean(drawing(box(0, 10, pale), box(10, 20, pale))))) == 1
    three = drawing(box(0, 10, pale), box(10, 20, pale), box(12, 18, pale))
    assert len(tags(figures.lean(three))) == 2


def test_ticks_become_one_path_where_they_are_used():
    tick = '<defs><path id="m1" d="M 0 0 \nL 0 3.5" style="stroke: red"/></defs>'
    use = '<g><use xlink:href="#m1" x="{}" y="20" style="fill: red"/></g>'
    svg = figures.lean(drawing(tick + use.format(5), use.format(50)))
    assert tags(svg) == ["path"]
    assert 'd="M5 20L5 23.5M50 20L50 23.5"' in svg
    assert 'style="fill: red; stroke: red"' in svg


def test_what_cannot_be_seen_goes_and_what_clips_stays():
    corner = '<rect x="0" y="0" width="9" height="9"/>'
    clip = f'<defs><clipPath id="c">{corner}</clipPath></defs>'
    clipped = box(0, 10).replace("/>", ' clip-path="url(#c)"/>')
    svg = figures.lean(drawing(box(0, 50, "fill: none"), clipped, clip))
    assert tags(svg) == ["defs", "clipPath", "rect", "path"]
    assert 'clip-path="url(#c)"' in svg


def test_letters_in_a_row_share_a_text_and_words_keep_theirs():
    svg = figures.lean(drawing(letter("0", 5), letter("1", 15), letter("ten", 25)))
    texts = [(t.text, t.get("x"), t.get("y")) for t in ET.fromstring(svg).iter("text")]
    assert texts == [("01", "5 15", "17.12 17.12"), ("ten", "25", "17.12")]
    assert svg.count("DejaVu Sans") == 1 and "rotate" not in svg


def test_the_commonest_font_is_said_once_and_a_longer_name_stays():
    long, short = "'A', serif", "'A'"
    text = '<text style="font-size: 9px; font-family: {}; fill: red">x</text>'
    svg = figures.lean(drawing(*(text.format(name) for name in (long, short, short))))
    assert [t.get("style") for t in ET.fromstring(svg).iter("text")] == [
        f"font-size: 9px; font-family: {long}; fill: red",
        *["font-size: 9px; fill: red"] * 2,
    ]
    assert ET.fromstring(svg).get("style").count(f"font-family: {short};") == 1


def test_a_flipped_picture_is_clipped_where_the_drawing_says():
    clip = '<defs><clipPath id="c"><rect width="9" height="9"/></clipPath></defs>'
    image = '<image transform="scale(1 -1) translate(0 -9)" href="data:,"/>'
    svg = figures.lean(drawing(f'<g clip-path="url(#c)">{image}</g>{clip}'))
    assert re.search(r'<g clip-path="url\(#c\)"><image [^>]*transform', svg)


def test_a_drawing_of_another_hand_is_left_alone():
    other = "<svg><g><path d='M0 0'></g></svg>"
    assert figures.lean(other) == other


def test_both_drawings_of_a_figure_are_lean_and_the_narrow_one_is_on_the_page():
    wide, small = drawing(box(0, 10), box(10, 20)), drawing(box(0, 5), box(5, 9))
    both = f' data-name="a">{wide}<template>{small}</template>'
    assert figures.for_the_page(both) == (
        f' data-name="a">{figures.lean(wide)}<div class="narrow">'
        f"{figures.lean(small)}</div>"
    )


CODE = '''# Why so.
def step(x: int) -> str:
    """Say 𝔵 < x."""
    return f"𝔵{x + 1}" if x not in y else None
'''


def block(code: str) -> tuple[str, list[str]]:
    """A block's text with its landmarks, and its inks with what they paint."""
    page = highlight(code, PythonLexer(), markup.InkFormatter())
    frame = r'<div class="highlight"><pre(?: data-inks="(.*)")?>\n(.*)</pre></div>\n'
    inks, text = re.fullmatch(frame, page, re.S).groups(default="")
    # A browser counts in UTF-16.
    units = html.unescape(re.sub(r"<[^>]+>", "", text)).encode("utf-16-le")
    found, end = [], 0
    for word in inks.split():
        gap, size = map(int, word[1:].split("."))
        start, end = end + gap, end + gap + size
        found.append(f"{word[0]} {units[2 * start : 2 * end].decode('utf-16-le')}")
    return text, found


def test_code_is_plain_text_with_landmarks_and_inks_say_where_each_colour_is():
    text, inks = block(CODE)
    assert re.findall(r'<span class="(\w+)">(.*?)</span>', text, re.S) == [
        ("c", "# Why so."),
        ("nf", "step"),
        ("sd", '"""Say 𝔵 &lt; x."""'),
    ]
    assert inks == [
        *("k def", "n int", "n str", "k return", 's f"𝔵{', "n 1", 's }"'),
        *("k if", "k not", "k in", "k else", "k None"),
    ]
    assert html.unescape(re.sub(r"<[^>]+>", "", text)) == CODE
    assert block("x\n") == ("x\n", [])  # nor has it an attribute


SHEET = """@charset "utf-8";
.used, .unused > .used, a[href$=".unused"] { color: red }
.unused::before { content: "}.used{" }
@media (width > 9px) { .unused { x: 1 } .used:not(.unused) { fill: url(data:a;b{c}) } }
@media print { .unused { x: 1 } }
@font-face { font-family: "Font Awesome 6"; src: url(fa.woff2) }
@keyframes turn { to { rotate: 1turn } }"""


def test_rules_that_match_nothing_are_left_out():
    css = bundle.purged(SHEET, {"used"})
    assert css.splitlines() == [
        '@charset "utf-8";',
        '.used,a[href$=".unused"]{color: red}',
        "@media (width > 9px){.used:not(.unused){fill: url(data:a;b{c})}}",
        "@keyframes turn { to { rotate: 1turn } }",
    ]


def test_classes_of_pages_and_of_scripts_are_known():
    page = '<p class="a b fa-x" id="c"></p><script>x.classList.add("d")</script>'
    known = bundle.words_of([page], ['add("e-f")'])
    assert {"a", "b", "c", "d", "e-f"} <= known and "fa-x" not in known


def test_a_style_stands_where_it_was_imported(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "basic.css").write_text("b{}", encoding="utf-8")
    sheet = tmp_path / "in" / "theme.css"
    sheet.write_text('@import "../basic.css";a{}', encoding="utf-8")
    assert bundle.with_imports(sheet) == "b{}a{}"


def test_a_colon_needs_no_element():
    before = '<dt class="field-odd">Returns<span class="colon">:</span></dt>'
    assert markup.plain(before) == '<dt class="field-odd">Returns:</dt>'


def test_words_and_signatures_need_no_elements():
    code = '<code><span class="pre">a</span> <span class="pre">b</span></code>'
    assert markup.plain(code) == "<code>a b</code>"
    signature = (
        '<dt class="sig py" id="f"><span class="sig-name descname">'
        '<span class="pre">f</span></span><span class="sig-paren">(</span>'
        '<em class="sig-param"><span class="n"><span class="pre">x</span></span></em>'
        '<span class="sig-paren">)</span></dt>'
    )
    assert markup.plain(signature) == (
        '<dt class="sig py" id="f"><span class="sig-name descname">f</span>('
        '<em class="sig-param">x)</em></dt>'
    )


@pytest.mark.parametrize(
    ("module", "name", "after"),
    [
        ("a.b.", "f", "a.b."),
        ("manygpu.checks.", "check_one_each", "manygpu.checks.<wbr/>"),
        (
            "manygpu.scratch.beyond.step.",
            "f",
            "manygpu.scratch.beyond.<wbr/>step.<wbr/>",
        ),
    ],
)
def test_a_long_signature_breaks_at_dots_and_between_arguments(module, name, after):
    before = '<dt class="sig py"><span class="sig-prename descclassname">'
    between = '</span><span class="sig-name descname">'
    arguments = '(<em class="sig-param">x</em>, <em class="sig-param">y</em>)</dt>'
    moved = '(<em class="sig-param">x,</em> <em class="sig-param">y)</em></dt>'
    assert markup.plain(before + module + between + name + "</span>" + arguments) == (
        before + after + between + name + "</span>" + moved
    )


CITED = '<div class="citation" id="a"'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('<th class="head"><p></p></th>', "<td></td>"),
        ('<th scope="col"></th>', "<td></td>"),
        ("<th><p>x</p></th>", "<th><p>x</p></th>"),
        ("<thead></thead>", "<thead></thead>"),
        (f'{CITED} role="doc-biblioentry">', f"{CITED}>"),
    ],
)
def test_roles_that_say_nothing_go(before, after):
    assert markup.plain(before) == after
