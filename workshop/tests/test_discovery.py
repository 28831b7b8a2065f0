"""What tells others what a page is about, and who is lost where to go."""

from __future__ import annotations

import functools
import gzip
import http.server
import threading
import urllib.error
import urllib.request
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace

import pytest
from docutils.core import publish_doctree

from workshop.extensions import discovery
from workshop.serving import Pages

BOOK = "Training on Many GPUs"


def test_a_page_is_described_by_its_question_or_its_beginning():
    asked = publish_doctree("Title\n=====\n\nWords.\n\n   What\n   for?\n\nMore.\n")
    told = publish_doctree("Title\n=====\n\nFirst words.\n\nSecond.\n")
    assert discovery.description(asked) == "What for?"
    assert discovery.description(told) == "First words."
    assert discovery.description(None) == ""
    long = discovery.description(publish_doctree(f"{'words ' * 40}\n"))
    assert long.endswith(" words…") and 150 < len(long) <= 160


def test_a_title_has_the_books_name_once():
    assert discovery.full_title("Pipeline", BOOK) == f"Pipeline — {BOOK}"
    assert discovery.full_title(BOOK, BOOK).count(BOOK) == 1
    assert discovery.full_title(f"About {BOOK}", BOOK) == f"About {BOOK}"
    assert discovery.without_markup("<code>a</code> &amp; b") == "a & b"


def rendered(folder: Path, **config: str) -> SimpleNamespace:
    """Sphinx at the end of a build, as far as it is asked."""
    return SimpleNamespace(
        config=SimpleNamespace(**config),
        builder=SimpleNamespace(format="html", get_target_uri="{}.html".format),
        env=SimpleNamespace(found_docs={"book/index", "book/start/devices"}),
        outdir=folder,
    )


@pytest.mark.parametrize("root", ["", "https://a.example/b/"])
def test_a_sitemap_is_written_once_there_is_an_address(tmp_path, root):
    discovery.put_sitemap(rendered(tmp_path, html_baseurl=root), None)
    file = tmp_path / "sitemap.xml"
    assert file.is_file() == bool(root)
    if root:
        tag = "{http://www.sitemaps.org/schemas/sitemap/0.9}loc"
        places = [place.text for place in ET.parse(file).iter(tag)]
        assert places == [f"{root}book/index.html", f"{root}book/start/devices.html"]


@pytest.mark.parametrize("first", ["book/index", "index"])
def test_the_roots_door_leads_to_a_front_page_that_lies_deeper(tmp_path, first):
    config = {"html_favicon": "a/f.svg", "html_title": "A & B", "root_doc": first}
    discovery.put_door(rendered(tmp_path, **config), None)
    door = tmp_path / "index.html"
    assert door.is_file() == (first != "index")
    if door.is_file():
        said = door.read_text(encoding="utf-8")
        assert 'content="0; url=book/index.html"' in said
        assert 'href="_static/f.svg"' in said
        assert said.count("A &amp; B") == 2


def test_who_is_lost_gets_the_books_page(tmp_path):
    (tmp_path / "404.html").write_text("lost", encoding="utf-8")
    handler = functools.partial(Pages, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(urllib.error.HTTPError) as answered:
            urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/x/y.html")
        server.shutdown()
    assert answered.value.code == 404
    assert answered.value.read() == b"lost"


@pytest.mark.parametrize(("name", "is_text"), [("a.css", True), ("a.png", False)])
def test_a_text_is_squeezed_for_who_can_open_that(tmp_path, name, is_text):
    content = 100 * b"body { color: red }"
    (tmp_path / name).write_bytes(content)
    handler = functools.partial(Pages, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for can in ("gzip, br", "identity"):
            address = f"http://127.0.0.1:{server.server_port}/{name}"
            asked = urllib.request.Request(address, headers={"Accept-Encoding": can})
            with urllib.request.urlopen(asked) as answer:
                sent, kind = answer.read(), answer.headers["Content-Encoding"]
                assert len(sent) == int(answer.headers["Content-Length"])
            squeezed = is_text and "gzip" in can
            assert kind == ("gzip" if squeezed else None)
            assert (gzip.decompress(sent) if squeezed else sent) == content
        server.shutdown()
