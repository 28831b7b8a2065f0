// Data parallel training: sums whose numbers manygpu/choosing/formulas.py has found.

// The longest chain of a step. A layer's gradients are summed in a ring; between
// machines, in two levels where that is faster.
const stepSeconds = (n, batch, v, { step }) => {
  const samples = batch / n;
  const at = { ...v, n, samples, nodes: n / v.gpus, per: v.gpus / v.cards };
  const far = { ...at, latency: v.far_latency, link: v.far_link };
  at.sums = n <= v.gpus ? worth(step.ring, at)
    : Math.min(worth(step.ring, far), worth(step.levels, at));
  for (const name of ["forward", "backward", "update"]) at[name] = worth(step[name], at);
  return Math.max(...step.chains.map((chain) => worth(chain, at)));
};

const evenCounts = (v) => counts(v.devices).filter((n) =>
  (n <= v.gpus || n % v.gpus === 0) && (v.each || v.batch % n === 0));

// Bytes of a whole replica with Adam, all its samples at once, and one at a time.
const held = (batch, v, { room, replica, fits }) => {
  const [state, sample] = [worth(replica.state, v), worth(replica.sample, v)];
  const [all, least] = [batch, 1].map((at) => state + at * sample);
  const fitting = [all, least].filter((size) => size <= room * v.capacity).length;
  return { held: all, least, fits: fits[fitting] };
};

const billOf = (rows) => {
  const parts = [...new Set([rows.at(-1), rows[0]])].map((row) => {
    const more = row.billed === row.devices ? "" : ` (billed as ${plain(row.billed)})`;
    return `${short(row.dollars)} dollars${more}`;
  });
  return `A million samples cost ${parts.join(", on one device ")}.`;
};

const fewerOf = (rows) => {
  const best = rows.reduce((a, b) => (b.speedup > a.speedup ? b : a));
  if (best.speedup <= rows.at(-1).speedup) return "";
  if (best.devices === 1) return " One device is faster.";
  return ` Fewer are faster: ${counted(best.devices, "device")}, `
    + `${short(best.speedup)} times.`;
};

const fitOf = (row, v, { room, fits: [no, , yes] }) => {
  const of = `of the ${bytes(room * v.capacity)} that may be filled`;
  if (row.fits === yes) return "";
  if (row.fits === no) {
    return " It doesn't fit: a whole replica with one sample takes "
      + `${bytes(row.least)} ${of}.`;
  }
  return ` It fits in micro-batches only: all at once takes ${bytes(row.held)} ${of}.`;
};

// What the cost calculator asks.
const handedOn = (rows) => {
  const [first, last] = [rows[0], rows.at(-1)];
  const hours = ((first.seconds / first.batch) * 1e6) / 3600;
  const said = " For the cost calculator: a million samples take one device "
    + `${short(hours)} hours`;
  if (last.devices === 1) return `${said}.`;
  const kept = last.efficiency ** (1 / Math.log2(last.devices));
  return `${said}; on average, a doubling keeps ${percent(kept)} of the efficiency.`;
};

begin("scaling", {
  wrong: (v) => {
    if (v.gpus % v.cards) {
      return [["cards", `They serve ${plain(v.gpus)} devices: take a divisor of it.`]];
    }
    if (v.devices > v.gpus && v.devices % v.gpus) {
      const gpus = plain(v.gpus);
      return [["devices", `A machine has ${gpus}: take a multiple of ${gpus}.`]];
    }
    if (v.each || v.batch % v.devices === 0) return [];
    const devices = plain(v.devices);
    return [["batch", `${devices} devices share it: take a multiple of ${devices}.`]];
  },

  work: (v, data) => {
    const all = (n) => (v.each ? v.batch * n : v.batch);
    const first = stepSeconds(1, all(1), v, data);
    return evenCounts(v).map((devices) => {
      const batch = all(devices);
      const taken = stepSeconds(devices, batch, v, data);
      const speedup = (first / taken) * (v.each ? devices : 1);
      const billed = Math.ceil(devices / v.at_once) * v.at_once;
      const row = { devices, batch, seconds: taken, speedup, billed };
      row.efficiency = speedup / devices;
      row.dollars = (((billed * v.price * taken) / 3600) * 1e6) / batch;
      return { ...row, ...held(batch / devices, v, data) };
    });
  },

  shown: (rows, v, data) => {
    const last = rows.at(-1);
    const said = `${counted(last.devices, "device")}: a step of `
      + `${counted(last.batch, "sample")} takes ${seconds(last.seconds)}`
      + (last.devices === 1 ? "" : `, ${short(last.speedup)} times as many samples a `
        + `second as one device, an efficiency of ${percent(last.efficiency)}`)
      + `. ${billOf(rows)}${fewerOf(rows)}${fitOf(last, v, data)}${handedOn(rows)}`;
    const each = rows.map((row) => `${plain(row.devices)}: ${percent(row.efficiency)}`);
    const picture = bars({
      rows: rows.map((row) => ({
        name: `${counted(row.devices, "device")}: ${percent(row.efficiency)}`,
        values: [row.efficiency],
      })),
      parts: ["efficiency, computed"],
      limit: { at: 1, name: "100%" },
      label: `Bars of the efficiency by number of devices: ${each.join("; ")}`,
    });
    return { said, tables: [rows], chosen: rows.length - 1, picture };
  },
});
