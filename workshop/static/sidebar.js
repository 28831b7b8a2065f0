// The theme keeps the list's place for the session. The page that is open may stand
// elsewhere in it, so: let it be seen, and the list's head where no page is marked.
// On a phone, the list is moved into a dialog and laid out when somebody asks for it.
document.addEventListener("DOMContentLoaded", () => {
  const laidOut = new ResizeObserver((seen) => {
    for (const { target: list } of seen) {
      const here = list.querySelector(".bd-docs-nav .current > a");
      const head = list.querySelector(".sidebar-primary-item");
      if (!here) list.scrollTop = 0;
      if (!here || !head) continue;
      const place = here.getBoundingClientRect();
      const room = list.getBoundingClientRect();
      const hidden = place.top < head.getBoundingClientRect().bottom;
      if (hidden || place.bottom > room.bottom) {
        list.scrollTop += place.top - room.top - room.height / 3;
      }
    }
  });
  for (const list of document.querySelectorAll("[id^=pst-primary-sidebar]")) {
    laidOut.observe(list);
  }
});
