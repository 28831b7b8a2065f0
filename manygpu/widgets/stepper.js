// Steps through the frames of each .manygpu-stepper that has not been started yet.
const PAUSE_MS = 1400;

const drawMessages = (group, messages) => {
  const fresh = group.cloneNode(false); // a new element: its animation starts anew
  fresh.innerHTML = messages;
  group.replaceWith(fresh);
};

const drawCells = (root, { values, changed }) => {
  root.querySelectorAll(".stepper-cell").forEach((cell, i) => {
    cell.classList.toggle("changed", changed.includes(i));
    cell.querySelector("text").textContent = values[i];
  });
};

const start = (root) => {
  root.dataset.ready = "true";
  const data = root.querySelector('script[type="application/json"]');
  const { frames } = JSON.parse(data.textContent);
  const last = frames.length - 1;
  const caption = root.querySelector(".stepper-caption");
  const button = (name) => root.querySelector(`[data-step="${name}"]`);
  let at = 0;
  let timer = null;

  const show = (k) => {
    at = Math.min(Math.max(k, 0), last);
    drawCells(root, frames[at]);
    drawMessages(root.querySelector(".stepper-messages"), frames[at].messages);
    caption.textContent = `Picture ${at + 1} of ${last + 1}. ${frames[at].caption}`;
    button("previous").setAttribute("aria-disabled", String(at === 0));
    button("next").setAttribute("aria-disabled", String(at === last));
  };

  const pause = () => {
    clearInterval(timer);
    timer = null;
    button("play").textContent = "Play";
    button("play").setAttribute("aria-label", "Play all pictures");
  };

  const tick = () => {
    if (root.isConnected && at < last) show(at + 1);
    if (!root.isConnected || at === last) pause();
  };

  const play = () => {
    if (timer !== null) return pause();
    if (at === last) show(0);
    button("play").textContent = "Pause";
    button("play").setAttribute("aria-label", "Pause");
    timer = setInterval(tick, PAUSE_MS);
  };

  const go = (k) => {
    pause();
    show(k);
  };

  const keys = {
    ArrowLeft: () => go(at - 1),
    ArrowRight: () => go(at + 1),
    Home: () => go(0),
    End: () => go(last),
  };

  root.addEventListener("keydown", (event) => {
    const held = event.ctrlKey || event.altKey || event.metaKey || event.shiftKey;
    if (held || !Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
  });
  button("previous").addEventListener("click", () => go(at - 1));
  button("next").addEventListener("click", () => go(at + 1));
  button("play").addEventListener("click", play);
  root.querySelector(".stepper-buttons").hidden = false;
  root.querySelector(".stepper-steps").hidden = true;
  show(0);
};

document.querySelectorAll(".manygpu-stepper:not([data-ready])").forEach(start);
