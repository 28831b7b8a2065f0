// What is wider than the page can be scrolled with the keyboard, too: it takes the focus
// while it is, and is read aloud with a name. A table that fits a phone with less room
// between its columns and smaller letters gets them (book.css). Above the first code that is, a line offers
// to wrap long lines, on all pages; this browser keeps what was chosen.
const tables = ".manygpu-table, .pst-scrollable-table-container";
const boxes = `.manygpu-figure, ${tables}, .stepper-picture, .math-block`;
const scrollers = `${boxes}, div.highlight pre, div.cell_output pre`;

function nameOf(box) {
  const caption = box.querySelector(".manygpu-caption");
  const picture = box.querySelector("svg[aria-label]");
  if (caption) return caption.textContent;
  if (picture) return picture.getAttribute("aria-label");
  if (box.matches(".math-block")) return "Formula";
  return box.closest("div.cell_input") ? "Code" : "Output";
}

function tighten(box) {
  delete box.dataset.tight;
  if (box.scrollWidth <= box.clientWidth) return;
  box.dataset.tight = "";
  if (box.scrollWidth > box.clientWidth) delete box.dataset.tight; // then it may be read
}

function mark(box) {
  if (box.matches(tables)) tighten(box);
  const ours = "scrolls" in box.dataset;
  if (box.hasAttribute("aria-label") && !ours) return; // it has a name and its own keys
  if (box.scrollWidth > box.clientWidth) {
    box.dataset.scrolls = "";
    box.tabIndex = 0;
    if (!box.matches("figure")) box.setAttribute("role", "group"); // that is one already
    box.setAttribute("aria-label", nameOf(box));
  } else if (ours) {
    for (const name of ["tabindex", "role", "aria-label", "data-scrolls"]) {
      box.removeAttribute(name);
    }
  }
}

const WRAPS = "manygpu:wraps-lines"; // "on", or nothing

function wrap(isOn) {
  document.documentElement.classList.toggle("wraps-lines", isOn);
  const line = document.querySelector("p.long-lines");
  if (!line) return;
  line.firstChild.data = `Long lines ${isOn ? "are wrapped" : "scroll sideways"}. `;
  line.lastChild.textContent = isOn ? "Let them scroll" : "Wrap them";
}

function choose(isOn) {
  wrap(isOn);
  try {
    if (isOn) localStorage.setItem(WRAPS, "on");
    else localStorage.removeItem(WRAPS);
  } catch {
    // Then it is remembered until the page is left.
  }
}

// Whether some code has lines that are longer than its box, wrapped or not.
function offer(box) {
  const isOn = document.documentElement.matches(".wraps-lines");
  const isLong = isOn ? box.clientWidth > 0 : "scrolls" in box.dataset;
  if (!isLong || !box.matches("pre") || document.querySelector("p.long-lines")) return;
  const line = document.createElement("p");
  line.className = "long-lines";
  const button = document.createElement("button");
  button.type = "button";
  button.addEventListener("click", () =>
    choose(!document.documentElement.matches(".wraps-lines")));
  line.append(document.createTextNode(""), button);
  const whole = box.closest("div.cell") ?? box.closest("div[class*='highlight-']") ?? box;
  whole.before(line);
  wrap(isOn);
}

document.addEventListener("DOMContentLoaded", () => {
  try {
    if (localStorage.getItem(WRAPS) === "on") wrap(true);
  } catch {
    // No storage here.
  }
  const watch = new ResizeObserver((seen) => {
    for (const { target } of seen) {
      for (const box of [target, target.parentElement]) {
        if (!box.matches(scrollers)) continue;
        mark(box);
        offer(box);
      }
    }
    const line = document.querySelector("p.long-lines"); // a turned phone may need none
    const isOn = document.documentElement.matches(".wraps-lines");
    if (line) line.hidden = !isOn && !document.querySelector("pre[data-scrolls]");
  });
  for (const box of document.querySelectorAll(scrollers)) {
    watch.observe(box);
    // A table may grow where its box doesn't: a calculator writes longer numbers.
    for (const part of box.matches("pre") ? [] : box.children) watch.observe(part);
  }
});
