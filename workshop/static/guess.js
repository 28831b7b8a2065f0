// Guess first: a page without a kernel asks for the number that its notebook asks for
// (manygpu/exercises/guessing.py), and shows what was measured once you have answered.
// This browser keeps the answer. Without this script, and on paper, all is shown.
document.addEventListener("DOMContentLoaded", () => {
  const make = (tag, words = "", more = {}) =>
    Object.assign(document.createElement(tag), { textContent: words }, more);
  const outputs = [...document.querySelectorAll("div.cell_output")];
  const after = (one, other) => one.compareDocumentPosition(other) & 4;
  const spoken = (value, unit) => `${value}${unit && unit !== "%" ? " " : ""}${unit}`;

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

  function askFor(ask, told) {
    const { name, unit } = ask.dataset;
    const { foreseen, measured } = told.dataset;
    const key = `manygpu:guess:${name}`;
    const id = `guess-${name.replace("/", "-")}`;
    const end = told.closest("div.cell_output");
    const between = outputs.filter((o) => after(ask, o) && (o === end || after(o, end)));

    const label = make("label", "", { htmlFor: id });
    label.append(...ask.childNodes);
    ask.append(label);
    const number = make("input", "", { id, type: "number", step: "any", required: true });
    const show = make("button", "Show");
    const skip = make("button", "I’d rather see it", { type: "button" });
    const wrong = make("span", "", { id: `${id}-wrong`, className: "wrong" });
    wrong.setAttribute("role", "alert");
    number.setAttribute("aria-describedby", `${id}-unit ${wrong.id}`);
    const form = make("form", "", { className: "guess-form", noValidate: true });
    form.append(number, make("span", unit, { id: `${id}-unit` }), show, skip, wrong);
    const said = make("span");
    said.setAttribute("role", "status");
    const forget = make("button", "Forget it", { type: "button", className: "forget" });
    const answer = make("div", "", { className: "guess-answer" });
    const root = document.documentElement.dataset.content_root ?? "";
    const all = make("a", "Your results", { href: `${root}book/back/results.html` });
    answer.append(said, forget, all);
    const three = make("dl", "", { className: "guess-three" });
    for (const line of [ask, told]) {
      line.closest("div.cell").querySelector("details")?.remove(); // code for a kernel
    }

    // The words of the line, such as "found 1.43 times (1.31 to 1.50)".
    function partOf(kind) {
      const words = told.querySelector(`.told-${kind}`)?.textContent;
      return words?.replace(/^(foreseen|found) /, "");
    }

    function set(guess) {
      const has = guess !== undefined;
      for (const part of has ? [form] : [answer, three]) part.remove();
      ask.after(has ? answer : form);
      told.hidden = has;
      for (const output of between) output.classList.toggle("guess-waits", !has);
      if (!has) return;
      told.after(three);
      const own = guess === null ? "no guess" : spoken(guess.toLocaleString("en"), unit);
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

    function answered(guess) {
      const [numberOf, page] = [(s) => (s === undefined ? null : Number(s)), name.split("/")[0]];
      const values = { foreseen: numberOf(foreseen), measured: numberOf(measured) };
      keep(key, { guess, ...values, unit, page });
      set(guess);
      answer.tabIndex = -1;
      answer.focus({ preventScroll: true });
    }

    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const guess = number.valueAsNumber;
      const isOne = Number.isFinite(guess);
      wrong.textContent = isOne ? "" : "Type a number, or have it shown without one.";
      number.setAttribute("aria-invalid", !isOne);
      if (isOne) answered(guess);
      else number.focus();
    });
    skip.addEventListener("click", () => answered(null));
    forget.addEventListener("click", () => {
      keep(key, null);
      set();
      number.value = "";
      number.focus();
    });

    const before = recall(key)?.guess;
    const isGuess = before === null || Number.isFinite(before);
    set(isGuess ? before : undefined);

    // A link to what is hidden leads to the question.
    function lead() {
      const place = location.hash && document.getElementById(location.hash.slice(1));
      if (place && place.closest(".guess-waits")) ask.scrollIntoView();
    }
    addEventListener("hashchange", lead);
    lead();
  }

  for (const ask of document.querySelectorAll("p.manygpu-guess")) {
    const own = `p.manygpu-told[data-name="${ask.dataset.name}"]`;
    const told = document.querySelector(own);
    if (told) askFor(ask, told);
  }
});
