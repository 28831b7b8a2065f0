// Starts each .manygpu-pipeline that has not been started yet. Every explorer's output
// brings this script; nothing here is global. It makes no plan: it replays those that
// Python has put into the figure, counts, and draws.
(() => {
  "use strict";
  const ROUNDS = 2;
  const KINDS = { F: "forward", B: "backward", W: "weights' gradients" };
  const [LEFT, RIGHT, TOP, ROW, AXIS] = [18, 74, 22, 28, 36];
  const BAR = 40; // pixels, if a device holds the whole batch's activations
  const STEPS = [1, 2, 5, 10, 20, 50, 100];

  const range = (count) => Array.from({ length: count }, (_, i) => i);
  const op = (kind, stage, microBatch) => ({ kind, stage, microBatch });
  const name = ({ kind, stage, microBatch }) => `${kind} ${stage} ${microBatch}`;
  const largest = (numbers) => numbers.reduce((a, b) => Math.max(a, b));

  const needs = ({ kind, stage, microBatch }, stages) => {
    if (kind === "F") return stage > 0 ? [op("F", stage - 1, microBatch)] : [];
    if (kind === "W") return [op("B", stage, microBatch)];
    const own = [op("F", stage, microBatch)];
    return stage < stages - 1 ? [...own, op("B", stage + 1, microBatch)] : own;
  };

  // Each device's operations in the order given, each as early as it can.
  const earliestSpans = (orders, cost) => {
    const stages = 1 + largest(orders.flat().map(({ stage }) => stage));
    const ends = new Map();
    const free = orders.map(() => 0);
    const next = orders.map(() => 0);
    const spans = [];
    const count = orders.flat().length;
    while (spans.length < count) {
      const before = spans.length;
      orders.forEach((order, device) => {
        while (next[device] < order.length) {
          const now = order[next[device]];
          const ready = needs(now, stages).map((needed) => ends.get(name(needed)));
          if (ready.includes(undefined)) break;
          const start = Math.max(free[device], ...ready);
          const end = start + cost(now);
          ends.set(name(now), end);
          free[device] = end;
          next[device] += 1;
          spans.push({ device, start, end, op: now });
        }
      });
      if (spans.length === before) throw new Error("orders can't be run");
    }
    return spans.sort((a, b) => a.start - b.start || a.device - b.device);
  };

  // All plans, a line each: see packed_plans in pipeline.py.
  const unpacked = async (text) => {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const inflate = new DecompressionStream("deflate");
    const plain = new Blob([bytes]).stream().pipeThrough(inflate);
    return (await new Response(plain).text()).split("\n");
  };

  // A device's operations, from its word in a plan: see as_word in pipeline.py.
  const spelledOut = (word, device, stages) => {
    const [next, flying, waiting] = [[0, 0], [[], []], [[], []]];
    return [...word].map((letter) => {
      const kind = letter.toUpperCase();
      const part = letter === kind ? 0 : 1;
      const stage = device + part * stages;
      if (kind === "W") return op("W", stage, waiting[part].shift());
      if (kind === "F") {
        flying[part].push(next[part]);
        return op("F", stage, next[part]++);
      }
      const microBatch = kind === "B" ? flying[part].shift() : flying[part].pop();
      waiting[part].push(microBatch);
      return op("B", stage, microBatch);
    });
  };

  const bubble = (spans) => {
    const devices = 1 + largest(spans.map(({ device }) => device));
    const busy = spans.reduce((sum, { start, end }) => sum + (end - start), 0);
    return 1 - busy / (devices * lengthOf(spans)); // the first starts at 0
  };

  const lengthOf = (spans) => largest(spans.map(({ end }) => end));

  // For each device, the most micro-batches whose activations it holds at once.
  const inFlight = (orders) =>
    orders.map((order) => {
      const last = order.some(({ kind }) => kind === "W") ? "W" : "B";
      let held = 0;
      return largest(order.map(({ kind }) => {
        held += (kind === "F") - (kind === last);
        return held;
      }));
    });

  const spansOf = (setting, orders) => {
    const parts = setting.schedule === "interleaved" ? ROUNDS : 1;
    const halves = setting.schedule === "zero_bubble" ? 2 : 1;
    const backward = setting.backward / parts / halves;
    const cost = { F: setting.forward / parts, B: backward, W: backward };
    return earliestSpans(orders, ({ kind }) => cost[kind]);
  };

  const short = (number) => String(Math.floor(100 * number + 0.5) / 100);

  const place = (device, start, end, scale) =>
    `x="${short(LEFT + scale * start)}" y="${TOP + ROW * device + 2}" `
    + `width="${short(scale * (end - start))}" height="${ROW - 4}"`;

  const waiting = (device, start, end, scale) => {
    if (start === end) return "";
    return `<rect class="waiting" ${place(device, start, end, scale)}></rect>`;
  };

  const fitsInto = (width, setting) =>
    width >= 7 * String(setting.micro_batches - 1).length + 1;

  const box = ({ device, start, end, op: { kind, stage, microBatch } }, setting, scale) => {
    const width = scale * (end - start);
    const part = (stage >= setting.stages ? " later" : "") + (width < 6 ? " thin" : "");
    const fits = fitsInto(width, setting);
    const x = short(LEFT + scale * start + width / 2);
    const text = `<text x="${x}" y="${TOP + ROW * device + 18}">${microBatch}</text>`;
    return `<g class="pipeline-op ${kind}${part}">`
      + `<title>${KINDS[kind]}, micro-batch ${microBatch}, stage ${stage}: `
      + `${short(start)} to ${short(end)}</title>`
      + `<rect ${place(device, start, end, scale)}></rect>${fits ? text : ""}</g>`;
  };

  const row = (device, peak, spans, setting, scale, width) => {
    const y = TOP + ROW * device + 18;
    let at = 0;
    const drawn = spans.filter((span) => span.device === device).map((span) => {
      const gap = waiting(device, at, span.start, scale);
      at = span.end;
      return gap + box(span, setting, scale);
    });
    const parts = setting.schedule === "interleaved" ? ROUNDS : 1;
    const held = short((BAR * peak) / (parts * setting.micro_batches));
    return `<text class="left" x="0" y="${y}">${device}</text>`
      + `<text class="right" x="${width - BAR - 4}" y="${y}">${peak}</text>`
      + `<path class="held" d="M${width - BAR} ${y - 10}h${held}v12h-${held}z"></path>`
      + drawn.join("") + waiting(device, at, lengthOf(spans), scale);
  };

  const axis = (longest, scale, bottom, width) => {
    const step = STEPS.find((s) => s * scale >= 44) ?? STEPS.at(-1);
    const ticks = range(Math.floor(longest / step) + 1).map((k) => {
      const x = short(LEFT + k * step * scale);
      return `<path d="M${x} ${bottom}v5"></path>`
        + `<text x="${x}" y="${bottom + 18}">${k * step}</text>`;
    });
    const middle = short((LEFT + width - RIGHT) / 2);
    return `${ticks.join("")}<text x="${middle}" y="${bottom + 33}">time units</text>`;
  };

  // Numbers and fixed words only: nothing to escape.
  const svg = (setting, title, spans, peaks, longest, width) => {
    const scale = (width - LEFT - RIGHT) / longest;
    const height = TOP + ROW * peaks.length + AXIS;
    const rows = peaks.map((peak, device) =>
      row(device, peak, spans, setting, scale, width));
    const label = `${title} as a Gantt chart: ${setting.stages} stages, `
      + `${setting.micro_batches} micro-batches, a row a device, a box an operation`;
    return `<svg role="img" aria-label="${label}" xmlns="http://www.w3.org/2000/svg" `
      + `viewBox="0 0 ${width} ${height}" width="${width}" height="${height}">`
      + `<text class="left" x="0" y="14">device</text>`
      + `<text class="right" x="${width}" y="14">in flight</text>`
      + `${rows.join("")}${axis(longest, scale, height - AXIS, width)}</svg>`;
  };

  const said = (title, { stages, micro_batches: m, forward, backward }) =>
    `${title}: ${stages} stages, ${m} micro-batches, forward passes of ${forward}, `
    + `backward passes of ${backward} time units.`;

  const formula = ({ stages, micro_batches: m }) =>
    "GPipe and 1F1B, whatever a pass costs: (stages - 1) / (micro-batches + stages - 1) "
    + `= ${stages - 1}/${m + stages - 1} = `
    + `${Math.floor((100 * (stages - 1)) / (m + stages - 1) + 0.5)}%.`;

  const result = (share, length, peaks, schedule) => {
    const most = largest(peaks);
    const part = schedule === "interleaved" ? ", each in half a stage" : "";
    return `Bubble ${Math.floor(100 * share + 0.5)}%, ${short(length)} units, at most `
      + `${most} micro-batch${most === 1 ? "" : "es"} in flight on device `
      + `${peaks.indexOf(most)}${part}.`;
  };

  const start = async (root) => {
    root.dataset.started = "true";
    if (!("DecompressionStream" in window)) return; // the still picture stays
    const lines = await unpacked(root.dataset.plans);
    const find = (selector) => root.querySelector(selector);
    const controls = find(".pipeline-controls");
    const picture = find(".pipeline-picture");
    const inputs = [...controls.querySelectorAll("input")];
    const select = controls.querySelector("select");

    const schedules = [...select.options].map(({ value }) => value);
    const [most, mostMicro] = ["stages", "micro_batches"].map((name) =>
      Number(find(`[name=${name}]`).max));

    const ordersOf = ({ schedule, stages, micro_batches: m }) => {
      const block = schedules.indexOf(schedule) * most + stages - 1;
      const words = lines[block * mostMicro + m - 1].split("/");
      return words.map((word, device) => spelledOut(word, device, stages));
    };

    const lengthBy = (setting) => lengthOf(spansOf(setting, ordersOf(setting)));

    let width = 0;

    const draw = () => {
      const chosen = inputs.map((input) => [input.name, Number(input.value)]);
      const setting = { schedule: select.value, ...Object.fromEntries(chosen) };
      const orders = ordersOf(setting);
      const [spans, peaks] = [spansOf(setting, orders), inFlight(orders)];
      // The axis is the same for all schedules: a shorter one is seen to be shorter.
      const each = schedules.map((schedule) => lengthBy({ ...setting, schedule }));
      const [share, length] = [bubble(spans), lengthOf(spans)];
      inputs.forEach((input) => {
        input.nextElementSibling.textContent = input.value;
        input.setAttribute("aria-valuetext", `${input.value} ${input.dataset.unit}`);
      });
      const title = select.selectedOptions[0].textContent;
      const place = find(".pipeline-result");
      const text = result(share, length, peaks, setting.schedule);
      if (place.textContent !== text) place.textContent = text;
      find(".pipeline-setting").textContent = said(title, setting); // for paper
      find(".pipeline-formula").textContent = formula(setting);
      Object.assign(root.dataset, { bubble: share, length, inFlight: peaks.join(" ") });
      const split = setting.schedule === "zero_bubble";
      find(".backward").textContent = split ? "backward: inputs" : "backward";
      find(".weights").hidden = !split;
      find(".later").hidden = setting.schedule !== "interleaved";
      width = picture.clientWidth || 720;
      picture.innerHTML = svg(setting, title, spans, peaks, largest(each), width);
      const scale = (width - LEFT - RIGHT) / largest(each);
      const narrowest = spans.reduce((w, s) => Math.min(w, s.end - s.start), Infinity);
      find(".pipeline-thin").hidden = fitsInto(scale * narrowest, setting);
    };

    controls.addEventListener("input", draw);
    controls.hidden = false;
    find(".pipeline-setting").hidden = true;
    draw();
    root.dataset.ready = "true";
    // Not when only its height has changed: that was the drawing itself.
    new ResizeObserver(() => picture.clientWidth !== width && draw()).observe(picture);
  };

  document.querySelectorAll(".manygpu-pipeline:not([data-started])").forEach(start);
})();
