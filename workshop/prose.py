"""Where a page's English needs a second look: places, and counts per 1,000 words.

python -m workshop.prose          a row per page, then the whole book beside its goal
python -m workshop.prose PAGE     each place of one page, with its file and cell

A pattern only points. A place that it names may be fine, and most bad sentences it
can't see. docs/style.md says what the patterns are about.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import nbformat

from workshop.pages import ROOT

OUTSIDE = ("README.md", "CONTRIBUTING.md")  # beside the pages of book/
GENERATED = "api"  # pages of this beginning list names; they have no prose
NOUN = (
    "layer|device|rank|tensor|stage|message|sample|replica|worker|row|participant|"
    "process|parameter|micro-batch|group|node|machine|link|chunk|axis|tick|program|"
    "probe|page|chapter|exercise|colour"
)
# "bytes a device", "one message a layer"; and not "it holds a device", "one of a row".
COUNTED = (
    "bytes|bits|GB|MB|numbers|samples|images|rows|columns|tokens|messages|tensors|"
    "gradients|calls|steps|operations|FLOPs|seconds|milliseconds|ms|minutes|times|"
    "lines|cells|words|copies|threads|processes|tapes|all-reduces|buckets|entries|"
    "variables|micro-batches|shards|slots|ticks|batches|parameters|devices|layers|"
    "stages|activations|passes|values"
)
NO_NOUN = (
    "of|in|on|with|to|for|from|as|is|into|by|at|per|and|or|like|than|if|when|has|makes|"
    "holds|needs|gets|gives|takes|sends|that|but|through|within|after|before|between|"
    "over|was|are|be|not|only|behind|where|while|without|about|along|across|does|can"
)
# "a training step" is English, "a training" isn't.
TRAINING_OF = (
    "step|run|loop|set|data|script|job|image|batch|example|sample|loss|curve|process|"
    "code|time|and test"
)
# Short beginnings that docs/style.md asks for, or that any text may have.
LEAD = "In words|In other words|In numbers|In short|For example|For instance|Here"
SUSPICIOUS = {
    "headless relative": r"(?:^|[.!:] )\**(?:What|Who|Whoever|Whatever) "
    r"[^.?!\n]{3,90}[.;]",
    "nobody, somebody": r"(?i)\b(?:nobody|somebody|everybody|anybody)\b",
    "distributive a": rf"(?i)\b(?:(?:{COUNTED})|(?:one|two|three|four|a|an|each|\d+)"
    rf"(?: (?!(?:{NO_NOUN})\b)[\w-]+)?) an? (?:{NOUN})\b(?! of|'s)",
    "hold against": r"(?i)\b(?:hold|holds|held|holding)\b[^.]{0,40}\bagainst\b",
    "stands": r"(?i)\bstands?\b(?! for| in for| out)",
    "behind (after?)": r"(?i)\bbehind (?!the (?:scenes|bars))",
    "less (minus?)": r"`[^`]+` less `|\$ less \$|\bless the\b",
    "else (otherwise?)": r"(?:^|[.;,] )[Ee]lse\b(?! if)",
    "a training": r"(?i)\b(?:a|one|the|another|each|whole) training\b"
    rf"(?! (?:{TRAINING_OF}))",
    "way back, way there": r"(?i)\bway (?:back|there)\b",
    "so many, so long": r"(?i)\bso (?:many|much|long)\b(?! (?:that|as))",
    "mend": r"(?i)(?<!bug\.)\bmend(?:s|ed|ing)?\b",
    "another (different?)": r"(?i)\b(?:is|are|be|in|of|with|by|has) another\b",
    "off (error?)": r"(?i)\b(?:is|are|be|was|were|how far) off\b",
    "less than a clause": rf"(?:^|[.!?] )(?!(?:{LEAD})[.:])[A-Z][\w'`,-]*"
    r"(?: [\w'`,-]+){0,3}[.:](?= |$)",
}
PATTERNS = {kind: re.compile(found, re.M) for kind, found in SUSPICIOUS.items()}
OF_SENTENCES = "less than a clause"  # a caption may be less
CONNECTIVES = re.compile(
    r"(?i)\b(?:because|although|even though|whereas|therefore|however|for example|"
    r"for instance|in other words|which means|so that|that is why|this means|"
    r"as a result|instead)\b"
)
# What isn't sentences: code, formulas, directives, a head of YAML; tables, lists of
# options, labels and headings, a line each.
NO_PROSE = re.compile(r"```.*?```|\$\$.*?\$\$|^:::.*?$|\A---\n.*?\n---$", re.S | re.M)
NO_SENTENCE = re.compile(r"\s*(?:\||:\w|\(|#)")
SAID = {"alt", "caption"}  # how code names a text that the page shows
GOAL_SUSPICIOUS, GOAL_SEMICOLONS, GOAL_CONNECTIVES = 3, 1.5, 4  # per 1,000 words


@dataclass
class Count:
    """What was found in one page, or in several."""

    places: Counter = field(default_factory=Counter)  # by kind
    words: int = 0
    semicolons: int = 0
    connectives: int = 0
    sentences: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(*(getattr(self, n) + getattr(other, n) for n in vars(self)))

    def per_1000(self, number: int) -> float:
        """A number as a rate: per 1,000 words."""
        return 1000 * number / max(1, self.words)

    def __str__(self) -> str:
        places = self.per_1000(self.places.total())
        return (
            f"{self.words:6} words {places:5.1f} suspicious "
            f"{self.per_1000(self.semicolons):5.1f} semicolons "
            f"{self.per_1000(self.connectives):5.1f} connectives "
            f"{self.words / max(1, self.sentences):5.1f} words per sentence"
        )


def pages(root: Path = ROOT) -> list[Path]:
    """Every file with prose: the book's pages, README.md and CONTRIBUTING.md."""
    found = [p for kind in ("ipynb", "md") for p in (root / "book").rglob(f"*.{kind}")]
    kept = [p for p in found if ".ipynb_checkpoints" not in p.parts]
    kept = [p for p in kept if not p.stem.startswith(GENERATED)]
    return sorted(kept) + [root / name for name in OUTSIDE]


def texts(path: Path) -> Iterator[tuple[int, str, str]]:
    """A page's texts: the cell's number, "prose" or "said", and the text."""
    if path.suffix == ".md":
        yield 0, "prose", prose(path.read_text(encoding="utf-8"))
        return
    for number, cell in enumerate(nbformat.read(path, as_version=4).cells):
        if cell.cell_type == "markdown":
            yield number, "prose", prose(cell.source)
        else:
            for text in said(cell.source):
                yield number, "said", text


def prose(markdown: str) -> str:
    """The sentences of a text in Markdown, with the words of its links."""
    lines = NO_PROSE.sub("", markdown).splitlines()
    kept = "\n".join(line for line in lines if not NO_SENTENCE.match(line))
    kept = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", kept)
    return re.sub(r"\{\w+\}`[^`]*`", "", kept)


def said(code: str) -> Iterator[str]:
    """What code shows in words: `here.show(...)`, captions and alternative texts."""
    try:
        tree = ast.parse(code)
    except SyntaxError:  # a magic command is no Python
        return
    for node in ast.walk(tree):
        shown = []
        if isinstance(node, ast.Call):
            of = node.func
            shows = isinstance(of, ast.Attribute) and of.attr == "show"
            shows = shows and getattr(of.value, "id", "") == "here"
            shown = node.args[:1] if shows else []
            shown += [k.value for k in node.keywords if k.arg in SAID]
        elif isinstance(node, ast.Assign):
            names = {t.id for t in node.targets if isinstance(t, ast.Name)}
            shown = [node.value] if names & SAID else []
        for value in shown:
            yield " ".join(strings(value))


def strings(node: ast.AST) -> Iterator[str]:
    """The strings of an expression in their order, with … for a value in one."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(
            getattr(part, "value", "") if isinstance(part, ast.Constant) else "…"
            for part in node.values
        )
    else:
        for child in ast.iter_child_nodes(node):
            yield from strings(child)


def places_in(text: str, where: str) -> Iterator[tuple[str, str]]:
    """The places of one text: the kind, and the words around it."""
    for kind, pattern in PATTERNS.items():
        if where == "prose" or kind != OF_SENTENCES:
            for found in pattern.finditer(text):
                around = text[max(0, found.start() - 40) : found.end() + 60]
                yield kind, " ".join(around.split())


def count(path: Path) -> Count:
    """Count one page."""
    found = Count()
    for _, where, text in texts(path):
        found.places.update(kind for kind, _ in places_in(text, where))
        found.semicolons += text.count(";")
        if where == "prose":
            found.words += len(text.split())
            found.connectives += len(CONNECTIVES.findall(text))
            ended = re.split(r"(?<=[.!?])\s+", text)
            found.sentences += sum(bool(sentence.strip()) for sentence in ended)
    return found


def main(*names: str) -> int:
    """Print the counts of all pages, or the places of some; return the exit status."""
    asked = [p for p in pages() if not names or {p.stem, p.name, str(p)} & {*names}]
    if not asked:
        known = ", ".join(p.stem for p in pages())
        print(f"PAGE must be a page's name, got {' '.join(names)}: take one of {known}")
        return 2
    whole = Count()
    for path in asked:
        place = path.relative_to(ROOT)
        if names:
            for number, where, text in texts(path):
                cell = f"[{number}]" if path.suffix == ".ipynb" else ""
                for kind, around in places_in(text, where):
                    print(f"{place}{cell}: {kind}: …{around}…")
        found = count(path)
        whole += found
        print(f"{place.as_posix():48} {found}")
    if not names:
        kinds = ", ".join(f"{kind} {n}" for kind, n in whole.places.most_common())
        print(f"\n{kinds}\n{'the whole book':48} {whole}")
        print(
            f"goal, per 1,000 words: suspicious at most {GOAL_SUSPICIOUS}, semicolons "
            f"at most {GOAL_SEMICOLONS}, connectives at least {GOAL_CONNECTIVES}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
