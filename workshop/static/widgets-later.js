// Menus and tooltips need Bootstrap, 80 kB. It is fetched when somebody does something.
{
  const signs = ["pointermove", "pointerdown", "keydown", "focusin"];
  let pressed = null;

  const remember = (event) => {
    pressed = event.target.closest("[data-bs-toggle=dropdown]") ?? pressed;
  };

  const fetchIt = () => {
    for (const sign of signs) window.removeEventListener(sign, fetchIt);
    const script = document.createElement("script");
    const root = document.documentElement.dataset.content_root;
    script.src = `${root}_static/scripts/bootstrap.js`;
    script.onload = () => {
      window.removeEventListener("click", remember, true);
      // Who was faster than the network gets what they asked for.
      if (pressed?.getAttribute("aria-expanded") === "false") pressed.click();
    };
    document.head.append(script);
  };

  window.addEventListener("click", remember, true);
  for (const sign of signs) window.addEventListener(sign, fetchIt, { passive: true });
}
