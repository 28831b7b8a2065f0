// What a device holds: sums whose numbers manygpu/costs/memory.py has found.

// More micro-batches, or another stage, where this doesn't fit.
const waysOut = (rows, v) => {
  const [each, { most }] = [v.batch / v.devices, rows[v.zero]];
  let parts = 1;
  while (most && (each % parts || each / parts > most)) parts += 1;
  const cut = most ? ` With ${plain(parts)} micro-batches it would.` : "";
  const fitting = rows.filter((row) => row.fits).map((row) => row.zero);
  return cut + (fitting.length ? ` With ZeRO ${fitting.join(" or ")} it fits as it is.`
    : " As it is, no stage of ZeRO fits.");
};

begin("memory", {
  wrong: (v) => {
    const parts = v.devices * v.micro_batches;
    const said = "The batch must be a multiple of devices x micro-batches: take a "
      + `multiple of ${plain(parts)}.`;
    return v.batch % parts ? [["batch", said]] : [];
  },

  work: (v, { sums, room, parts }) => sums[v.precision][v.recompute].map((own, zero) => {
    const named = { ...v, kept: v.kept16, handed: v.handed16 };
    const row = { zero };
    parts.forEach((part) => { row[part] = worth(own[part], named); });
    const sample = row.activations;
    row.activations *= v.batch / (v.devices * v.micro_batches);
    const gathered = Math.min(row.gathered, worth(own["of all"], named));
    row.gathered = v.devices > 1 ? gathered : 0;
    row.total = sum(parts.map((part) => row[part]));
    row.fits = row.total <= room * v.capacity;
    const left = room * v.capacity - (row.total - row.activations);
    return { ...row, most: Math.max(0, Math.floor(left / sample)) };
  }),

  shown: (rows, v, { room, parts }) => {
    const row = rows[v.zero];
    const usable = room * v.capacity;
    const atOnce = v.batch / (v.devices * v.micro_batches);
    const said = `A device holds ${bytes(row.total)} of ${bytes(usable)} that may be `
      + `filled: ${row.fits ? "it fits" : "that doesn't fit"}. `
      + `It works on ${counted(atOnce, "sample")} at once; `
      + `${row.most ? plain(row.most) : "not even one"} would fit.`
      + (row.fits ? "" : waysOut(rows, v));
    const each = rows.map((other) => `${other.zero}: ${bytes(other.total)}`);
    const picture = bars({
      rows: rows.map((other) => ({
        name: `ZeRO ${other.zero}: ${bytes(other.total)}, `
          + (other.fits ? "fits" : "doesn't fit"),
        values: parts.map((part) => other[part]),
        chosen: other.zero === v.zero,
      })),
      parts,
      limit: { at: usable, name: "may be filled" },
      label: `Bars of a device's memory by stage of ZeRO: ${each.join("; ")}`,
    });
    return { said, tables: [rows], chosen: v.zero, picture };
  },
});
