"""What others see of the book: titles, descriptions, results of a search, a 404."""

from __future__ import annotations

import json
import re

import pytest
from bs4 import BeautifulSoup

from tests.quick.test_colors import contrast
from tests.rendered.test_pages import all_pages, pages
from workshop.pages import reading_order

NAME = "Training on Many GPUs"
CARD = "_static/card.png"


@pytest.fixture(scope="module")
def heads(html_root) -> dict[str, BeautifulSoup]:
    """What stands in the head of each page."""
    texts = {p: (html_root / f"{p}.html").read_text("utf-8") for p in all_pages()}
    return {
        page: BeautifulSoup(text.partition("</head>")[0], "html.parser")
        for page, text in texts.items()
    }


def meta(head: BeautifulSoup, name: str) -> str:
    """What a page says of itself, "" if it doesn't; it says it once."""
    tags = head.select(f'meta[name="{name}"], meta[property="{name}"]')
    assert len(tags) <= 1
    return tags[0]["content"] if tags else ""


def test_a_title_is_unique_and_has_the_books_name_once(heads):
    titles = {page: head.title.get_text().strip() for page, head in heads.items()}
    assert len(set(titles.values())) == len(titles)
    assert [t for t in titles.values() if t.count(NAME) != 1] == []


def test_what_is_shared_has_a_title_a_unique_short_text_and_a_picture(heads, html_root):
    said = {page: meta(heads[page], "description") for page in pages()}
    assert len(set(said.values())) == len(said)
    assert [page for page, text in said.items() if not 15 <= len(text) <= 160] == []
    assert [page for page in reading_order() if "?" not in said[page]] == []
    for page in pages():
        up = "../" * page.count("/")
        assert meta(heads[page], "og:title") == heads[page].title.get_text().strip()
        assert meta(heads[page], "og:description") == said[page]
        assert meta(heads[page], "og:image") == f"{up}{CARD}"
    assert (html_root / CARD).is_file()


def search(visit, root: str, query: str) -> list[tuple[str, str]]:
    """Where a search leads, best first, and what it shows of each place."""
    tab = visit("search", root=root, query=f"?q={query}")
    tab.wait_for_selector("#search-results p.search-summary:has-text('found')")
    if root.startswith("http"):  # what a page says is fetched; from a disk it isn't
        tab.wait_for_load_state("networkidle")
    return [
        (item.locator("a").first.get_attribute("href"), item.inner_text())
        for item in tab.locator("#search-results ul.search > li").all()[:12]
    ]


@pytest.mark.parametrize(
    "query", ["all-reduce", "ring", "bubble", "gradient accumulation"]
)
def test_a_search_names_chapters_first(served, visit, query):
    """Before the glossary, the modules and the index; with words of the chapter."""
    found = search(visit, served, query)
    back = re.compile(r"book/(back/|index)|genindex")
    chapters = [not back.match(place) for place, _ in found]
    assert chapters[0]
    assert chapters == sorted(chapters, reverse=True)
    for place, text in found[:3]:
        snippet = " ".join(text.split("\n")[1:])
        assert snippet, place
        assert not re.search(r"\bContents\b|Kept in manygpu|Download", snippet), place


@pytest.mark.parametrize(
    ("query", "chapter"),
    [
        ("ZeRO", "sharded-state"),
        ("FSDP", "sharded-state"),
        ("out of memory", "recomputation"),
        ("OOM", "recomputation"),
        ("LeNet", "one-device"),
        ("tf.data", "feeding-the-devices"),
        ("checkpoint", "worker-dies"),
        ("why slower", "why-slower"),
        ("tensor parallel", "layerwise"),
        ("learning rate", "large-batches"),
        ("ring", "collectives"),
        ("spot instance", "what-it-costs"),
        ("straggler", "step-hangs"),
        ("deadlock", "step-hangs"),
        ("NaN", "step-hangs"),
        ("MirroredStrategy", "mirrored-strategy"),
        ("all-reduce", "all-reduce"),
        ("bubble", "pipeline"),
        ("1F1B", "pipeline"),
        ("mixed precision", "mixed-precision"),
        ("gradient accumulation", "gradient-accumulation"),
        ("why is my second GPU slower", "why-slower"),
        ("data loader bottleneck", "feeding-the-devices"),
        ("steps_per_epoch", "feeding-the-devices"),
        ("DataParallel PyTorch", "how-clusters-run"),
        ("how many GPUs do I need", "which-one"),
        ("MoE", "experts"),
        ("expert parallelism", "experts"),
        ("context parallelism", "long-sequences"),
        ("ring attention", "long-sequences"),
        ("early stopping", "bookkeeping"),
        ("best checkpoint", "bookkeeping"),
        ("scheduler", "bookkeeping"),
    ],
)
def test_the_right_chapter_is_among_the_first_two(html_root, visit, query, chapter):
    """From a disk, too; with its number, and nothing fails."""
    found = search(visit, html_root.as_uri(), query)
    places = [place.partition("#")[0] for place, _ in found]
    place = next((p for p in places if p.endswith(f"/{chapter}.html")), None)
    assert place, f"{chapter} is not among {places}"
    assert places.index(place) < 2, f"{query} -> {chapter}: {1 + places.index(place)}"
    assert re.match(r"Chapter \d\.\d+ · ", found[places.index(place)][1])


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("OOM only on GPU 0", "your-cards"),
        ("OOM on GPU 0", "your-cards"),
        ("peer to peer", "your-cards"),
        ("IOMMU", "your-cards"),
        ("dev shm", "your-cards"),
        ("crash with NVLink", "your-cards"),
        ("unhandled cuda error", "your-cards"),
        ("is joining a group with size2", "your-cards"),
        ("NCCL hang first all-reduce", "your-cards"),
        ("custom loss MirroredStrategy", "your-cards"),
        ("Cannot re-initialize CUDA in forked subprocess", "your-cards"),
        ("report a mistake", "running"),
        ("colab", "running"),
        ("cite", "running"),
        ("slides", "running"),
        ("MANYGPU_SOURCE", "running"),
    ],
)
def test_what_no_chapter_is_about_is_found_first_at_the_back(
    html_root, visit, query, page
):
    (place, _), *_ = search(visit, html_root.as_uri(), query)
    assert place.startswith(f"book/back/{page}.html")


def test_no_page_is_without_a_title_in_the_index(html_root):
    """It would be a result without a name."""
    text = (html_root / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    titles = dict(zip(index["docnames"], index["titles"], strict=True))
    assert len(titles) > 60
    assert [page for page, title in titles.items() if not title.strip()] == []


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("MoE", r"\d+ places were found."),
        ("bubble", r"\d+ places were found."),
        ("zzzz bubble", r"\d+ places .* No page has all of your words.*"),
        ("zzzz", "Nothing was found. .*"),
    ],
)
def test_a_search_says_how_much_it_found_in_whole_words(visit, query, said):
    tab = visit("search", query=f"?q={query}")
    summary = tab.locator("#search-results p.search-summary:not(:empty)")
    assert re.fullmatch(said, summary.inner_text())


MARKS = """() => {
    const { color, backgroundColor } = getComputedStyle(
        document.querySelector("article"), "::highlight(searched)");
    return [CSS.highlights.get("searched")?.size ?? 0, color, backgroundColor];
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_of_a_result_marks_the_words_quietly_and_no_other_page_does(
    served, visit, theme
):
    tab = visit("search", root=served, query="?q=bubble", color_scheme=theme)
    tab.locator("#search-results a[href*='/pipeline.html']").first.click()
    line = tab.locator(".search-marks")
    line.wait_for(state="visible")
    assert line.bounding_box()["height"] < 45
    assert tab.locator(".highlight-link").count() == 0
    count, ink, ground = tab.evaluate(MARKS)
    ink, ground = ([int(x) for x in re.findall(r"\d+", c)[:3]] for c in (ink, ground))
    assert count > 5 and contrast(ink, ground) >= 4.5
    tab.keyboard.press("Escape")
    assert line.count() == 0 and tab.evaluate(MARKS)[0] == 0
    tab.goto(f"{served}/search.html?q=bubble")
    tab.wait_for_selector("#search-results a")
    tab.goto(f"{served}/book/splitting/pipeline.html")
    assert line.count() == 0 and tab.evaluate(MARKS)[0] == 0


def test_a_word_of_the_glossary_is_shown_with_what_it_means(served, visit):
    found = dict(search(visit, served, "straggler"))
    entry = found["book/back/glossary.html#term-straggler"]
    assert entry.startswith("Glossary · straggler")
    assert "all others wait for" in entry


def test_a_search_for_nothing_says_what_can_be_found(visit):
    tab = visit("search")
    ideas = tab.locator(".search-ideas")
    assert ideas.get_by_role("link", name="glossary").is_visible()
    ideas.get_by_role("link", name="out of memory").click()
    tab.wait_for_selector("#search-results a[href*=recomputation]")
    assert not ideas.is_visible()


def test_who_is_lost_is_led_to_what_was_meant(served, browser):
    """At any address, with the book's looks, and a chapter whose name is alike."""
    tab = browser.new_page()
    answer = tab.goto(f"{served}/book/old-part/pipelines.html")
    assert answer.status == 404
    tab.wait_for_url("**/404.html#*")
    near = tab.locator("#near a")
    near.first.wait_for(state="visible")
    pipeline = near.filter(has_text=re.compile(r"^\d\.\d+ Pipeline$"))
    assert pipeline.count() == 1
    pipeline.click()
    tab.wait_for_url("**/splitting/pipeline.html")
    tab.close()
