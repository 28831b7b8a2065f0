// The page of a learner's results: what this browser keeps, exported, imported, forgotten.
// A file is as manygpu/exercises/kept.py writes it. Loaded by that page alone. Numbers are
// written by `written` and `general` of guess.js, which each page has.
document.addEventListener("DOMContentLoaded", () => {
  const KINDS = { guesses: "guess", puzzles: "puzzle", exercises: "exercise" };
  const FORMAT = 1;
  const MOST_BYTES = 1e6;
  const part = (id) => document.getElementById(`results-${id}`);
  const isPlain = (value) =>
    value !== null && typeof value === "object" && !Array.isArray(value);

  function make(tag, words, more = {}) {
    return Object.assign(document.createElement(tag), { textContent: words }, more);
  }

  function say(words, isWrong = false) {
    part("said").textContent = isWrong ? "" : words;
    part("wrong").textContent = isWrong ? words : "";
  }

  function everything() {
    const found = { manygpu: "results", format: FORMAT };
    for (const [kind, word] of Object.entries(KINDS)) {
      found[kind] = {};
      for (const key of Object.keys(localStorage).sort()) {
        const start = `manygpu:${word}:`;
        if (!key.startsWith(start)) continue;
        try {
          const what = JSON.parse(localStorage.getItem(key));
          if (isPlain(what)) found[kind][key.slice(start.length)] = what;
        } catch {
          // Somebody else's words.
        }
      }
    }
    return found;
  }

  // A score as its puzzle says it: `number` of manygpu/exercises/puzzles/scoring.py.
  function scored(value) {
    if (typeof value !== "number") return "–";
    const whole = Math.round(value);
    return Math.abs(value - whole) < 1e-9 ? String(whole) : general(value, 4);
  }

  // The list of pages knows their addresses and titles, in reading order.
  const pages = [...document.querySelectorAll("nav a[href]")];
  const placeOf = (name) => {
    const end = `/${name.split("/")[0]}.html`;
    return pages.findIndex((link) => link.pathname.endsWith(end));
  };

  // The page's name, which leads there.
  function chapter(name) {
    const there = pages[placeOf(name)];
    if (!there) return make("span", name.split("/")[0]);
    return make("a", there.textContent.trim(), { href: there.href });
  }

  // As the pages are read; what belongs to no page comes last.
  function inOrder(rows) {
    const at = (name) => (placeOf(name) + pages.length + 1) % (pages.length + 1);
    return rows.sort(([one], [other]) => at(one) - at(other));
  }

  // The page has the tables already, so that scrollers.js watches them.
  function fill(kind, rows) {
    const body = part(kind).querySelector("tbody");
    body.replaceChildren();
    for (const [name, ...cells] of rows) {
      const first = make("th", "", { scope: "row" });
      first.append(chapter(name));
      body.insertRow().append(first, ...cells.map((cell) => make("td", cell)));
    }
    part(kind).querySelector("table").hidden = !rows.length;
    const none = part(kind).querySelector("p");
    none.textContent = "None yet.";
    none.hidden = rows.length > 0;
  }

  const ROWS = {
    guesses: ([name, { guess, foreseen, measured, unit }]) => {
      const own = typeof guess === "number" ? written(guess) : "no guess";
      return [name, own, written(foreseen), written(measured), String(unit ?? "")];
    },
    puzzles: ([name, { score, bound, solved }]) =>
      [`puzzles/${name}`, name, scored(score), scored(bound), solved ? "yes" : "not yet"],
    exercises: ([name, { cases }]) => [name, name.split("/").at(-1), written(cases)],
  };

  function draw() {
    const all = everything();
    for (const kind of Object.keys(KINDS)) {
      fill(kind, inOrder(Object.entries(all[kind]).map(ROWS[kind])));
    }
  }

  // Why a file's content isn't one of results; "" if it is.
  function wrongOf(whole) {
    if (!isPlain(whole) || whole.manygpu !== "results") {
      return 'it lacks "manygpu": "results"';
    }
    if (whole.format !== FORMAT) return `its format is ${whole.format}, not ${FORMAT}`;
    for (const kind of Object.keys(KINDS)) {
      if (!isPlain(whole[kind])) return `it has no ${kind}`;
      for (const [name, what] of Object.entries(whole[kind])) {
        if (!isPlain(what)) return `${kind}: "${name.slice(0, 80)}" has no values`;
      }
    }
    return "";
  }

  // As in kept.py: what is there stays, unless it is a guess that wasn't made or a
  // puzzle with a worse score, which is a larger one.
  function isWorth(kind, what, before) {
    if (!before) return true;
    if (kind === "guesses") return typeof before.guess !== "number";
    if (kind !== "puzzles" || typeof what.score !== "number") return false;
    return typeof before.score !== "number" || what.score < before.score;
  }

  async function takeIn(file) {
    let whole;
    try {
      if (file.size > MOST_BYTES) throw new Error("it is larger than a megabyte");
      whole = JSON.parse(await file.text());
      const wrong = wrongOf(whole);
      if (wrong) throw new Error(wrong);
    } catch (error) {
      say(`${file.name} isn’t a file of results: ${error.message}.`, true);
      return;
    }
    const here = everything();
    let count = 0;
    try {
      for (const [kind, word] of Object.entries(KINDS)) {
        for (const [name, what] of Object.entries(whole[kind])) {
          if (!isWorth(kind, what, here[kind][name])) continue;
          localStorage.setItem(`manygpu:${word}:${name}`, JSON.stringify(what));
          count += 1;
        }
      }
    } catch {
      say("This browser can store no more: its storage is full or switched off.", true);
      draw();
      return;
    }
    draw();
    say(`Loaded: ${count} from ${file.name}. The results that were here stay.`);
  }

  part("import").addEventListener("change", async ({ target }) => {
    if (target.files.length) await takeIn(target.files[0]);
    target.value = ""; // so that the same file can be chosen again
  });

  part("export").addEventListener("click", () => {
    const text = `${JSON.stringify(everything(), null, 1)}\n`;
    const href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    const link = make("a", "", { href, download: "manygpu-results.json" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(href), 10_000);
    say("Saved as manygpu-results.json.");
  });

  const asks = part("sure");
  part("forget").addEventListener("click", () => {
    asks.hidden = false;
    part("yes").focus();
  });
  function close() {
    asks.hidden = true;
    part("forget").focus();
  }
  part("no").addEventListener("click", close);
  asks.addEventListener("keydown", ({ key }) => key === "Escape" && close());
  part("yes").addEventListener("click", () => {
    const words = Object.values(KINDS).join("|");
    const ours = new RegExp(`^manygpu:(?:${words}):`);
    const keys = Object.keys(localStorage).filter((key) => ours.test(key));
    for (const key of keys) localStorage.removeItem(key);
    close();
    draw();
    say(`Deleted: ${keys.length}.`);
  });

  part("tools").hidden = false;
  try {
    draw();
  } catch {
    say("This browser keeps nothing for this page, because its storage is switched off.", true);
  }
});
