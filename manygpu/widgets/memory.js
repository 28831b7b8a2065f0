// What a device holds, by the formulas of manygpu/choosing/formulas.py.

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

  work: (v, { precisions, zero, ahead, room }) => {
    const each = precisions[v.precision];
    const again = v.layers * v.handed16 + v.kept16 / v.layers;
    const sample = (each[0] / 2) * (v.recompute ? again : v.kept16);
    return zero.map((held, stage) => {
      const state = each.map((size, i) =>
        (v.parameters * size) / (held[i] ? 1 : v.devices));
      const whole = stage < 3 || v.devices === 1;
      const gathered = whole ? 0 : (ahead * (each[0] * v.parameters)) / v.layers;
      const left = room * v.capacity - sum(state) - gathered;
      const activations = (v.batch / (v.devices * v.micro_batches)) * sample;
      return {
        zero: stage, parameters: state[0], gradients: state[1], optimizer: state[2],
        gathered, activations, total: sum(state) + gathered + activations,
        fits: activations <= left, most: Math.max(0, Math.floor(left / sample)),
      };
    });
  },

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
