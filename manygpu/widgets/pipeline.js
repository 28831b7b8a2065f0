// Starts each .manygpu-pipeline that has not been started yet. Every explorer's output
// brings this script; nothing here is global. The functions of schedules do what those
// of the same name in manygpu/scratch/splitting/pipeline.py do, and the picture is the one that
// manygpu/explore_pipeline.py draws.
(() => {
  "use strict";
  const ROUNDS = 2;
  const KINDS = { F: "forward", B: "backward", W: "weights' gradients" };
  const [LEFT, RIGHT, TOP, ROW, AXIS] = [18, 28, 22, 28, 36];
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
  const timed = (orders, cost) => {
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

  const gpipe = (stages, microBatches) => {
    const ms = range(microBatches);
    return range(stages).map((s) => [
      ...ms.map((m) => op("F", s, m)),
      ...ms.map((m) => op("B", s, m)).reverse(),
    ]);
  };

  const oneForwardOneBackward = (stages, microBatches) =>
    range(stages).map((s) => {
      const ahead = Math.min(stages - 1 - s, microBatches);
      const order = range(ahead).map((m) => op("F", s, m));
      range(microBatches).forEach((m) => {
        if (ahead + m < microBatches) order.push(op("F", s, ahead + m));
        order.push(op("B", s, m));
      });
      return order;
    });

  const interleaved = (stages, microBatches, devices) => {
    const rounds = stages / devices;
    const groups = range(Math.ceil(microBatches / devices)).map((g) => g * devices);
    const runs = groups.flatMap((g) =>
      range(rounds).flatMap((r) => range(devices).map((i) => [r, g + i])));
    return range(devices).map((d) => {
      const F = runs.map(([r, m]) => op("F", r * devices + d, m));
      const B = runs.map(([r, m]) => op("B", (rounds - 1 - r) * devices + d, m));
      const later = devices - 1 - d;
      const planned = rounds > 1 ? 2 * later + (rounds - 1) * devices : later;
      const ahead = Math.min(planned, F.length);
      const order = F.slice(0, ahead);
      B.forEach((b, i) => order.push(...F.slice(ahead + i, ahead + i + 1), b));
      return order.filter(({ microBatch }) => microBatch < microBatches);
    });
  };

  const zeroBubble = (stages, microBatches) =>
    range(stages).map((s) => {
      const ahead = Math.min(stages - 1 - s, microBatches);
      const order = range(ahead).map((m) => op("F", s, m));
      range(microBatches).forEach((m) => {
        if (ahead + m < microBatches) order.push(op("F", s, ahead + m));
        order.push(op("B", s, m));
        if (m >= s) order.push(op("W", s, m - s));
      });
      const left = range(microBatches).slice(Math.max(0, microBatches - s));
      return [...order, ...left.map((m) => op("W", s, m))];
    });

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

  const SCHEDULES = {
    gpipe,
    one_forward_one_backward: oneForwardOneBackward,
    interleaved: (p, m) => interleaved(ROUNDS * p, m, p),
    zero_bubble: zeroBubble,
  };

  const ordersOf = ({ schedule, stages, micro_batches: m }) =>
    SCHEDULES[schedule](stages, m);

  const spansOf = (setting) => {
    const parts = setting.schedule === "interleaved" ? ROUNDS : 1;
    const halves = setting.schedule === "zero_bubble" ? 2 : 1;
    const backward = setting.backward / parts / halves;
    const cost = { F: setting.forward / parts, B: backward, W: backward };
    return timed(ordersOf(setting), ({ kind }) => cost[kind]);
  };

  const short = (number) => String(Math.floor(100 * number + 0.5) / 100);

  const place = (device, start, end, scale) =>
    `x="${short(LEFT + scale * start)}" y="${TOP + ROW * device + 2}" `
    + `width="${short(scale * (end - start))}" height="${ROW - 4}"`;

  const waiting = (device, start, end, scale) => {
    if (start === end) return "";
    return `<rect class="waiting" ${place(device, start, end, scale)}></rect>`;
  };

  const box = ({ device, start, end, op: { kind, stage, microBatch } }, setting, scale) => {
    const width = scale * (end - start);
    const part = (stage >= setting.stages ? " later" : "") + (width < 6 ? " thin" : "");
    const fits = width >= 7 * String(setting.micro_batches - 1).length + 1;
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
    return `<text class="left" x="0" y="${y}">${device}</text>`
      + `<text class="right" x="${width}" y="${y}">${peak}</text>`
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
  const svg = (setting, title, spans, peaks, width) => {
    const longest = largest(Object.keys(SCHEDULES).map((schedule) =>
      lengthOf(spansOf({ ...setting, schedule }))));
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

  const result = (share, length, peaks, schedule) => {
    const most = largest(peaks);
    const part = schedule === "interleaved" ? ", each in half a stage" : "";
    return `Bubble ${Math.floor(100 * share + 0.5)}%, ${short(length)} units, at most `
      + `${most} micro-batch${most === 1 ? "" : "es"} in flight on device `
      + `${peaks.indexOf(most)}${part}.`;
  };

  const start = (root) => {
    root.dataset.ready = "true";
    const find = (selector) => root.querySelector(selector);
    const controls = find(".pipeline-controls");
    const picture = find(".pipeline-picture");
    const inputs = [...controls.querySelectorAll("input")];
    const select = controls.querySelector("select");

    let width = 0;

    const draw = () => {
      const chosen = inputs.map((input) => [input.name, Number(input.value)]);
      const setting = { schedule: select.value, ...Object.fromEntries(chosen) };
      const spans = spansOf(setting);
      const peaks = inFlight(ordersOf(setting));
      const [share, length] = [bubble(spans), lengthOf(spans)];
      inputs.forEach((input) => {
        input.nextElementSibling.textContent = input.value;
      });
      const said = find(".pipeline-result");
      const text = result(share, length, peaks, setting.schedule);
      if (said.textContent !== text) said.textContent = text;
      Object.assign(root.dataset, { bubble: share, length, inFlight: peaks.join(" ") });
      const split = setting.schedule === "zero_bubble";
      find(".backward").textContent = split ? "backward: inputs" : "backward";
      find(".weights").hidden = !split;
      find(".later").hidden = setting.schedule !== "interleaved";
      const title = select.selectedOptions[0].textContent;
      width = picture.clientWidth || Number(find("svg").getAttribute("width"));
      picture.innerHTML = svg(setting, title, spans, peaks, width);
    };

    controls.addEventListener("input", draw);
    controls.hidden = false;
    find(".pipeline-setting").hidden = true;
    draw();
    // Not when only its height has changed: that was the drawing itself.
    new ResizeObserver(() => picture.clientWidth !== width && draw()).observe(picture);
  };

  document.querySelectorAll(".manygpu-pipeline:not([data-ready])").forEach(start);
})();
