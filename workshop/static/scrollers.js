// What is wider than the page can be scrolled with the keyboard, too: it takes the focus
// while it is, and is read aloud with a name.
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

function mark(box) {
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

document.addEventListener("DOMContentLoaded", () => {
  const watch = new ResizeObserver((seen) => {
    for (const { target } of seen) {
      for (const box of [target, target.parentElement]) if (box.matches(scrollers)) mark(box);
    }
  });
  for (const box of document.querySelectorAll(scrollers)) {
    watch.observe(box);
    // A table may grow where its box doesn't: a calculator writes longer numbers.
    for (const part of box.matches("pre") ? [] : box.children) watch.observe(part);
  }
});
