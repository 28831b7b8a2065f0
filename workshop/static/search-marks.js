// The page that a search led to marks the words that were looked for, and a quiet line says
// so. Escape takes the marks away. Nothing of the page changes (CSS Custom Highlight API),
// so code keeps its inks; a browser that can't paint so marks nothing.
document.addEventListener("DOMContentLoaded", () => {
  const KEY = "manygpu:searched"; // kept by search-results.js, when a result is opened
  const words = (localStorage.getItem(KEY) ?? "").split(" ").filter(Boolean);
  const article = document.querySelector("article.bd-article");
  const place = document.getElementById("searchbox");
  localStorage.removeItem(KEY);
  if (!words.length || !article || !place || !globalThis.CSS?.highlights) return;

  const marks = new Highlight();
  marks.priority = 1; // above the inks of code
  const walk = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode;
    if (node.parentElement.closest("script, style, button, option")) continue;
    const text = node.data.toLowerCase();
    for (const word of text.length === node.length ? words : []) {
      for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + 1)) {
        const ends = { startContainer: node, startOffset: at, endContainer: node };
        marks.add(new StaticRange({ ...ends, endOffset: at + word.length }));
      }
    }
  }
  if (!marks.size) return;

  const line = document.createElement("p");
  const hide = document.createElement("button");
  const hideThem = () => {
    CSS.highlights.delete("searched");
    line.remove();
  };
  line.className = "search-marks";
  line.textContent = "The words of your search are marked. ";
  hide.type = "button";
  hide.textContent = "Hide the marks (Esc)";
  hide.addEventListener("click", hideThem);
  document.addEventListener("keydown", ({ key }) => {
    if (key === "Escape" && !document.querySelector("dialog[open]")) hideThem();
  });
  line.append(hide);
  place.append(line);
  CSS.highlights.set("searched", marks);
});
