// Puzzles: a reader's answer is run by Python in a worker. Nothing of that is fetched
// before the first Run. Answers and scores are kept in this browser.
{
  const here = new URL(".", document.currentScript.src);
  const LIMIT_S = 20; // of a run
  const python = document.querySelector(".puzzle-python");
  const megabytes = Math.round(Number(python?.dataset.bytes) / 1e6);
  const NOWHERE = "Python can't be fetched from here. Pages that are opened from a disk " +
    "can't fetch anything: `make serve` serves them.";
  let worker = null; // is made by the first Run, and anew after a Stop
  let ready = null;
  let running = null; // the puzzle that is run, and how to break it off

  const keyOf = (root) => `manygpu:puzzle:${root.dataset.puzzle}`;
  const kept = (root) => {
    try {
      return JSON.parse(localStorage.getItem(keyOf(root))) ?? {};
    } catch {
      return {}; // a browser that keeps nothing, or what isn't ours
    }
  };
  const keep = (root, what) => {
    try {
      localStorage.setItem(keyOf(root), JSON.stringify({ ...kept(root), ...what }));
    } catch { /* then it isn't kept */ }
  };

  // What the worker says next; rejected if it says that it failed.
  const heard = () => new Promise((resolve, reject) => {
    worker.onmessage = ({ data }) => {
      if ("failed" in data) reject(new Error(data.failed));
      else resolve(data);
    };
    worker.onerror = () => reject(new Error(NOWHERE));
  });

  const end = () => {
    worker?.terminate();
    worker = null;
    ready = null;
  };

  const begin = () => {
    if (worker) return;
    worker = new Worker(new URL("worker.js", here), { type: "module" });
    ready = heard();
  };

  const part = (root, name) => root.querySelector(`.puzzle-${name}`);
  const button = (root, does) => root.querySelector(`[data-does="${does}"]`);
  const say = (root, words) => { part(root, "said").textContent = words; };

  const look = (root, isRunning) => {
    root.toggleAttribute("data-running", isRunning);
    button(root, "run").setAttribute("aria-disabled", String(isRunning));
    if (!isRunning && document.activeElement === button(root, "stop")) {
      button(root, "run").focus();
    }
    button(root, "stop").hidden = !isRunning;
  };

  const clear = (root) => {
    delete root.dataset.result;
    part(root, "printed").hidden = true;
    part(root, "drawing").replaceChildren();
  };

  const show = (root, found, answer) => {
    say(root, found.words);
    root.dataset.result = found.solved ? "solved" : found.score === null ? "refused" : "scored";
    part(root, "printed").textContent = found.printed;
    part(root, "printed").hidden = !found.printed;
    part(root, "drawing").innerHTML = found.drawing; // the package's own SVG
    const before = kept(root).score ?? Infinity;
    if (found.score !== null && found.score <= before) {
      const { score, bound, solved } = found;
      keep(root, { score, bound, solved, answer });
    }
  };

  const limited = (work) => {
    const stopped = new Promise((_, reject) => { running.stop = reject; });
    const late = () => running?.stop(new Error(`Stopped after ${LIMIT_S} seconds.`));
    const timer = setTimeout(late, LIMIT_S * 1000);
    return Promise.race([work, stopped]).finally(() => clearTimeout(timer));
  };

  const run = async (root) => {
    if (running) return;
    running = { root };
    const answer = root.querySelector("textarea").value;
    clear(root);
    look(root, true);
    try {
      if (!worker) say(root, `Fetching Python, ${megabytes} MB ...`);
      begin();
      const stopped = new Promise((_, reject) => { running.stop = reject; });
      await Promise.race([ready, stopped]);
      say(root, "Running ...");
      const found = heard();
      worker.postMessage({ name: root.dataset.puzzle, source: answer });
      show(root, (await limited(found)).found, answer);
    } catch (error) {
      end();
      say(root, error.name === "SecurityError" ? NOWHERE : error.message);
      root.dataset.result = "refused";
    }
    running = null;
    look(root, false);
  };

  const reset = (root) => {
    const field = root.querySelector("textarea");
    field.value = field.defaultValue;
    keep(root, { draft: field.value });
    clear(root);
    say(root, "");
    field.focus();
  };

  const does = {
    run,
    reset,
    stop: () => running?.stop(new Error("Stopped.")),
  };

  const open = (root) => {
    const field = root.querySelector("textarea");
    const { draft, answer } = kept(root);
    field.value = draft ?? answer ?? field.value;
    field.addEventListener("input", () => keep(root, { draft: field.value }));
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      run(root);
    });
    if (!megabytes) return; // the page says why nothing runs
    part(root, "buttons").hidden = false;
    for (const each of root.querySelectorAll("[data-does]")) {
      each.addEventListener("click", () => does[each.dataset.does](root));
    }
    root.dataset.ready = "true";
  };

  document.querySelectorAll(".manygpu-puzzle").forEach(open);
}
