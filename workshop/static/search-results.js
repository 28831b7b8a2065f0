// Ranks pages by the weights that search_weights.py gave their words, chapters before
// the pages at the back; says of each result what it is; snippets of what a page says:
// not of its contents, its buttons or its code. Loaded by the page of results alone.
Scorer.title = 200; // a whole heading, beside words of a page: what is rare weighs 300

function weightsOf(word) {
  const { terms } = Search._index;
  const alike = (term) => word.length > 2 && term.includes(word);
  const forms = Object.hasOwn(terms, word) ? [word] : Object.keys(terms).filter(alike);
  const found = new Map();
  for (const form of forms) {
    for (let k = 0; k < terms[form].length; k += 2) {
      const [page, weight] = terms[form].slice(k, k + 2);
      found.set(page, Math.max(found.get(page) ?? 0, weight));
    }
  }
  return found;
}

Search.performTermsSearch = (words, excluded) => {
  const { docnames, titles, filenames } = Search._index;
  const wanted = [...words].map(weightsOf).filter((found) => found.size);
  const unwanted = [...excluded].map(weightsOf);
  const results = [];
  docnames.forEach((name, page) => {
    const has = (found) => found.has(page);
    if (!wanted.length || !wanted.every(has) || unwanted.some(has)) return;
    const score = wanted.reduce((sum, found) => sum + found.get(page), 0);
    results.push([name, titles[page], "", null, score, filenames[page]]);
  });
  return results;
};

Scorer.score = (result) => {
  const [name, title, anchor, description, score] = result;
  const number = Search._index.numbers[name];
  if (number) result[1] = `Chapter ${number} · ${title}`;
  else if (description) result[1] = `Package · ${title}`;
  else if (anchor.startsWith("#term-")) {
    result[1] = `Glossary · ${anchor.slice(6).replaceAll("-", " ")}`;
  }
  return score + (number ? 1000 : 0);
};

Search.htmlToText = (html, anchor) => {
  const page = new DOMParser().parseFromString(html, "text/html");
  const article = page.querySelector("article.bd-article") ?? page.body;
  let place = (anchor && article.querySelector(anchor)) || article;
  while (place.matches("dt")) place = place.nextElementSibling; // what a word means
  const noise = "h1, script, style, dl.chapter-box, .headerlink, details, div.cell, table";
  for (const part of place.querySelectorAll(noise)) part.remove();
  return place.textContent.replace(/\s+/g, " ").trim();
};

// A page that was opened from a disk may not read others.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
