// Colours code without an element for each word of it (CSS Custom Highlight API).
// data-inks="k3.5 s1.2": ink k on five letters after three, ink s on two after one.
document.addEventListener("DOMContentLoaded", () => {
  const inks = globalThis.CSS?.highlights;
  for (const pre of inks ? document.querySelectorAll("pre[data-inks]") : []) {
    const texts = [];
    const walk = document.createTreeWalker(pre, NodeFilter.SHOW_TEXT);
    for (let at = 0; walk.nextNode(); at += walk.currentNode.length) {
      texts.push({ node: walk.currentNode, at });
    }
    let end = 0;
    for (const word of pre.dataset.inks.split(" ")) {
      const [gap, size] = word.slice(1).split(".").map(Number);
      const start = end + gap;
      end = start + size;
      const { node, at } = texts.findLast(({ at }) => at <= start);
      const place = { startContainer: node, startOffset: start - at };
      const stretch = new StaticRange({ ...place, endContainer: node, endOffset: end - at });
      if (!inks.has(word[0])) inks.set(word[0], new Highlight());
      inks.get(word[0]).add(stretch);
    }
  }
});
