// The theme keeps the list's place for the session. The page that is open may stand
// elsewhere in it, so: let it be seen, and the list's head where no page is marked. No
// entry looks out from below the head by less than a finger needs, 24 pixels, and no
// caption of a part is cut by it.
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
      const edge = head.getBoundingClientRect().bottom;
      for (const entry of list.querySelectorAll(".bd-docs-nav :is(li > a, p.caption)")) {
        const { top, bottom } = entry.getBoundingClientRect();
        const least = entry.matches("p") ? bottom - top : 24;
        const isCut = top < edge && bottom > edge && bottom < edge + least;
        if (!isCut) continue;
        const wanted = list.scrollTop + Math.ceil(bottom - edge);
        list.scrollTop = wanted;
        // Where the list ends it can't go on, unless there is room below it.
        if (list.scrollTop < wanted) list.style.paddingBottom = "48px";
        list.scrollTop = wanted;
      }
    }
  });
  for (const list of document.querySelectorAll("[id^=pst-primary-sidebar]")) {
    laidOut.observe(list);
  }
  // Whoever closes a drawer is back at the button that opened it, which the theme's own
  // script has taken the focus from.
  for (const side of ["primary", "secondary"]) {
    const button = document.querySelector(`.${side}-toggle`);
    document.getElementById(`pst-${side}-sidebar-modal`)?.addEventListener("close", () => {
      button?.focus({ preventScroll: true });
    });
  }
});
