// What a bucket says is shown beside the pointer, or by the arrow keys; without scripts the browser shows it as a title.
(function () {
  const tip = document.body.appendChild(Object.assign(document.createElement("div"), { className: "tip", hidden: true }));
  const show = (slot) => {
    slot.parentNode.querySelectorAll(".on").forEach((other) => other.classList.remove("on"));
    slot.classList.add("on");
    tip.textContent = slot.told;
    tip.hidden = false;
    const box = slot.getBoundingClientRect();
    const right = box.right + 8 + tip.offsetWidth < innerWidth;
    tip.style.left = Math.max(8, right ? box.right + 8 : box.left - 8 - tip.offsetWidth) + scrollX + "px";
    tip.style.top = box.top + scrollY + 8 + "px";
  };
  const hide = (svg) => {
    tip.hidden = true;
    svg.querySelectorAll(".on").forEach((slot) => slot.classList.remove("on"));
  };
  document.querySelectorAll(".slots").forEach((group) => {
    const svg = group.ownerSVGElement;
    const slots = [...group.children];
    let at = slots.length - 1;
    slots.forEach((slot, i) => {
      slot.told = slot.textContent;
      slot.firstChild.remove();
      slot.addEventListener("pointerenter", () => show(slots[(at = i)]));
    });
    svg.addEventListener("pointerleave", () => hide(svg));
    svg.addEventListener("blur", () => hide(svg));
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, Home: -slots.length, End: slots.length }[event.key];
      if (event.key === "Escape") hide(svg);
      if (!step) return;
      event.preventDefault();
      show(slots[(at = Math.min(slots.length - 1, Math.max(0, at + step)))]);
    });
  });
})();
