// Python in a worker: it can be stopped whatever it does, and the page goes on meanwhile.
import { loadPyodide } from "./pyodide/pyodide.mjs";

const at = (name) => new URL(name, import.meta.url).href;

const start = async () => {
  const packed = fetch(at("manygpu.zip")).then((answer) => answer.arrayBuffer());
  const python = await loadPyodide({ indexURL: at("pyodide/") });
  python.unpackArchive(await packed, "zip"); // where Python looks for modules first
  return python.pyimport("manygpu.exercises.puzzles.in_page").run;
};

const started = start();
started.then(
  () => self.postMessage({ ready: true }),
  (error) => self.postMessage({ failed: String(error) }),
);

self.addEventListener("message", async ({ data: { name, source } }) => {
  const run = await started;
  try {
    self.postMessage({ found: JSON.parse(run(name, source)) });
  } catch (error) { // such as a recursion that no Python catches
    const last = String(error.message ?? error).trim().split("\n").at(-1);
    self.postMessage({ failed: last });
  }
});
