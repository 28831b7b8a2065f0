// What all calculators share. One calculator's own script stands behind it, and calls
// `begin` with its
//   wrong(values): [field, sentence] for each value that doesn't go with the others,
//     if that can be
//   work(values, data): the result, plain numbers
//   shown(result, values, data): the result in words: { said, tables, chosen, links,
//     picture }. `tables` has rows for each table, `chosen` is the row of the first one
//     that is marked, and `picture` makes HTML for so many pixels' width.
// `data` is what Python gave; what it packed is read here, but by no old browser.
const unpacked = async ({ packed, ...data }) => {
  if (!packed) return data;
  if (!("DecompressionStream" in window)) return null;
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const inflate = new DecompressionStream("deflate");
  const inflated = new Response(new Blob([bytes]).stream().pipeThrough(inflate));
  return { ...data, packed: await inflated.json() };
};

const short = (number) =>
  number.toLocaleString("en-US", { maximumSignificantDigits: 3 });
const scaled = (number, units) => {
  const [size, unit] = units.find(([least]) => number >= least) ?? units.at(-1);
  return `${short(number / size)} ${unit}`;
};
const bytes = (number) =>
  scaled(number, [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]]);
const seconds = (number) => scaled(number, [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]);
const percent = (share) => `${short(100 * share)}%`;
const plain = (number) => number.toLocaleString("en-US", { maximumSignificantDigits: 15 });
const counted = (number, noun) => `${plain(number)} ${noun}${number === 1 ? "" : "s"}`;
// How a table's values are written; calculator.py has the same.
const FORMS = {
  text: String, whole: plain, short, percent, bytes, seconds,
  "yes or no": (answer) => (answer ? "yes" : "no"),
};
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
// What terms add up to: each is a number, times values by these names, over others.
const worth = (terms, values) => sum(terms.map(([number, above, below]) => {
  const times = (names) => names.reduce((a, name) => a * values[name], 1);
  return (number * times(above)) / times(below);
}));
const escaped = (text) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

// 1, 2, 4, ... devices, and at last all of them.
const counts = (devices) => {
  const found = [];
  for (let n = 1; n < devices; n *= 2) found.push(n);
  return [...found, devices];
};

// A number as people write it: 25.6, 1,281,167, 3e8.
const NUMBER = /^[+-]?(\d+|\d{1,3}(,\d{3})+)?(\.\d*)?(e[+-]?\d+)?$/i;

// What was typed: { value }, or { wrong } with a sentence.
const read = (input) => {
  const { least, most, size, whole } = input.dataset;
  const text = input.value.replace(/[\s_]/g, "");
  if (!NUMBER.test(text) || !/^[^e]*\d/i.test(text)) {
    return { wrong: `Write a number, such as ${input.defaultValue}.` };
  }
  const number = Number(text.replaceAll(",", ""));
  if (number < Number(least)) return { wrong: `Take at least ${plain(Number(least))}.` };
  if (number > Number(most)) return { wrong: `Take at most ${plain(Number(most))}.` };
  if (whole !== undefined && !Number.isInteger(number)) {
    return { wrong: "Take a whole number." };
  }
  return { value: number * Number(size) };
};

const tableRow = (cells, chosen) => {
  const [first, ...others] = cells.map(escaped);
  const rest = others.map((cell) => `<td>${cell}</td>`).join("");
  return `<tr${chosen ? ' class="chosen"' : ""}><th scope="row">${first}</th>${rest}</tr>`;
};

// What stands for what: [class, words] each.
const legend = (entries) => `<p class="calculator-legend">${entries.map(([kind, words]) =>
  `<span class="${kind}">${escaped(words)}</span>`).join("")}</p>`;

// Bars, a row each below its words. A drawing has
//   rows: { name, values, chosen }, values of the parts from left to right
//   parts: their names
//   limit: { at, name } of a dashed line
//   label: what it shows, for those who don't see it
const [ROW, BAR, SIDE] = [44, 16, 8];

const box = (part, from, to, y) =>
  `<rect class="part-${part}" x="${from.toFixed(1)}" y="${y}" `
  + `width="${(to - from).toFixed(1)}" height="${BAR}"></rect>`;

const bar = ({ name, values, chosen }, top, place) => {
  let end = 0;
  const boxes = values.map((value, part) => {
    end += value;
    return box(part, place(end - value), place(end), top + 20);
  });
  return `<text class="${chosen ? "chosen" : ""}" x="${SIDE}" y="${top + 15}">`
    + `${escaped(name)}</text>${boxes.join("")}`;
};

const bars = ({ rows, parts, limit, label }) => (width) => {
  const ends = rows.map(({ values }) => sum(values));
  const longest = Math.max(...ends, limit?.at ?? 0) || 1;
  const place = (at) => SIDE + (at / longest) * (width - 2 * SIDE);
  const height = ROW * rows.length;
  const dashed = place(limit?.at ?? 0).toFixed(1);
  const line = `<path class="limit" d="M${dashed} 4V${height}"></path>`;
  return `<svg role="img" aria-label="${escaped(label)}" width="${width}" `
    + `height="${height}" viewBox="0 0 ${width} ${height}" `
    + `xmlns="http://www.w3.org/2000/svg">${limit ? line : ""}`
    + `${rows.map((row, i) => bar(row, ROW * i, place)).join("")}</svg>`
    + legend([
      ...parts.map((name, i) => [`part-${i}`, name]),
      ...(limit ? [["limit", limit.name]] : []),
    ]);
};

// A field and what stands beside it.
const placeOf = (control) =>
  control.closest(".calculator-field").querySelector(".calculator-wrong");
const labelOf = (control) =>
  control.closest("label").querySelector("span").firstChild.textContent.trim();

const complain = (control, sentence) => {
  const place = placeOf(control);
  place.textContent = sentence;
  place.hidden = sentence === "";
  control.setAttribute("aria-invalid", String(sentence !== ""));
};

// Beside a slider stands its value.
const showSliders = (controls) => controls.forEach(({ type, value, labels }) => {
  if (type === "range") labels[0].nextElementSibling.textContent = value;
});

// So that a sentence is read with its field; several calculators may be on a page.
const nameSentences = (controls) => controls.forEach((control) => {
  const place = placeOf(control);
  place.id = `manygpu-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`;
  control.setAttribute("aria-describedby", place.id);
});

// All values, or null where a field says what is wrong with it.
const valuesOf = (controls, wrong) => {
  const found = controls.map((control) => [control, control.matches("select")
    ? { value: JSON.parse(control.value) } : read(control)]);
  const values = Object.fromEntries(found.map(([{ name }, { value }]) => [name, value]));
  const right = found.every(([, read]) => read.wrong === undefined);
  const apart = new Map(right ? wrong(values) : []);
  found.forEach(([control, read]) =>
    complain(control, read.wrong ?? apart.get(control.name) ?? ""));
  return right && apart.size === 0 ? values : null;
};

// The address of a page holds what differs from the first values, for each kind:
// #memory?batch=128&devices=16;scaling?devices=4. Options are written by their values.
const firstOf = (control) => (control.matches("input") ? control.defaultValue
  : [...control.options].find((option) => option.defaultSelected).value);
const bare = (control, text = control.value) =>
  (control.matches("input") ? text.replaceAll(",", "") : String(JSON.parse(text)));

const asAddress = (kind, controls) => {
  const changed = controls.filter((control) => control.value !== firstOf(control))
    .map((control) => [control.name, bare(control)]);
  return kind + (changed.length ? `?${new URLSearchParams(changed)}` : "");
};

const addressed = () => new Map(window.location.hash.slice(1).split(";")
  .map((part) => part.split("?")).map(([kind, values = ""]) => [kind, values]));

// Puts the values of the address into the fields; what it doesn't name starts anew.
const restore = (kind, controls) => {
  const wanted = new URLSearchParams(addressed().get(kind) ?? "");
  controls.forEach((control) => {
    const text = wanted.get(control.name);
    const option = [...control.options ?? []].find(({ value }) =>
      bare(control, value) === text);
    control.value = option?.value ?? (control.options ? null : text) ?? firstOf(control);
  });
};

// Only a page of the book: a notebook's address is not ours.
const remember = (kind, own) => {
  if (!window.location.pathname.endsWith(".html")) return;
  const all = addressed();
  const others = [...all].filter(([name, values]) => name !== kind && values)
    .map(([name, values]) => `${name}?${values}`);
  const parts = own.includes("?") ? [...others, own] : others;
  if (parts.length === 0 && !all.has(kind)) return; // another part's anchor may stand
  const { pathname, search } = window.location;
  const hash = parts.length ? `#${parts.join(";")}` : "";
  window.history.replaceState(window.history.state, "", pathname + search + hash);
};

// What an option of a list writes into other fields: [control, text] each.
const writes = (root, option) =>
  Object.entries(JSON.parse(option.value)).map(([name, value]) => {
    const control = root.querySelector(`[name="${name}"]`);
    const { size } = control.dataset;
    return [control, size ? plain(value / Number(size)) : JSON.stringify(value)];
  });

const fill = (root, select) => writes(root, select.selectedOptions[0])
  .forEach(([control, text]) => { control.value = text; });

// A list whose values are edited has them no more: it says "your own numbers".
const disown = (root, { name }) => {
  [...root.querySelectorAll("[data-start]")]
    .filter((select) => name in JSON.parse(select.value))
    .forEach((select) => { select.selectedIndex = select.options.length - 1; });
};

// After values came from elsewhere: the option whose values these are, else the last.
const recognize = (root) => root.querySelectorAll("[data-start]").forEach((select) => {
  const same = (option) => writes(root, option)
    .every(([control, text]) => bare(control) === bare(control, text));
  const found = [...select.selectedOptions, ...select.options].find(same);
  found.selected = true;
});

const writeNotes = (root) => {
  const chosen = [...root.querySelectorAll("[data-start]")]
    .map((select) => select.selectedOptions[0].dataset.note ?? "");
  root.querySelector(".calculator-note").innerHTML = chosen.filter(Boolean).join(" ");
};

const inWords = (rows, columns) => rows.map((row) =>
  columns.map(([key, form]) => FORMS[form](row[key])));

const writeTables = (root, { tables, chosen }) =>
  root.querySelectorAll("tbody").forEach((body, i) => {
    body.innerHTML = tables[i].map((cells, k) =>
      tableRow(cells, i === 0 && k === chosen)).join("");
  });

// A link without an address is a name.
const writeLinks = (list, links = []) => {
  list.innerHTML = links.map(([address, name]) => {
    const text = escaped(name);
    return `<li>${address ? `<a href="${escaped(address)}">${text}</a>` : text}</li>`;
  }).join("");
};

const begin = (kind, { work, shown, wrong = () => [] }) => {
  const start = async (root) => {
    root.dataset.started = "true";
    const find = (selector) => root.querySelector(selector);
    const given = JSON.parse(find('script[type="application/json"]').textContent);
    const data = await unpacked(given);
    if (data === null) return; // this browser is too old: the first result stays
    const controls = [...root.querySelectorAll("[name]")];
    const fields = find(".calculator-fields");
    const [result, picture] = [find(".calculator-result"), find(".calculator-picture")];
    root.calculator = {
      wrong: (values) => wrong(values, data),
      work: (values) => work(values, data),
      shown: (values) => {
        const found = shown(work(values, data), values, data);
        const tables = found.tables.map((rows, i) => inWords(rows, given.columns[i]));
        return { ...found, tables };
      },
    };
    let [width, drawing] = [0, () => ""];

    const draw = () => {
      width = picture.clientWidth || 640;
      picture.innerHTML = drawing(width);
    };

    const show = () => {
      const values = valuesOf(controls, root.calculator.wrong);
      // An old result isn't shown as if it were new; it stays, so that nothing jumps.
      root.classList.toggle("stale", values === null);
      const first = find('[aria-invalid="true"]');
      const look = find(".calculator-look");
      look.textContent = first ? `The result is an old one: look at “${labelOf(first)}”.`
        : "";
      if (values === null) {
        const folded = first.closest("details");
        if (folded) folded.open = true;
        return;
      }
      const own = asAddress(kind, controls);
      find(".calculator-address").setAttribute("href", `#${own}`);
      remember(kind, own);
      const found = root.calculator.shown(values);
      showSliders(controls);
      const said = find(".calculator-said"); // aloud, whenever it is written
      if (said.textContent !== found.said) said.textContent = found.said;
      writeTables(root, found);
      writeLinks(find(".calculator-links"), found.links);
      drawing = found.picture ?? drawing;
      draw();
    };

    fields.addEventListener("input", ({ target }) => {
      if (target.matches("[data-start]")) fill(root, target);
      else disown(root, target);
      writeNotes(root);
      show();
    });
    // Once a number is typed, its thousands are set apart.
    fields.addEventListener("change", ({ target }) => {
      const { value } = target.matches("input") ? read(target) : {};
      if (value !== undefined) target.value = plain(value / Number(target.dataset.size));
    });
    nameSentences(controls);
    find(".calculator-bar").insertAdjacentHTML("beforeend",
      `<a class="calculator-address" href="#${kind}">Link to these values</a>`);
    fields.hidden = false;
    find(".calculator-setting").hidden = true;
    const fromAddress = () => {
      if (!addressed().has(kind)) return false;
      restore(kind, controls);
      recognize(root);
      writeNotes(root);
      controls.filter((control) => control.value !== firstOf(control)).forEach((one) => {
        const folded = one.closest("details");
        if (folded) folded.open = true;
      });
      return true;
    };
    const sent = fromAddress();
    show();
    find(".calculator-address").addEventListener("click", ({ target }) => {
      const copied = () => {
        find(".calculator-look").textContent = "The address is copied.";
      };
      window.navigator.clipboard?.writeText(target.href).then(copied, () => null);
    });
    window.addEventListener("hashchange", () => fromAddress() && show());
    root.dataset.ready = "true";
    const [came] = window.performance.getEntriesByType("navigation");
    if (sent && came?.type === "navigate") root.scrollIntoView();
    // Not when only its height has changed: that was the drawing itself.
    new ResizeObserver(() =>
      picture.clientWidth && picture.clientWidth !== width && draw()).observe(picture);
  };

  const waiting = `.manygpu-calculator[data-kind="${kind}"]:not([data-started])`;
  document.querySelectorAll(waiting).forEach(start);
};
