// Looks up what the rule says: see packed_answers in chooser.py, folded in choosing/answers.py.
const inflated = async (text) => {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const inflate = new DecompressionStream("deflate");
  const plainText = new Blob([packed]).stream().pipeThrough(inflate);
  return JSON.parse(await new Response(plainText).text());
};

const unfolded = (templates, row) => {
  const [place, ...numbers] = row.split(" ");
  return templates[place].replace(/#/g, () => numbers.shift());
};

begin("chooser", {
  prepare: async ({ chapters, answers, fields }) => {
    if (!("DecompressionStream" in window)) return null;
    const [templates, rows] = await inflated(answers);
    return { chapters, fields, templates, rows };
  },

  wrong: () => [],

  // The place of the setting in the grid, whose last field changes first.
  work: (v, { fields, templates, rows }) => {
    const place = Object.entries(fields).reduce(
      (before, [name, offered]) => before * offered.length + offered.indexOf(v[name]), 0);
    const [words, taken, memory, dollars, chapters, ...reasons] =
      unfolded(templates, rows[place]).split("\n");
    return {
      words, seconds: Number(taken), memory: Number(memory), dollars: Number(dollars),
      chapters: chapters.split(" "), reasons: reasons.map((reason) => reason.split("\t")),
    };
  },

  shown: (found, v, { chapters: titles }) => {
    const { words, seconds: taken, memory, dollars, chapters, reasons } = found;
    // Only the rendered book has them where these lead.
    const inBook = window.location.pathname.endsWith(".html");
    const links = chapters.map((path) =>
      [inBook ? `../${path}.html` : null, titles[path]]);
    if (!words) {
      const said = "Nothing fits: take more devices, more memory, or a smaller model.";
      return { said, tables: [[["none", "–", "–", "–"]], reasons], chosen: 0, links };
    }
    const row = [words, seconds(taken), bytes(memory), `${short(100 * dollars)} cents`];
    const said = `${words}. A step takes ${row[1]}, a device holds ${row[2]}.`;
    return { said, tables: [[row], reasons], chosen: 0, links };
  },
});
