// What a device holds, by the formulas of manygpu/choosing/pages.py.
const PARTS = ["parameters", "gradients", "optimizer", "gathered", "activations"];

begin("memory", {
  wrong: (v) => {
    const parts = v.devices * v.micro_batches;
    const said = `Devices cut it, and micro-batches: take a multiple of ${plain(parts)}.`;
    return v.batch % parts ? [["batch", said]] : [];
  },

  work: (v, { precisions, zero, ahead, room }) => {
    const each = precisions[v.precision];
    const sample = v.recompute ? v.layers * v.handed + v.kept / v.layers : v.kept;
    return zero.map((held, stage) => {
      const state = each.map((size, i) =>
        (v.parameters * size) / (held[i] ? 1 : v.devices));
      const gathered = stage === 3 ? (ahead * (each[0] * v.parameters)) / v.layers : 0;
      const left = room * v.capacity - sum(state) - gathered;
      const activations = (v.batch / (v.devices * v.micro_batches)) * sample;
      return {
        zero: stage, parameters: state[0], gradients: state[1], optimizer: state[2],
        gathered, activations, total: sum(state) + gathered + activations,
        fits: activations <= left, most: Math.max(0, Math.floor(left / sample)),
      };
    });
  },

  shown: (rows, v, { room }) => {
    const row = rows[v.zero];
    const usable = room * v.capacity;
    const fitting = rows.filter((other) => other.fits).map((other) => other.zero);
    const none = " No stage of ZeRO fits.";
    const others = fitting.length ? ` With ZeRO ${fitting.join(" or ")} it fits.` : none;
    const said = `A device holds ${bytes(row.total)} of ${bytes(usable)} that may be `
      + `filled: ${row.fits ? "it fits" : "that doesn't fit"}. `
      + (row.most ? `Up to ${counted(row.most, "sample")} at once would fit.`
        : "Not even one sample at a time would fit.")
      + (row.fits ? "" : others);
    const table = rows.map((other) => [
      String(other.zero), ...[...PARTS, "total"].map((part) => bytes(other[part])),
      other.fits ? "yes" : "no", plain(other.most)]);
    const each = rows.map((other) => `${other.zero}: ${bytes(other.total)}`);
    const picture = {
      rows: rows.map((other) => ({
        name: `ZeRO ${other.zero}: ${bytes(other.total)}, `
          + (other.fits ? "fits" : "doesn't fit"),
        values: PARTS.map((part) => other[part]),
        chosen: other.zero === v.zero,
      })),
      parts: PARTS,
      limit: { at: usable, name: "may be filled" },
      label: `Bars of a device's memory by stage of ZeRO: ${each.join("; ")}`,
    };
    return { said, tables: [table], chosen: v.zero, picture };
  },
});
