// Colours a block of code when it comes into view, without an element for each word.
// data-inks="k3.5 a1.2": ink k on five letters after three, ink a on two after one.
function textNodes(pre) {
  const found = [];
  const walk = document.createTreeWalker(pre, NodeFilter.SHOW_TEXT);
  for (let at = 0; walk.nextNode(); at += walk.currentNode.length) {
    found.push({ node: walk.currentNode, at });
  }
  return found;
}

function stretches(pre) {
  const texts = textNodes(pre);
  const point = (offset) => {
    const { node, at } = texts.findLast(({ at }) => at <= offset);
    return [node, offset - at];
  };
  let end = 0;
  return pre.dataset.inks.split(" ").map((word) => {
    const [gap, size] = word.slice(1).split(".").map(Number);
    const range = document.createRange();
    range.setStart(...point(end + gap));
    end += gap + size;
    const [node, offset] = point(end - 1);
    range.setEnd(node, offset + 1);
    return { ink: `ink-${word[0]}`, range };
  });
}

const painted = globalThis.CSS?.highlights;

function paint(pre) {
  const found = stretches(pre);
  delete pre.dataset.inks;
  for (const { ink, range } of found) {
    if (painted) {
      if (!painted.has(ink)) painted.set(ink, new Highlight());
      painted.get(ink).add(new StaticRange(range));
    } else {
      const word = document.createElement("span");
      word.className = ink;
      word.append(range.extractContents());
      range.insertNode(word);
    }
  }
}

document.addEventListener("DOMContentLoaded", () => {
  const seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      if (target.dataset.inks) paint(target);
    }
  }, { rootMargin: "50%" });
  for (const pre of document.querySelectorAll("pre[data-inks]")) seen.observe(pre);
});
window.addEventListener("beforeprint", () => {
  for (const pre of document.querySelectorAll("pre[data-inks]")) paint(pre);
});
