// Guess first: a page without a kernel asks for the number that its notebook asks for
// (manygpu/exercises/guessing.py), and shows what was measured once you have answered.
// Until then a line in each place, its stand-in, says what waits there: an output, and the
// text right below it, which would give the answer away. This browser keeps the answer.
// Without this script, and on paper, all is shown.

// A number as Python writes it with `:.3g`, so that this browser and a chapter's own line
// say the same. Both round the number that is stored; a tie goes to the even digit.
function general(value, digits) {
  if (value === 0) return "0";
  const [sign, size] = [value < 0 ? "-" : "", Math.abs(value)];
  const [, first, others, power] = size.toExponential(40).match(/^(\d)\.(\d+)e(.+)$/);
  const [kept, rest] = [first + others.slice(0, digits - 1), others.slice(digits - 1)];
  const isTie = /^50*$/.test(rest);
  const goesUp = isTie ? Number(kept) % 2 === 1 : rest >= "5";
  const rounded = String(Number(kept) + (goesUp ? 1 : 0));
  const exponent = Number(power) + (rounded.length - digits); // 9.99 may become 10.0
  const found = rounded.slice(0, digits);
  if (exponent >= -4 && exponent < digits) {
    return sign + String(Number(`${found}e${exponent - digits + 1}`));
  }
  const mantissa = String(Number(`${found}e${1 - digits}`));
  const two = String(Math.abs(exponent)).padStart(2, "0");
  return `${sign}${mantissa}e${exponent < 0 ? "-" : "+"}${two}`;
}

// As `written` of manygpu/exercises/guessing.py: three digits, and all before the point.
function written(value) {
  if (typeof value !== "number") return "–";
  const size = Math.abs(value);
  if (size < 100 || size >= 1e9) return general(value, 3);
  const isTie = size % 1 === 0.5;
  const whole = isTie ? 2 * Math.round(size / 2) : Math.round(size);
  return (value < 0 ? "-" : "") + whole.toLocaleString("en");
}

document.addEventListener("DOMContentLoaded", () => {
  const EVERYTHING = "manygpu:guess-first"; // "off": all pages show everything
  const make = (tag, words = "", more = {}) =>
    Object.assign(document.createElement(tag), { textContent: words }, more);
  const outputs = [...document.querySelectorAll("div.cell_output")];
  const after = (one, other) => one.compareDocumentPosition(other) & 4;
  const spoken = (value, unit) => `${value}${unit && unit !== "%" ? " " : ""}${unit}`;
  const counted = (count, one, many) => (count === 1 ? one : `${count} ${many}`);

  function recall(key) {
    try {
      return JSON.parse(localStorage.getItem(key));
    } catch {
      return null; // no storage here, or somebody else's words
    }
  }

  function keep(key, what) {
    try {
      if (what) localStorage.setItem(key, JSON.stringify(what));
      else localStorage.removeItem(key);
    } catch {
      // Then it is remembered until the page is left.
    }
  }

  // The text right below an output, up to the next cell or heading.
  const TEXT = "p:not(.long-lines), ul, ol, dl, .math-block, .pst-scrollable-table-container";
  function textBelow(output) {
    const found = [];
    let next = output.closest("div.cell").nextElementSibling;
    for (; next?.matches(TEXT); next = next.nextElementSibling) found.push(next);
    return found;
  }

  // What waits, in words: "Table 1, a result and the text below".
  function contentOf(output) {
    const named = namesIn(output);
    if (textBelow(output).length) named.push("the text below");
    const last = named.pop();
    const all = named.length ? `${named.join(", ")} and ${last}` : last;
    return all[0].toUpperCase() + all.slice(1);
  }

  // Each part of an output, in words. Captions have numbers.
  function namesIn(output) {
    if (output.querySelector("p.manygpu-told")) return ["the answer"];
    const numbers = output.querySelectorAll("a.caption-number");
    const named = [...numbers].map((number) => number.textContent.trim());
    const lines = output.querySelectorAll("p.manygpu-here").length;
    const texts = output.querySelectorAll("pre").length;
    const others = lines || named.length === 0 ? Math.max(lines, texts, 1) : 0;
    if (others) named.push(counted(others, "a result", "results"));
    return named;
  }

  // It is there while the output and its text aren't; whatever leads to something in them
  // leads here. Its button leaves what a reader looks at in its place on the screen.
  function standIn(output, question, show) {
    const what = contentOf(output);
    const waits = `${what} ${/ and |^\d/.test(what) ? "wait" : "waits"} for `;
    const words = make("p", waits);
    words.append(make("a", "your guess", { href: `#${question}` }), ".");
    const button = make("button", "Show", { type: "button" });
    const within = what.replace(/^(A|The)\b/, (word) => word.toLowerCase());
    button.append(make("span", ` ${within}`, { className: "visually-hidden" }));
    button.addEventListener("click", () => {
      const before = output.getBoundingClientRect().top;
      show();
      output.tabIndex = -1;
      output.focus({ preventScroll: true });
      scrollBy({ top: output.getBoundingClientRect().top - before, behavior: "instant" });
    });
    const box = make("div", "", { className: "guess-stand-in", tabIndex: -1 });
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", `${waits}your guess`);
    box.append(words, button);
    return box;
  }

  const everyQuestion = []; // each one's `refresh`
  let showsAll = recall(EVERYTHING) === "off";
  function showAll(isOn) {
    showsAll = isOn;
    keep(EVERYTHING, isOn ? "off" : null);
    for (const refresh of everyQuestion) refresh();
  }

  function askFor(ask, told) {
    const { name, unit, least, most } = ask.dataset;
    const { foreseen, measured } = told.dataset;
    const key = `manygpu:guess:${name}`;
    const id = `guess-${name.replace("/", "-")}`;
    const end = told.closest("div.cell_output");
    const between = outputs.filter((o) => after(ask, o) && (o === end || after(o, end)));

    const label = make("label", "", { htmlFor: id });
    label.append(...ask.childNodes);
    ask.append(label);
    ask.id ||= `${id}-question`;
    const number = make("input", "", { id, type: "number", step: "any", required: true });
    const show = make("button", "Show");
    const skip = make("button", "I’d rather see it", { type: "button" });
    const always = make("button", "Show all, on every page", { type: "button" });
    const wrong = make("span", "", { id: `${id}-wrong`, className: "wrong" });
    wrong.setAttribute("role", "alert");
    number.setAttribute("aria-describedby", `${id}-unit ${wrong.id}`);
    const form = make("form", "", { className: "guess-form", noValidate: true });
    form.append(number, make("span", unit, { id: `${id}-unit` }), show, skip, always, wrong);
    const said = make("span");
    said.setAttribute("role", "status");
    const forget = make("button", "", { type: "button", className: "forget" });
    const answer = make("div", "", { className: "guess-answer" });
    const root = document.documentElement.dataset.content_root ?? "";
    const all = make("a", "Your results", { href: `${root}book/back/results.html` });
    answer.append(said, forget, all);
    const three = make("dl", "", { className: "guess-three" });
    for (const line of [ask, told]) {
      line.closest("div.cell").querySelector("details")?.remove(); // code for a kernel
    }
    const waiting = new Map(between.map((o) => [o, standIn(o, ask.id, () => answered(null))]));

    // The words of the line, such as "found 1.43 times (1.31 to 1.50)".
    function partOf(kind) {
      const words = told.querySelector(`.told-${kind}`)?.textContent;
      return words?.replace(/^(foreseen|found) /, "");
    }

    function look(isShown) {
      ask.after(isShown ? answer : form);
      (isShown ? form : answer).remove();
      for (const [output, box] of waiting) {
        output.classList.toggle("guess-waits", !isShown);
        for (const text of textBelow(output)) text.classList.toggle("guess-hides", !isShown);
        if (isShown) box.remove();
        else output.prepend(box);
      }
    }

    function set(guess) {
      const has = guess !== undefined;
      look(has || showsAll);
      told.hidden = has;
      if (!has) three.remove();
      said.textContent = "Every page shows everything.";
      forget.textContent = has ? "Forget it" : "Ask me first";
      if (!has) return;
      told.after(three);
      const own = guess === null ? "no guess" : spoken(written(guess), unit);
      said.textContent = guess === null ? "No guess." : `You said ${own}.`;
      said.textContent += " What was found is below.";
      const rows = [["You said", own], ["Foreseen", partOf("foreseen")]];
      rows.push(["Found", partOf("measured")]);
      three.replaceChildren(
        ...rows.filter(([, words]) => words).map(([what, words]) => {
          const box = make("div");
          box.append(make("dt", what), make("dd", words));
          return box;
        }),
      );
    }

    let now; // the guess; null if there was none, undefined before an answer

    function answered(guess) {
      const [numberOf, page] = [(s) => (s === undefined ? null : Number(s)), name.split("/")[0]];
      const values = { foreseen: numberOf(foreseen), measured: numberOf(measured) };
      keep(key, { guess, ...values, unit, page });
      set((now = guess));
      answer.tabIndex = -1;
      answer.focus({ preventScroll: true });
    }

    // Why a guess can't be so; "" if it can.
    function wrongOf(guess) {
      if (!Number.isFinite(guess)) return "Type a number, or have it shown without one.";
      const [low, high] = [least ?? -Infinity, most ?? Infinity].map(Number);
      if (guess >= low && guess <= high) return "";
      const ends = [`${least} or more`, `${most} or less`, `from ${least} to ${most}`];
      const range = ends[most === undefined ? 0 : least === undefined ? 1 : 2];
      return `It can’t be ${spoken(written(guess), unit)}: type a number, ${range}.`;
    }

    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const guess = number.valueAsNumber;
      wrong.textContent = wrongOf(guess);
      number.setAttribute("aria-invalid", wrong.textContent !== "");
      if (wrong.textContent) number.focus();
      else answered(guess);
    });
    skip.addEventListener("click", () => answered(null));
    always.addEventListener("click", () => {
      showAll(true);
      answer.tabIndex = -1;
      answer.focus({ preventScroll: true });
    });
    forget.addEventListener("click", () => {
      if (now === undefined) showAll(false);
      keep(key, null);
      set((now = undefined));
      number.value = "";
      (showsAll ? forget : number).focus();
    });

    const before = recall(key)?.guess;
    if (before === null || Number.isFinite(before)) now = before;
    everyQuestion.push(() => set(now));
    set(now);
  }

  for (const ask of document.querySelectorAll("p.manygpu-guess")) {
    const own = `p.manygpu-told[data-name="${ask.dataset.name}"]`;
    const told = document.querySelector(own);
    if (told) askFor(ask, told);
  }

  // A link to what waits leads to its stand-in, which then has the focus.
  function lead() {
    const place = location.hash && document.getElementById(location.hash.slice(1));
    let waits = place ? place.closest(".guess-waits, .guess-hides") : null;
    while (waits?.matches(".guess-hides")) waits = waits.previousElementSibling;
    const box = waits?.querySelector(".guess-stand-in");
    if (!box) return;
    box.scrollIntoView({ block: "nearest" });
    box.focus({ preventScroll: true });
  }
  addEventListener("hashchange", lead);
  lead();
});
