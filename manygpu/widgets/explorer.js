// The pipeline explorer. It makes no plan: it replays those that Python has put into the
// page, counts, and draws.
const KINDS = { F: "forward", B: "backward", W: "weights' gradients" };
const PARTS = { F: "part-0", B: "part-1", W: "part-2" };
const [LEFT, RIGHT, TOP, LANE, AXIS] = [18, 74, 22, 28, 36];
const HELD = 40; // pixels, if a device holds the whole batch's activations
const STEPS = [1, 2, 5, 10, 20, 50, 100];

const largest = (numbers) => numbers.reduce((a, b) => Math.max(a, b));
const lengthOf = (spans) => largest(spans.map(({ end }) => end));
const partsOf = ({ schedule }) => (schedule === "interleaved" ? 2 : 1);
const splits = ({ schedule }) => schedule === "zero_bubble";

// A device's operations from its word in a plan: see as_word in pipeline.py.
const spelledOut = (word, device, stages) => word.match(/[a-z]\d+/gi).map((said) => {
  const kind = said[0].toUpperCase();
  const stage = device + (kind === said[0] ? 0 : stages);
  return { kind, stage, microBatch: Number(said.slice(1)) };
});

// The operations that one waits for, by name.
const needs = ({ kind, stage, microBatch }, stages) => {
  const before = {
    F: stage > 0 ? [`F${stage - 1}`] : [],
    B: [`F${stage}`, ...(stage < stages - 1 ? [`B${stage + 1}`] : [])],
    W: [`B${stage}`],
  };
  return before[kind].map((name) => `${name} ${microBatch}`);
};

// Each device's operations in the order given, each as early as it can.
const earliestSpans = (orders, cost) => {
  const stages = 1 + largest(orders.flat().map(({ stage }) => stage));
  const [ends, spans, free] = [new Map(), [], orders.map(() => 0)];
  const waiting = orders.map((order) => [...order]);
  while (waiting.some((order) => order.length)) {
    waiting.forEach((order, device) => {
      while (order.length) {
        const [op, ready] = [order[0], needs(order[0], stages).map((n) => ends.get(n))];
        if (ready.includes(undefined)) return;
        const start = Math.max(free[device], ...ready);
        free[device] = start + cost[op.kind];
        ends.set(`${op.kind}${op.stage} ${op.microBatch}`, free[device]);
        spans.push({ ...op, device, start, end: free[device] });
        order.shift();
      }
    });
  }
  return spans;
};

const bubbleOf = (spans, devices) => {
  const busy = sum(spans.map(({ start, end }) => end - start));
  return 1 - busy / (devices * lengthOf(spans)); // the first starts at 0
};

// For each device, the most micro-batches whose activations it holds at once.
const inFlight = (orders, last) => orders.map((order) => {
  let held = 0;
  return largest(order.map(({ kind }) => {
    held += (kind === "F") - (kind === last);
    return held;
  }));
});

const spansOf = (v, orders) => {
  const backward = v.backward / partsOf(v) / (splits(v) ? 2 : 1);
  return earliestSpans(orders, { F: v.forward / partsOf(v), B: backward, W: backward });
};

const place = (device, start, end, scale) =>
  `x="${(LEFT + scale * start).toFixed(2)}" y="${TOP + LANE * device + 2}" `
  + `width="${(scale * (end - start)).toFixed(2)}" height="${LANE - 4}"`;

const gap = (device, start, end, scale) => (start === end ? ""
  : `<rect class="waiting" ${place(device, start, end, scale)}></rect>`);

const fitsInto = (width, v) => width >= 7 * String(v.micro_batches - 1).length + 1;

const boxOf = ({ device, start, end, kind, stage, microBatch }, v, scale) => {
  const width = scale * (end - start);
  const look = (stage >= v.stages ? " later" : "") + (width < 6 ? " thin" : "");
  const x = (LEFT + scale * start + width / 2).toFixed(2);
  const text = `<text x="${x}" y="${TOP + LANE * device + 18}">${microBatch}</text>`;
  return `<g class="operation ${PARTS[kind]}${look}">`
    + `<title>${KINDS[kind]}, micro-batch ${microBatch}, stage ${stage}: `
    + `${plain(start)} to ${plain(end)}</title>`
    + `<rect ${place(device, start, end, scale)}></rect>${fitsInto(width, v) ? text : ""}`
    + "</g>";
};

const lane = (device, { spans, peaks }, v, scale, width) => {
  const y = TOP + LANE * device + 18;
  let at = 0;
  const drawn = spans.filter((span) => span.device === device).map((span) => {
    const before = gap(device, at, span.start, scale);
    at = span.end;
    return before + boxOf(span, v, scale);
  });
  const held = ((HELD * peaks[device]) / (partsOf(v) * v.micro_batches)).toFixed(2);
  return `<text class="left" x="0" y="${y}">${device}</text>`
    + `<text class="right" x="${width - HELD - 4}" y="${y}">${peaks[device]}</text>`
    + `<path class="held" d="M${width - HELD} ${y - 10}h${held}v12h-${held}z"></path>`
    + drawn.join("") + gap(device, at, lengthOf(spans), scale);
};

const axis = (longest, scale, bottom, width) => {
  const step = STEPS.find((s) => s * scale >= 44) ?? STEPS.at(-1);
  const ticks = [...Array(Math.floor(longest / step) + 1).keys()].map((k) => {
    const x = (LEFT + k * step * scale).toFixed(2);
    return `<path d="M${x} ${bottom}v5"></path>`
      + `<text x="${x}" y="${bottom + 18}">${k * step}</text>`;
  });
  const middle = (LEFT + width - RIGHT) / 2;
  return `${ticks.join("")}<text x="${middle}" y="${bottom + 33}">time units</text>`;
};

const percents = (share) => `${(100 * share).toFixed(0)}%`;

const formula = ({ stages, micro_batches: m }) =>
  "GPipe and 1F1B, whatever a pass costs: (stages - 1) / (micro-batches + stages - 1) "
  + `= ${stages - 1}/${m + stages - 1} = ${percents((stages - 1) / (m + stages - 1))}.`;

// Numbers and fixed words only: nothing to escape.
const drawn = (found, v, title, width) => {
  const scale = (width - LEFT - RIGHT) / found.longest;
  const height = TOP + LANE * v.stages + AXIS;
  const lanes = found.peaks.map((_, device) => lane(device, found, v, scale, width));
  const label = `${title} as a Gantt chart: ${v.stages} stages, `
    + `${v.micro_batches} micro-batches, a row a device, a box an operation`;
  const narrowest = Math.min(...found.spans.map(({ start, end }) => end - start));
  const kinds = legend([
    ["part-0", "forward"],
    ["part-1", splits(v) ? "backward: inputs" : "backward"],
    ...(splits(v) ? [["part-2", "backward: weights"]] : []),
    ...(partsOf(v) === 2 ? [["later", "stronger: second half of each stage"]] : []),
    ["waiting", "waiting"],
  ]);
  const thin = fitsInto(scale * narrowest, v) ? "" : '<p class="note">Too narrow for '
    + "their numbers: point at a box, or take fewer micro-batches.</p>";
  return `<p class="note">${formula(v)}</p>${kinds}${thin}`
    + `<svg role="img" aria-label="${label}" xmlns="http://www.w3.org/2000/svg" `
    + `viewBox="0 0 ${width} ${height}" width="${width}" height="${height}">`
    + `<text class="left" x="0" y="14">device</text>`
    + `<text class="right" x="${width}" y="14">in flight</text>`
    + `${lanes.join("")}${axis(found.longest, scale, height - AXIS, width)}</svg>`;
};

begin("explorer", {
  work: (v, { names, most, packed }) => {
    const schedules = Object.keys(names);
    // By schedule, stages, micro-batches.
    const ordersOf = (schedule) => packed[
      (schedules.indexOf(schedule) * most.stages + v.stages - 1) * most.micro_batches
      + v.micro_batches - 1].map((word, device) => spelledOut(word, device, v.stages));
    const orders = ordersOf(v.schedule);
    const spans = spansOf(v, orders);
    // The axis is the same for all schedules: a shorter one is seen to be shorter.
    const lengths = schedules.map((schedule) =>
      lengthOf(spansOf({ ...v, schedule }, ordersOf(schedule))));
    return {
      spans, bubble: bubbleOf(spans, v.stages), length: lengthOf(spans),
      longest: largest(lengths), peaks: inFlight(orders, splits(v) ? "W" : "B"),
    };
  },

  shown: (found, v, { names }) => {
    const most = largest(found.peaks);
    const said = `Bubble ${percents(found.bubble)}, ${plain(found.length)} units, at `
      + `most ${most} micro-batch${most === 1 ? "" : "es"} in flight on device `
      + `${found.peaks.indexOf(most)}${partsOf(v) === 2 ? ", each in half a stage" : ""}.`;
    const picture = (width) => drawn(found, v, names[v.schedule], width);
    return { said, tables: [], picture };
  },
});
