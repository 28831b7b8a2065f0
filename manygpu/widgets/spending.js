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

begin("spending", {
  wrong: () => [],

  work: (v, { guide, near }) => {
    const speedups = v.speedups === "own"
      ? counts(v.devices).map((n) => [n, n * v.efficiency ** Math.log2(n)])
      : Object.entries(guide[v.speedups]).map(([n, faster]) => [Number(n), faster])
        .filter(([n]) => n <= v.devices);
    const rows = speedups.map(([devices, speedup]) => {
      const hours = v.hours / speedup / v.goodput;
      const rent = hours * devices * v.price;
      const energy = (((devices * v.watts) / 1000) * hours * v.overhead * v.cents) / 100;
      const waiting = v.waiting * hours;
      const dollars = rent + energy + waiting;
      return { devices, speedup, hours, rent, energy, waiting, dollars };
    });
    const lines = rows.map(({ devices, hours, rent, energy }) =>
      ({ devices, hours, dollars: rent + energy }));
    return [rows, worthFrom(ahead(lines, near))];
  },

  shown: ([rows, edge], v, { near }) => {
    const least = Math.min(...rows.map((row) => row.dollars));
    // Of those that cost the same, the fastest.
    const best = rows.findLastIndex((row) => row.dollars <= least * (1 + near));
    const row = rows[best];
    const parts = edge.map(([start, n]) => `${counted(n, "device")} from ${short(start)}`);
    const said = `Best: ${counted(row.devices, "device")}, ${short(row.hours)} hours, `
      + `${short(row.rent + row.energy)} dollars to pay, ${short(row.waiting)} for `
      + "waiting."
      + ` Best by what an hour of waiting costs, in dollars: ${parts.join(", ")}.`;
    const names = ["hours", "rent", "energy", "waiting", "dollars"];
    const table = rows.map((other) => [
      plain(other.devices), ...names.map((name) => short(other[name]))]);
    const each = rows.map((other) => `${plain(other.devices)}: ${short(other.dollars)}`);
    const picture = {
      rows: rows.map((other, i) => ({
        name: `${counted(other.devices, "device")}: ${short(other.dollars)} dollars`,
        values: [other.rent, other.energy, other.waiting],
        chosen: i === best,
      })),
      parts: ["rent", "energy", "waiting"],
      label: `Bars of the dollars by number of devices: ${each.join("; ")}`,
    };
    return { said, tables: [table], chosen: best, picture };
  },
});
