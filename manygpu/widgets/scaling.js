// Data parallel training, by the formulas of manygpu/choosing/forecast.py.
const UPDATE = 30; // bytes that Adam's update reads and writes, a parameter

const ring = (n, size, latency, bandwidth) =>
  2 * (n - 1) * (latency + size / n / bandwidth);

// The faster of a ring over all devices and one in two levels.
const allReduce = (n, size, links) => {
  const [gpus, cards, latency, bandwidth, farLatency, farBandwidth] = links;
  if (n === 1) return 0;
  if (n <= gpus) return ring(n, size, latency, bandwidth);
  const share = (farBandwidth * cards) / gpus;
  const inside = ring(gpus, size, latency, bandwidth);
  const levels = inside + ring(n / gpus, size / gpus, farLatency, share);
  return Math.min(ring(n, size, farLatency, farBandwidth), levels);
};

// The longest of three chains: all computing; the first sum; the last one.
const stepSeconds = (n, batch, v, links) => {
  const update = (UPDATE * v.parameters) / v.layers / v.bandwidth;
  const forward = v.launch + ((batch / n) * v.flops) / v.layers / v.rate;
  const backward = 2 * forward;
  const reduce = allReduce(n, (v.sent * v.parameters) / v.layers, links);
  const last = Math.max(v.layers * backward + reduce, backward + v.layers * reduce);
  return v.layers * forward + Math.max(
    v.layers * (backward + update), backward + reduce + v.layers * update, last + update);
};

const evenCounts = (v, [gpus]) => counts(v.devices).filter((n) =>
  (n <= gpus || n % gpus === 0) && (v.each || v.batch % n === 0));

begin("scaling", {
  wrong: (v, { links }) => {
    const [gpus] = links[v.links];
    if (v.devices > gpus && v.devices % gpus) {
      return [["devices", `A machine has ${gpus}: take a multiple of ${gpus}.`]];
    }
    if (v.each || v.batch % v.devices === 0) return [];
    const devices = plain(v.devices);
    return [["batch", `${devices} devices share it: take a multiple of ${devices}.`]];
  },

  work: (v, { links, guide }) => {
    const of = links[v.links];
    const batch = (n) => (v.each ? v.batch * n : v.batch);
    const first = stepSeconds(1, batch(1), v, of);
    return evenCounts(v, of).map((devices) => {
      const taken = stepSeconds(devices, batch(devices), v, of);
      const speedup = (first / taken) * (v.each ? devices : 1);
      const row = { devices, seconds: taken, speedup, efficiency: speedup / devices };
      row.dollars = (((devices * v.price * taken) / 3600) * 1e6) / batch(devices);
      Object.keys(guide).forEach((name) => {
        row[name] = guide[name][devices] ?? null;
      });
      return row;
    });
  },

  shown: (rows, v, { guide }) => {
    const [first, last, names] = [rows[0], rows.at(-1), Object.keys(guide)];
    const best = rows.reduce((a, b) => (b.speedup > a.speedup ? b : a));
    const fewer = ` Fewer are faster: ${counted(best.devices, "device")}, `
      + `${short(best.speedup)} times.`;
    const said = `${counted(last.devices, "device")}: ${seconds(last.seconds)} a step, `
      + `${short(last.speedup)} times as fast as one, an efficiency of `
      + `${percent(last.efficiency)}. A million samples cost ${short(last.dollars)} `
      + `dollars, on one device ${short(first.dollars)}.`
      + (best.speedup > last.speedup ? fewer : "");
    const table = rows.map((row) => [
      plain(row.devices), seconds(row.seconds), short(row.speedup),
      percent(row.efficiency), short(row.dollars),
      ...names.map((name) => (row[name] === null ? "–" : short(row[name])))]);
    const each = rows.map((row) => `${plain(row.devices)}: ${percent(row.efficiency)}`);
    const picture = {
      rows: rows.map((row) => ({
        name: `${counted(row.devices, "device")}: ${percent(row.efficiency)}`,
        values: [row.efficiency],
        marks: names.map((name) => row[name] && row[name] / row.devices),
      })),
      parts: ["efficiency, computed"],
      marks: names.map((name) => `the guide's ${name}`),
      limit: { at: 1, name: "100%" },
      label: `Bars of the efficiency by number of devices: ${each.join("; ")}`,
    };
    return { said, tables: [table], chosen: rows.length - 1, picture };
  },
});
