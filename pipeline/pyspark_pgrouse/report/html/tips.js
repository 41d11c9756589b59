// Shows the numbers of a bucket next to the pointer, or with the arrow keys: those of the table below the drawing.
(function () {
  const tip = document.body.appendChild(Object.assign(document.createElement("div"), { className: "tip", hidden: true }));
  document.querySelectorAll(".chart").forEach((chart) => {
    const names = [...chart.querySelectorAll("thead th")].map((each) => each.textContent);
    const rows = [...chart.querySelectorAll("tbody tr")];
    let at = rows.length - 1;
    chart.querySelectorAll(".drawing").forEach((drawing) => {
      const plot = drawing.querySelector(".role-frame .background");
      const show = (i) => {
        at = Math.min(rows.length - 1, Math.max(0, i));
        const cells = [...rows[at].children].map((each) => each.textContent);
        const said = cells.map((cell, k) => (k ? `${names[k]}: ${cell}` : cell)).filter((_, k) => !k || !/^(\u2013|0)$/.test(cells[k]));
        tip.textContent = said.join("\n");
        tip.hidden = false;
        const box = plot.getBoundingClientRect();
        const x = box.left + ((at + 0.5) / rows.length) * box.width;
        const right = x + 12 + tip.offsetWidth < innerWidth;
        tip.style.left = Math.max(8, right ? x + 12 : x - 12 - tip.offsetWidth) + scrollX + "px";
        tip.style.top = box.top + scrollY + 8 + "px";
      };
      const hide = () => { tip.hidden = true; };
      drawing.tabIndex = 0;
      drawing.addEventListener("pointermove", (event) => {
        const box = plot.getBoundingClientRect();
        show(Math.floor(((event.clientX - box.left) / box.width) * rows.length));
      });
      drawing.addEventListener("pointerleave", hide);
      drawing.addEventListener("blur", hide);
      drawing.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: -1, ArrowRight: 1, Home: -rows.length, End: rows.length }[event.key];
        if (event.key === "Escape") hide();
        if (!step) return;
        event.preventDefault();
        show(at + step);
      });
    });
  });
})();
