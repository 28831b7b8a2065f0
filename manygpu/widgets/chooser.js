// Looks up the answer to the fields' values: see packed_answers in chooser.py.
begin("chooser", {
  // The place of the setting in the grid, whose last field changes first.
  work: (v, { fields, packed }) => packed[Object.entries(fields).reduce(
    (before, [name, offered]) => before * offered.length + offered.indexOf(v[name]), 0)],

  shown: ({ said, tables, chapters }, v, { titles }) => {
    // Only the rendered book has them where these lead.
    const inBook = window.location.pathname.endsWith(".html");
    const links = chapters.map((path) =>
      [inBook ? `../${path}.html` : null, titles[path]]);
    return { said, tables, chosen: 0, links };
  },
});
