// What a job costs on each number of devices, by the formulas of manygpu/choosing.

// Those for which no faster one is as cheap, but for rounding.
const ahead = (lines, near) => lines.filter(({ dollars, hours }) =>
  !lines.some((other) => other.hours < hours && other.dollars <= dollars * (1 + near)));

// From which price of a waiting hour on each number of devices is the best.
const worthFrom = (lines) => {
  const cheapest = (a, b) => a.dollars - b.dollars || a.hours - b.hours;
  let line = [...lines].sort(cheapest)[0];
  const found = [[0, line.devices]];
  for (;;) {
    const shorter = lines.filter((other) => other.hours < line.hours);
    if (shorter.length === 0) return found;
    const starts = shorter.map(({ dollars, hours }) =>
      (dollars - line.dollars) / (line.hours - hours));
    const first = starts.indexOf(Math.min(...starts));
    line = shorter[first];
    found.push([starts[first], line.devices]);
  }
};

const startsOf = ([[, n], ...later]) => {
  if (later.length === 0) return `Whatever an hour of waiting costs: ${counted(n, "device")}.`;
  const parts = later.map(([start, devices], i) =>
    `from ${short(start)}${i === 0 ? " dollars an hour on" : ""}, ${plain(devices)}`);
  return `If waiting costs nothing: ${counted(n, "device")}; ${parts.join("; ")}.`;
};

begin("spending", {
  work: (v, { guide, near, year }) => {
    const price = v.owned ? v.purchase / (year * v.years * v.use) : v.price;
    const speedups = v.speedups === "own"
      ? counts(v.devices).map((n) => [n, n * v.efficiency ** Math.log2(n)])
      : Object.entries(guide[v.speedups]).map(([n, faster]) => [Number(n), faster])
        .filter(([n]) => n <= v.devices);
    const rows = speedups.map(([devices, speedup]) => {
      const hours = v.hours / speedup / v.goodput;
      const billed = v.owned ? devices : Math.ceil(devices / v.at_once) * v.at_once;
      const rent = hours * billed * price;
      const power = ((devices * v.watts) / 1000) * v.overhead;
      const energy = v.owned ? (power * hours * v.cents) / 100 : 0;
      const waiting = v.waiting * hours;
      const dollars = rent + energy + waiting;
      return { devices, billed, speedup, hours, rent, energy, waiting, dollars };
    });
    const lines = rows.map(({ devices, hours, rent, energy }) =>
      ({ devices, hours, dollars: rent + energy }));
    return [rows, worthFrom(ahead(lines, near))];
  },

  shown: ([rows, edge], v, { near }) => {
    const least = Math.min(...rows.map((row) => row.dollars));
    // Of those that cost the same, the fastest.
    const cheap = rows.filter((other) => other.dollars <= least * (1 + near));
    const row = cheap.reduce((a, b) => (b.hours < a.hours ? b : a));
    const best = rows.indexOf(row);
    const more = row.billed === row.devices ? "" : ` (billed as ${plain(row.billed)})`;
    const end = rows.at(-1).devices;
    const said = `Best: ${counted(row.devices, "device")}${more}, `
      + `${short(row.hours)} hours, ${short(row.rent + row.energy)} dollars to pay, `
      + `${short(row.waiting)} for waiting. ${startsOf(edge)}`
      + (end < v.devices ? ` The guide's table ends at ${counted(end, "device")}.` : "");
    const each = rows.map((other) => `${plain(other.devices)}: ${short(other.dollars)}`);
    const picture = bars({
      rows: rows.map((other, i) => ({
        name: `${counted(other.devices, "device")}: ${short(other.dollars)} dollars`,
        values: [other.rent, other.energy, other.waiting],
        chosen: i === best,
      })),
      parts: [v.owned ? "purchase" : "rent", "energy", "waiting"],
      label: `Bars of the dollars by number of devices: ${each.join("; ")}`,
    });
    return { said, tables: [rows], chosen: best, picture };
  },
});
