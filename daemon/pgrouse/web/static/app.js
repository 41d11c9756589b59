// The script of all pages, next to htmx: live updates, charts, clock, keys, theme. Pages can be read without it.
"use strict";

const $ = (selector, within = document) => within.querySelector(selector);
const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];
const stored = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
// If storage is forbidden, the choice applies to this page only.
function store(name, value) {
  try { if (value) localStorage.setItem(name, value); else localStorage.removeItem(name); } catch { /* see above */ }
}
const meta = (name) => $(`meta[name="${name}"]`)?.content ?? "";

// ---------------------------------------------------------------- requests

document.addEventListener("htmx:config:request", (event) => {
  const ctx = event.detail.ctx;
  ctx.request.headers["X-CSRF-Token"] = meta("csrf");
  // A live update may remove the button before its answer arrives, and htmx drops the answer of a target that is gone.
  if (ctx.swap === "none") ctx.target = $("main");
});
for (const kind of ["htmx:error", "htmx:response:error"]) {
  document.addEventListener(kind, (event) => {
    const ctx = event.detail.ctx;
    if (!ctx?.response) toast("The server did not answer: try again.", "bad");
  });
}

function toast(text, kind = "") {
  const shown = document.createElement("div");
  shown.className = `toast ${kind}`;
  shown.innerHTML = '<p></p><button type="button" class="bare slight" data-close aria-label="Close">✕</button>';
  $("p", shown).textContent = text;
  $("#toasts").append(shown);
}

// Toasts that report success disappear after 8 seconds.
new MutationObserver(() => {
  for (const each of $$("#toasts .toast:not(.bad):not([data-seen])")) {
    each.dataset.seen = "";
    setTimeout(() => each.remove(), 8000);
  }
}).observe($("#toasts"), { childList: true });

// hx-confirm opens a dialog of the page.
document.addEventListener("htmx:confirm", (event) => {
  const question = event.detail.ctx.confirm;
  if (!question) return;
  event.preventDefault();
  const dialog = $("#confirm");
  $("p", dialog).textContent = question;
  $("button[value=yes]", dialog).textContent = event.detail.ctx.sourceElement.textContent.trim().replace(/…$/, "") || "Yes";
  dialog.returnValue = "";
  dialog.showModal();
  dialog.addEventListener("close", () => {
    if (dialog.returnValue === "yes") event.detail.issueRequest(true);
    else event.detail.dropRequest?.();
  }, { once: true });
});

// ---------------------------------------------------------------- live

const live = {
  url: $("main")?.dataset.live,
  source: null,
  lastEventAt: 0,
  wait: 500,
  timer: 0,

  start() {
    if (!this.url || document.hidden || this.source) return;
    clearTimeout(this.timer);
    this.lastEventAt = Date.now();
    this.source = new EventSource(this.url);
    this.source.addEventListener("update", (event) => this.update(JSON.parse(event.data)));
    this.source.addEventListener("heartbeat", () => this.markLive());
    this.source.addEventListener("stale", (event) => { this.lastEventAt = Date.now(); this.markStale(event.data); });
    this.source.addEventListener("error", () => this.retry());
  },
  stop() {
    this.source?.close();
    this.source = null;
  },
  // The browser reconnects by itself, but not after a response like 503, and only at a fixed interval.
  retry() {
    this.stop();
    this.markStale("The connection to the server is lost.");
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.start(), this.wait * (0.75 + Math.random() / 2));
    this.wait = Math.min(this.wait * 2, 8000);
  },
  markLive() {
    this.lastEventAt = Date.now();
    this.wait = 500;
    setLiveState("live", "live");
    $("#stale").hidden = true;
  },
  markStale(reason) {
    setLiveState("stale", "not live");
    const banner = $("#stale");
    $("p", banner).textContent = `${reason} What you see is from ${clock.time(this.updatedAt)}.`;
    // The server shows it without the database.
    $("a", banner).hidden = !reason.includes("database");
    banner.hidden = false;
  },
  updatedAt: Date.now(),
  parts: {},
  // A part in which the user has selected something waits: its rows must not move, and a selection must not be lost.
  swapParts() {
    for (const [id, text] of Object.entries(this.parts)) {
      const target = document.getElementById(id);
      if (target && $("[name=chosen]:checked", target)) continue;
      delete this.parts[id];
      if (target) htmx.swap({ sourceElement: target, target, text, swap: "innerMorph" });
    }
  },
  update(changes) {
    this.markLive();
    this.updatedAt = Date.now();
    clockSkew = changes.now * 1000 - Date.now();
    Object.assign(this.parts, changes.parts);
    this.swapParts();
    for (const [id, data] of Object.entries(changes.charts)) draw(document.getElementById(id), data);
    document.dispatchEvent(new CustomEvent("pgrouse:update"));
  },
};

function setLiveState(state, word) {
  const badge = $("#live");
  if (!badge || badge.dataset.state === state) return;
  badge.dataset.state = state;
  $("span", badge).textContent = word;
  showProblemCount();
}

setInterval(() => {
  if (live.source && Date.now() - live.lastEventAt > 15000) live.retry();
}, 3000);
// A browser opens at most six connections to a server: hidden pages close theirs.
document.addEventListener("visibilitychange", () => { if (document.hidden) live.stop(); else live.start(); });
addEventListener("pagehide", () => live.stop());
addEventListener("pageshow", () => live.start());

// The number of problems, in the title and on the menu button too; the title also says that the page is not live.
const problemCount = $("#problem-count");
function showProblemCount() {
  const { count = "", level, headline } = $("[data-count]", problemCount)?.dataset ?? {};
  const known = headline ? `${count}: ${headline}` : count;
  const said = $("#live")?.dataset.state === "stale" ? "not live" : known;
  document.title = (said && `(${said}) `) + document.title.replace(/^\((\d+(: [^)]*)?|not live)\) /, "");
  if (count) Object.assign($("#menu").dataset, { count, level });
  else delete $("#menu").dataset.count;
}
if (problemCount) {
  new MutationObserver(showProblemCount).observe(problemCount, { childList: true, subtree: true, attributes: true });
}

// ---------------------------------------------------------------- times

let clockSkew = Number(meta("now")) * 1000 - Date.now();

// Unit, its seconds, and below which number it is used. The same in Python: pgrouse/values/format.py.
const UNITS = [["us", 1e-6, 1000], ["ms", 1e-3, 1000], ["s", 1, 120], ["m", 60, 120], ["h", 3600, 48], ["d", 86400, Infinity]];

function duration(seconds) {
  if (seconds < 1e-6) return "0s";
  for (const [unit, size, limit] of UNITS) {
    const value = seconds / size;
    const rounded = value < 9.95 ? Math.round(value * 10) / 10 : Math.round(value);
    if (rounded < limit) return rounded + unit;
  }
}
setInterval(() => {
  const now = Date.now() + clockSkew;
  for (const each of $$("time[data-ago]")) {
    const passed = (now - Date.parse(each.dateTime)) / 1000;
    const text = passed >= 0 ? `${duration(passed)} ago` : `in ${duration(-passed)}`;
    if (each.textContent !== text && Math.abs(passed) >= 10) each.textContent = text;
  }
}, 1000);

// ---------------------------------------------------------------- clock

// One clock for texts and charts: UTC, as the server writes them, or the browser's time zone.
const clock = {
  isLocal: stored("clock") === "local",
  format: null,
  get zone() { return this.isLocal ? undefined : "UTC"; },
  moment(at, withMilliseconds = false) {
    this.format ??= new Intl.DateTimeFormat("en", {
      timeZone: this.zone, year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit",
      second: "2-digit", fractionalSecondDigits: 3, hourCycle: "h23", timeZoneName: "short",
    });
    const part = Object.fromEntries(this.format.formatToParts(at).map(({ type, value }) => [type, value]));
    const seconds = part.second + (withMilliseconds ? `.${part.fractionalSecond}` : "");
    return `${part.year}-${part.month}-${part.day} ${part.hour}:${part.minute}:${seconds} ${part.timeZoneName}`;
  },
  time(at) { return this.moment(at).slice(11); },
  plotDate(seconds) {
    const at = new Date(seconds * 1000);
    return this.isLocal ? at : uPlot.tzDate(at, "Etc/UTC");
  },
  write() {
    for (const each of $$("time[data-moment]")) {
      const text = this.moment(Date.parse(each.dateTime), each.dataset.moment === "ms");
      if (each.textContent !== text) each.textContent = text;
    }
    for (const each of $$("time[data-ago]")) each.title = this.moment(Date.parse(each.dateTime));
  },
  use(isLocal) {
    [this.isLocal, this.format] = [isLocal, null];
    store("clock", isLocal && "local");
    this.show();
    drawAll();
  },
  show() {
    const button = $("#clock");
    if (button) {
      button.textContent = this.isLocal ? "Local" : "UTC";
      button.title = this.isLocal ? "Times are in the time zone of this browser" : "Times are in UTC";
    }
    this.write();
  },
};
$("#clock")?.addEventListener("click", () => clock.use(!clock.isLocal));
// The server writes UTC, so what is new on the page is written again.
for (const each of ["pgrouse:update", "htmx:after:swap"]) document.addEventListener(each, () => clock.isLocal && clock.write());

// ---------------------------------------------------------------- charts

const plots = new Map();
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const exact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 4 });
// Ticks of durations. Their axis is logarithmic: waiting, running and waking differ by a factor of thousands.
const DURATIONS = [1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1, 10, 60, 600, 3600, 36000, 172800, 864000, 8640000];
const aroundDurations = (_, low, high) => (low > 0
  ? [DURATIONS.findLast((step) => step <= low) ?? DURATIONS[0], DURATIONS.find((step) => step > high) ?? high]
  : [1e-3, 1]);
const DURATION_AXIS = {
  scale: { distr: 3, range: aroundDurations },
  axis: { splits: (_, n, low, high) => DURATIONS.filter((step) => step >= low && step <= high), filter: (_, splits) => splits },
};
const NUMBER_AXIS = { scale: { range: (_, low, high) => [0, high > 0 ? high * 1.08 : 1] }, axis: {} };
// The percentile that charts of times show, chosen for all pages.
const quantile = {
  name: stored("quantile") ?? "p95",
  use(name) {
    this.name = name;
    store("quantile", name);
    this.show();
    drawAll();
  },
  show() {
    for (const each of $$("[data-quantile]")) each.setAttribute("aria-pressed", String(each.dataset.quantile === this.name));
  },
};
document.addEventListener("click", (event) => {
  const button = event.target.closest?.("[data-quantile]");
  if (button) quantile.use(button.dataset.quantile);
});
const lines = ({ y, quantiles }) => quantiles?.[quantile.name] ?? quantiles?.p95 ?? y;
// A logarithmic axis has no place for 0.
const points = (data) => [data.x, ...(data.unit === "s" ? lines(data).map((line) => line.map((value) => value || null)) : lines(data))];

// The label of a tick says the value of the tick, never a rounded one.
const tick = (unit) => (value) => (unit === "s" ? duration(value) : exact.format(value));
const formatter = (unit) => (value) => (value == null ? "–" : unit === "s" ? duration(value) : compact.format(value));

function colour(name) {
  const probe = $(`.series-${name}`) ?? document.body;
  return getComputedStyle(probe).color;
}

// figure.chart: data = {unit, series: [{name, colour}], x: [seconds since 1970], y: [[…], …], or quantiles: {p50: [[…], …], p95, p99}}
function draw(figure, data) {
  const place = figure && $(".plot", figure);
  if (!place || !window.uPlot) return;
  const shape = JSON.stringify([data.unit, data.series]);
  const known = plots.get(figure.id);
  if (known?.shape !== shape) createLegend(figure, data);
  updateLegend(figure, data);
  place.classList.toggle("blank", !lines(data).some((line) => line.some(Boolean)));
  if (known?.shape === shape && known.place === place) return known.plot.setData(points(data));
  known?.plot.destroy();
  const style = getComputedStyle(document.body);
  const soft = getComputedStyle($(".soft") ?? document.body).color;
  const line = getComputedStyle($(".panel") ?? document.body).borderTopColor;
  const axis = { stroke: soft, font: `12px ${style.fontFamily}`, grid: { stroke: line, width: 1 }, ticks: { show: false } };
  const vertical = data.unit === "s" ? DURATION_AXIS : NUMBER_AXIS;
  const plot = new uPlot({
    tzDate: (seconds) => clock.plotDate(seconds),
    width: place.clientWidth, height: place.clientHeight, legend: { show: false }, padding: [8, 18, 0, 0],
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
    scales: { y: vertical.scale },
    axes: [
      { ...axis, size: 28, space: 70, values: [[86400, "{DD}.{MM}."], [3600, "{HH}:{mm}"], [60, "{HH}:{mm}"], [1, "{HH}:{mm}:{ss}"]].map(
        ([incr, template]) => [incr, template, null, null, null, null, null, null, 1]) },
      { ...axis, size: 58, values: (_, ticks) => ticks.map(tick(data.unit)), ...vertical.axis },
    ],
    series: [{}, ...data.series.map((each, n) => ({
      label: each.name, stroke: colour(each.colour), width: 2, points: { show: true, size: 5, filter: isolatedPoints, fill: colour(each.colour) },
      fill: n === 0 ? colour(each.colour).replace(/^rgb\((.*)\)$/, "rgba($1, 0.1)") : undefined,
    }))],
    hooks: { setCursor: [(u) => updateLegend(figure, data, u)] },
  }, points(data), place);
  plots.set(figure.id, { plot, shape, place, data });
  sizes.observe(place);
}

function createLegend(figure, data) {
  $(".legend", figure).replaceChildren(...data.series.map((each) => {
    const item = document.createElement("li");
    item.className = `series-${each.colour}`;
    item.innerHTML = "<i></i><span> <b></b></span>";
    $("span", item).prepend(each.name);
    return item;
  }), document.createElement("li"));
  $(".legend", figure).lastChild.className = "soft";
}

// A value between two gaps has no line: draw a point.
function isolatedPoints(plot, n) {
  const y = plot.data[n];
  return y.flatMap((value, i) => (value != null && y[i - 1] == null && y[i + 1] == null ? [i] : []));
}

function updateLegend(figure, data, plot) {
  const known = plots.get(figure.id);
  if (known) known.data = plot ? known.data : data;
  const shown = known?.data ?? data;
  const at = plot?.cursor.idx;
  const list = $(".legend", figure);
  if (!list) return;
  const format = formatter(shown.unit);
  const when = list.children[shown.series.length];
  if (when) when.textContent = at == null ? "" : clock.moment(shown.x[at] * 1000);
  shown.series.forEach((each, n) => {
    const line = lines(shown)[n];
    const value = at == null ? line.findLast((y) => y != null) : line[at];
    const slot = list.children[n] && $("b", list.children[n]);
    if (slot) slot.textContent = format(value);
  });
}

const sizes = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const known = plots.get(target.closest(".chart")?.id);
    if (known && target.clientWidth) known.plot.setSize({ width: target.clientWidth, height: target.clientHeight });
  }
});

function drawAll() {
  for (const { plot } of plots.values()) plot.destroy();
  const kept = new Map([...plots].map(([id, { data }]) => [id, data]));
  plots.clear();
  for (const figure of $$(".chart[data-chart]")) draw(figure, kept.get(figure.id) ?? JSON.parse(figure.dataset.chart));
}

// ---------------------------------------------------------------- theme, menu

const dark = matchMedia("(prefers-color-scheme: dark)");
// First the theme that differs from what is seen, then the other one, then that of the system again.
function nextTheme() {
  const chosen = document.documentElement.dataset.theme;
  const other = dark.matches ? "light" : "dark";
  if (!chosen) return other;
  return chosen === other ? (dark.matches ? "dark" : "light") : "";
}
function labelThemeButton() {
  $("#theme")?.setAttribute("aria-label", `Use the ${nextTheme() || "system's"} theme`);
}
$("#theme")?.addEventListener("click", () => {
  const theme = nextTheme();
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  store("theme", theme);
  labelThemeButton();
  drawAll();
});
dark.addEventListener("change", () => { labelThemeButton(); drawAll(); });

$("#menu")?.addEventListener("click", (event) => {
  const open = $("#pages").classList.toggle("open");
  event.currentTarget.setAttribute("aria-expanded", String(open));
});

document.addEventListener("click", (event) => {
  const closer = event.target.closest("[data-close]");
  if (closer) (closer.closest("dialog") ?? { close: () => closer.closest(".toast")?.remove() }).close();
  const opener = event.target.closest("[data-open]");
  if (opener) document.getElementById(opener.dataset.open)?.showModal();
});
// A checkbox with `data-all="name"` checks all of that name.
document.addEventListener("change", (event) => {
  const name = event.target.dataset?.all;
  if (name) for (const each of $$(`input[type=checkbox][name="${CSS.escape(name)}"]`)) each.checked = event.target.checked;
  if (name || event.target.name === "chosen") live.swapParts();
});

// A button with `data-copy="id"` copies the text of that element. Only pages from https or this machine may.
document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy]");
  if (!button) return;
  const source = document.getElementById(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(source.textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  } catch {
    getSelection().selectAllChildren(source);
    toast("This page may not copy. The text is selected: copy it by the keyboard.", "bad");
  }
});

// ---------------------------------------------------------------- keys

let gPressedAt = -Infinity;
function focusRow(by) {
  const rows = $$("main [data-row]");
  const here = rows.indexOf(document.activeElement);
  rows[Math.min(rows.length - 1, Math.max(0, here + by))]?.focus();
}
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.key === "Escape" && typing) typing.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey || $("dialog[open]")) return;
  if (event.timeStamp - gPressedAt < 1500) {
    gPressedAt = -Infinity;
    const link = $(`#pages [data-key="${CSS.escape(event.key)}"]`);
    if (link) { event.preventDefault(); link.click(); }
    return;
  }
  const action = {
    "/": () => $("#search")?.focus(),
    "?": () => $("#keys")?.showModal(),
    g: () => { gPressedAt = event.timeStamp; },
    j: () => focusRow(1),
    k: () => focusRow(-1),
  }[event.key];
  if (action) { event.preventDefault(); action(); }
});

// On a narrow screen, what folds is closed until somebody opens it.
const narrow = matchMedia("(max-width: 40rem)");
function fold() {
  for (const each of $$("details[data-fold]")) each.open = !narrow.matches;
}
narrow.addEventListener("change", fold);
fold();
// What was opened stays open on the next page.
for (const each of $$("details[data-remember]")) {
  each.open = stored(each.dataset.remember) === "open";
  each.addEventListener("toggle", () => store(each.dataset.remember, each.open && "open"));
}

labelThemeButton();
clock.show();
quantile.show();
drawAll();
live.start();
