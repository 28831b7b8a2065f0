// Where the browser keeps nothing (storage-stand-in.html), "Your results" says so: it lists
// what other pages have kept.
document.addEventListener("DOMContentLoaded", () => {
  const { unkept } = document.documentElement.dataset;
  const tools = document.getElementById("results-tools");
  if (!unkept || !tools) return;
  const why = {
    refused: "This browser keeps nothing for this book: its storage is switched off.",
    full: "This browser keeps no more for this book: its storage is full.",
  };
  const told = document.createElement("p");
  told.id = "results-unkept";
  told.textContent = `${why[unkept]} What you guess or solve from now on is shown on its ` +
    "own page until you leave that page, and is not listed here.";
  document.querySelector("article h1").after(told);
});
