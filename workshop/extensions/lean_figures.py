"""Write each drawn figure with a fraction of its elements and bytes; it looks the same.

Matplotlib puts every line, tick and box into groups of its own, with a style, a font
and six decimals each. Here paths of one style become one path, unless another path
between them would come to lie above or below it; ticks become lines, groups go, and
numbers keep two decimals. Texts stay texts, to be searched, copied and read aloud.
A narrow drawing waits in a template for a phone (static/book.css).
"""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass, field

from docutils import nodes
from sphinx.transforms import SphinxTransform

FIGURE = re.compile(r'(?<=<figure class="manygpu-figure").*?(?=</figure>)', re.S)
DRAWING = re.compile(r"<svg.*?</svg>", re.S)
UNNEEDED = re.compile(  # names of spaces, and turns by nothing
    r'\sxmlns(:xlink)?="[^"]*"|(?<=\s)xlink:(?=href)'
    r'| transform="rotate\(-?0( [-\d.]+)*\)"'
)
JOIN = "*{stroke-linejoin: round; stroke-linecap: butt}"  # for the whole page, as is
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
AFTER_CAPTIONS = 871
EDGE = 0.25  # boxes may share an edge: what is this near to it doesn't count

Box = tuple[float, float, float, float]
EVERYWHERE = (-math.inf, -math.inf, math.inf, math.inf)


@dataclass
class Part:
    """Something that is drawn: paths of one style, or an element as it is."""

    element: ET.Element
    boxes: list[Box]  # left, top, right, bottom of each path; a text lies in none
    style: str = ""
    clip: str = ""
    lines: list[str] = field(default_factory=list)  # what a path draws

    def covers(self, box: Box) -> bool:
        """Whether any of it overlaps a box."""
        return any(overlap(mine, box) for mine in self.boxes)


def overlap(a: Box, b: Box) -> bool:
    """Whether two boxes have more than an edge in common; a line has no inside."""
    across = min(a[2], b[2]) >= max(a[0], b[0])
    return across and min(a[3], b[3]) >= max(a[1], b[1])


def inside(low: float, high: float) -> tuple[float, float]:
    """A stretch without its edges."""
    edge = EDGE if high - low > 2 * EDGE else 0
    return low + edge, high - edge


def lean(svg: str) -> str:
    """The same drawing with fewer elements; as it is, if Matplotlib didn't make it."""
    if JOIN not in svg:
        return svg
    svg = UNNEEDED.sub("", svg)
    root = ET.fromstring(svg)
    shapes = {e.get("id"): e for d in root.iter("defs") for e in d if e.tag == "path"}
    clips = [clip for d in root.iter("defs") for clip in d if clip.tag == "clipPath"]
    parts: list[Part] = []
    for element, clip in flat(root, ""):
        add(parts, element, clip, shapes)
    body = "".join(write(part) for part in with_letters_joined(parts))
    used = {part.clip for part in parts} | set(re.findall(r"url\(#.*?\)", body))
    clips = [clip for clip in clips if f"url(#{clip.get('id')})" in used]
    defs = f"<defs>{''.join(map(text_of, clips))}</defs>" if clips else ""
    said = "stroke-linejoin: round;"
    fonts = Counter(re.findall(r" font-family: [^;\"]+;", body))
    for font, _ in fonts.most_common(1):  # what most texts have is said once
        said, body = said + font, body.replace(font, "")
    opening = re.match(r"<svg[^>]*>", svg).group()
    opening = opening.replace('style="', f'style="{said} ', 1)
    return f"{opening}{defs}{body}</svg>"


def flat(group: ET.Element, clip: str) -> list[tuple[ET.Element, str]]:
    """What a group draws, in order, with what clips it; groups that say more stay."""
    found = []
    for child in group:
        inside = child.get("clip-path", clip)
        if child.tag == "g" and set(child.attrib) <= {"clip-path", "id"}:
            found += flat(child, inside)
        elif child.tag != "defs":
            found.append((child, inside))
    return found


def add(parts: list[Part], element: ET.Element, clip: str, shapes: dict) -> None:
    """Draw an element: as a part of an earlier one of its style, or by itself."""
    if element.tag not in ("path", "use"):
        anywhere = [] if element.tag == "text" else [EVERYWHERE]
        parts.append(Part(element, anywhere, clip=clip))
        return
    style, line = element.get("style", ""), element.get("d", "")
    shift = (0.0, 0.0)
    if element.tag == "use":
        shape = shapes[element.get("href").removeprefix("#")]
        style, line = both(style, shape.get("style", "")), shape.get("d")
        shift = float(element.get("x", 0)), float(element.get("y", 0))
    line, box = drawn(line, shift)
    if not line or re.fullmatch(r"fill: none;?", style.strip()):
        return  # nothing to be seen
    extra = set(element.attrib) - {"d", "style", "clip-path", "href", "x", "y", "id"}
    may_cross = "opacity" not in style and "fill: none" in style
    for part in reversed(parts):
        same = not extra and (part.style, part.clip) == (style, clip) and part.lines
        if same and (may_cross or not part.covers(box)):
            part.lines.append(line)
            part.boxes.append(box)
            return
        if part.covers(box):
            break
    parts.append(Part(element, [box], style, clip, [] if extra else [line]))


def both(style: str, shape: str) -> str:
    """The style of a shape that is used: its own, else that of its use."""
    own = [rule.split(":")[0].strip() for rule in shape.split(";")]
    outer = [r.strip() for r in style.split(";") if r.split(":")[0].strip() not in own]
    return "; ".join(filter(None, [*outer, shape]))


def drawn(line: str, shift: tuple[float, float]) -> tuple[str, Box]:
    """A path moved, with short numbers, and the box around its points."""
    places: tuple[list[float], list[float]] = ([], [])

    def moved(found: re.Match) -> str:
        axis = (len(places[0]) + len(places[1])) % 2
        places[axis].append(float(found.group()) + shift[axis])
        return short(places[axis][-1])

    text = " ".join(NUMBER.sub(moved, line).split())
    text = re.sub(r"\s*([MLQCz])\s*", r"\1", text)
    if not places[1]:
        return "", (0, 0, 0, 0)
    (left, right), (top, bottom) = (inside(min(p), max(p)) for p in places)
    return text, (left, top, right, bottom)


def short(number: float) -> str:
    """A number with two decimals at most: a hundredth of a point can't be seen."""
    return f"{round(number, 2):g}"


def with_letters_joined(parts: list[Part]) -> list[Part]:
    """Texts of one letter in a row, such as a schedule's numbers, as one text."""
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else part
        mine, its = part.element, last.element
        alike = mine.get("style") == its.get("style") and part.clip == last.clip
        if part is not last and alike and has_places(mine) and has_places(its):
            its.text += mine.text
            for name in ("x", "y"):
                its.set(name, f"{its.get(name)} {mine.get(name)}")
        else:
            joined.append(part)
    return joined


def has_places(element: ET.Element) -> bool:
    """Whether an element is a text each of whose letters has a place of its own."""
    places = element.get("x", "").split()
    is_plain = element.tag == "text" and "transform" not in element.attrib
    return is_plain and len(places) == len((element.text or "").strip()) > 0


def write(part: Part) -> str:
    """A part of the drawing as SVG."""
    element = part.element
    if part.lines:
        element = ET.Element("path", {"d": "".join(part.lines), "style": part.style})
    for name in {"x", "y"} & set(element.attrib):
        places = map(float, element.get(name).split())
        element.set(name, " ".join(map(short, places)))
    if part.clip and "transform" in element.attrib:
        # A clip counts in the coordinates of what it is written on: of a flipped
        # picture, say. Those of the drawing are the group's around it.
        return f'<g clip-path="{part.clip}">{text_of(element)}</g>'
    if part.clip:
        element.set("clip-path", part.clip)
    return text_of(element)


def text_of(element: ET.Element) -> str:
    """An element as text, without what stands after it."""
    element.tail = None
    return re.sub(r">\s+<", "><", ET.tostring(element, encoding="unicode")).strip()


def for_the_page(figure: str) -> str:
    """A figure's lean drawings; that for a phone is no template any more."""
    figure = DRAWING.sub(lambda m: lean(m[0]), figure)
    figure = figure.replace("<template>", '<div class="narrow">')
    return figure.replace("</template>", "</div>")


class LeanFigures(SphinxTransform):
    """Make the figures of a page lean as it is read."""

    default_priority = AFTER_CAPTIONS

    def apply(self, **_: object) -> None:
        """Replace each drawing by its lean one."""
        for raw in list(self.document.findall(nodes.raw)):
            text = raw.astext()
            if raw["format"] == "html" and JOIN in text:
                text = FIGURE.sub(lambda m: for_the_page(m[0]), text)
                raw.children, raw.rawsource = [nodes.Text(text)], text


def setup(app) -> None:
    """Run on each page as it is read."""
    app.add_transform(LeanFigures)
