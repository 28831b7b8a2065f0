// Ranks pages by the weights that search_weights.py gave their words, chapters before
// the pages at the back; says of each result what it is; snippets of what a page says:
// not of its contents, its buttons or its code. Loaded by the page of results alone.
Scorer.title = 200; // a whole heading, beside words of a page: what is rare weighs 300

// Words that make a search a question, and say nothing of what it is about. Sphinx' own
// list has the shortest ones already (is, the, on ...).
const ASKING = new Set(
  ("why how what when where which who can could do does did should would i me my we our you " +
    "your have has had get am only about any some much many").split(" "),
);

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

// What is looked for: without the words of a question, unless it has no others.
const parsed = Search._parseQuery;
Search._parseQuery = (query) => {
  const about = splitQuery(query).filter((word) => !ASKING.has(word.toLowerCase()));
  const [, terms, excluded, marked, objects] = parsed(about.join(" ") || query);
  localStorage.removeItem("sphinx_highlight_terms"); // the next page, whichever, marks it
  Search.marked = [...marked].join(" ");
  Search.asking = splitQuery(query.toLowerCase()).join(" ");
  return [query, terms, excluded, marked, objects];
};

// Only the page of a result marks the words: see search-marks.js.
for (const way of ["click", "auxclick"]) {
  document.addEventListener(way, ({ target }) => {
    if (!target.closest("#search-results li a")) return;
    try {
      localStorage.setItem("manygpu:searched", Search.marked);
    } catch { /* full since the page was opened: then nothing is marked */ }
  });
}

// Whether readers call a page so: search_words in _config.yml.
const isAsked = (name) =>
  !!Search._index.asked[name]?.some((words) => ` ${Search.asking} `.includes(` ${words} `));

// Pages with all of the words, pages that are called so, and pages that lack some and
// say much of the others. A word that few pages have counts more: who lacks it falls behind.
Search.performTermsSearch = (words, excluded) => {
  const { docnames, titles, filenames } = Search._index;
  const wanted = [...words].map(weightsOf).filter((found) => found.size);
  const unwanted = [...excluded].map(weightsOf);
  const most = (found) => found.reduce((sum, weights) => sum + Math.max(...weights.values()), 0);
  const pages = docnames.flatMap((name, page) => {
    const found = wanted.filter((weights) => weights.has(page));
    const isOut = !found.length || unwanted.some((weights) => weights.has(page));
    if (isOut) return [];
    const share = most(found) / most(wanted);
    const score = share * found.reduce((sum, weights) => sum + weights.get(page), 0);
    return [{ page, score, isWhole: found.length === wanted.length }];
  });
  const best = Math.max(0, ...pages.map(({ score }) => score));
  const anyHasAll = wanted.length === words.size && pages.some((page) => page.isWhole);
  Search.lacking = pages.length > 0 && !anyHasAll;
  // One or two words name a thing, and its chapter comes first; more of them ask something.
  const whole = words.size > 2 ? pages.filter((page) => page.isWhole) : [];
  Search.whole = new Set(whole.map(({ page }) => docnames[page]));
  return pages
    .filter(({ page, score, isWhole }) => isWhole || score > best / 2 || isAsked(docnames[page]))
    .map(({ page, score }) => [docnames[page], titles[page], "", null, score, filenames[page]]);
};

// What the search says of itself: Sphinx looks its sentences up among translations.
const FOUND = "Search finished, found ${resultCount} page(s) matching the search query.";
const NOTHING = "Your search did not match any documents. Please make sure that all words " +
  "are spelled correctly and that you've selected enough categories.";
const performed = Search._performSearch;
Search._performSearch = (...asked) => {
  const results = performed(...asked);
  const count = results.length === 1 ? "One place was found" : "${resultCount} places were found";
  const lacking = Search.lacking ? ". No page has all of your words; these have most" : "";
  Documentation.addTranslations({
    messages: {
      [FOUND]: `${count}${lacking}.`,
      [NOTHING]: "Nothing was found. Try fewer words, or other ones.",
    },
    plural_expr: "n != 1",
    locale: "en",
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
  const answers = Search._index.asked[name] && Search.whole.has(name); // at the back, too
  return score + (number || isAsked(name) || answers ? 1000 : 0) + (isAsked(name) ? 300 : 0);
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
