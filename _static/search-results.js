// Chapters before the pages at the back, and snippets of what a page says: not of its
// contents, its buttons or its code. Loaded by the page of results alone.
const AT_THE_BACK = /^book\/(back|index)/;

Scorer.score = ([page, , , , score]) => (AT_THE_BACK.test(page) ? 0 : 100) + score;

Search.htmlToText = (html, anchor) => {
  const page = new DOMParser().parseFromString(html, "text/html");
  const article = page.querySelector("article.bd-article") ?? page.body;
  const place = (anchor && article.querySelector(anchor)) || article;
  const noise = "h1, script, style, dl.chapter-box, .headerlink, details, div.cell, table";
  for (const part of place.querySelectorAll(noise)) part.remove();
  return place.textContent.replace(/\s+/g, " ").trim();
};
