"""Let the search know how much each page says of a word, and what readers call things.

Sphinx' own index knows only which pages have a word. Here each page has a weight for
each of its words: how often it stands there, more for title and headings, less for
words that most pages have (BM25). `search_words` in _config.yml adds, page by page,
what readers type; such words weigh as the title does, and who types all of them gets
the page among the chapters. search-results.js adds them up. The cell that fetches the
package says the same on each page, so it counts nowhere. A page with `nosearch` has a
title, for its functions are found by name, and no words.
"""

from __future__ import annotations

import functools
import html
import json
import math
import re
from collections import Counter
from collections.abc import Callable
from typing import IO

from docutils import nodes
from sphinx.errors import ExtensionError
from sphinx.search import js_index

TITLE, HEADING = 60, 8  # how many times in the text a word there is worth
HALF = 15  # times that make half of the most that a word can weigh, on a usual page


class WeightedIndex:
    """Sphinx' way to write its index, with weights in place of mere pages."""

    def __init__(self, app) -> None:
        """Take what knows the pages, and let Sphinx write its index so."""
        self.app = app
        app.builder.indexer_format = self

    def dump(self, index: dict, file: IO[str]) -> None:
        """Write an index, with the chapters' numbers and what readers call them."""
        env, asked = self.app.env, self.app.config.search_words
        names = index["docnames"]
        unknown = set(asked) - set(names)
        if unknown and len(names) > 1:  # `make chapter` renders one page alone
            raise ExtensionError(f"search_words in _config.yml: no page {unknown}")
        pages = [self.page(p, asked.get(p, [])) for p in names]
        index |= {"terms": weights(pages), "titleterms": {}}  # these weigh among those
        # Sphinx leaves them out where a page has `nosearch`.
        index["titles"] = [
            html.escape(env.titles[p].astext(), quote=False) for p in names
        ]
        index["asked"] = {p: [spelled(words) for words in asked[p]] for p in asked}
        index["numbers"] = {p: chapter.number for p, chapter in env.chapters.items()}
        said = json.dumps(index, separators=(",", ":"), sort_keys=True)
        file.write(f"{js_index.PREFIX}{said}{js_index.SUFFIX}")

    def load(self, file: IO[str]) -> dict:
        """Read what was written, as Sphinx knows it: each word's pages."""
        index = js_index.load(file)
        index["terms"] = {word: at[::2] for word, at in index["terms"].items()}
        kept = self.app.builder.indexer._index_entries  # which Sphinx forgets to read
        for entry, at in index["indexentries"].items():
            for place, id_, main in at:
                page = index["docnames"][place]
                if page in self.app.env.all_docs:
                    kept.setdefault(page, []).append((entry, id_, "main" * main))
        return index

    def page(self, name: str, asked: list[str]) -> Counter[str]:
        """How often one page has each word; none if it asks to be left out."""
        if "nosearch" in self.app.env.metadata.get(name, {}):
            return Counter()
        return self.counts(self.app.env.get_doctree(name), asked)

    @functools.cached_property
    def stem(self) -> Callable[[str], str]:
        """Finds a word's stem, which takes long: once, though many pages have it."""
        return functools.cache(self.app.builder.indexer.lang.stem)

    def counts(self, doctree: nodes.document, asked: list[str]) -> Counter[str]:
        """How often a page has each word, stemmed; a heading's count as many."""
        indexer = self.app.builder.indexer
        for cell in list(doctree.findall(nodes.container)):
            if "set-up" in cell["classes"]:
                cell.parent.remove(cell)
        for raw in doctree.findall(nodes.raw):  # else the cells of a table are a word
            raw[:] = [nodes.Text(raw.astext().replace("<", " <"))]
        store = indexer._word_collector(doctree)
        title = store.titles[0][0] if store.titles else ""
        words = store.words + store.title_words * HEADING
        words += indexer.lang.split(" ".join([title, *asked])) * TITLE
        stemmed = Counter(self.stem(word.lower()) for word in words)
        some = [w for w in stemmed if w and not w.isdecimal()]  # no search asks numbers
        return Counter({w: stemmed[w] for w in filter(indexer.lang.word_filter, some)})


def spelled(words: str) -> str:
    """Words as search-results.js compares them: small letters, one space between."""
    return " ".join(re.findall(r"\w+", words.lower()))


def weights(pages: list[Counter[str]]) -> dict[str, list[int]]:
    """For each word: a page's place in the list and its weight there, and so on."""
    usual = sum(page.total() for page in pages) / len(pages) or 1
    within = Counter(word for page in pages for word in page)
    found: dict[str, list[int]] = {word: [] for word in within}
    for place, page in enumerate(pages):
        half = HALF * (1 + page.total() / usual) / 2
        for word, times in page.items():
            rare = math.log(1 + len(pages) / within[word])
            found[word] += [place, math.ceil(100 * rare * times / (times + half))]
    return found


def setup(app) -> None:
    """Run before the first page is read."""
    app.add_config_value("search_words", {}, "")
    app.connect("builder-inited", WeightedIndex)
