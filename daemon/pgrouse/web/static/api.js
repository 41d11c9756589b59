// The forms of the reference: each sends its operation, and shows the response.

const token = document.getElementById("token");
document.querySelector("form.token").addEventListener("submit", (event) => event.preventDefault());

for (const form of document.querySelectorAll(".try form")) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(form);
  });
}

// A link to an operation or a schema opens it.
function openTarget() {
  const target = document.getElementById(location.hash.slice(1));
  if (target instanceof HTMLDetailsElement) target.open = true;
  target?.scrollIntoView();
}
addEventListener("hashchange", openTarget);
openTarget();

async function send(form) {
  const output = form.querySelector("output");
  const button = form.querySelector("button");
  button.disabled = true;
  const began = performance.now();
  try {
    const response = await fetch(address(form), request(form));
    show(output, `${response.status} ${response.statusText}`, response.ok, await response.text(), {
      location: response.headers.get("location"),
      "retry-after": response.headers.get("retry-after"),
      time: `${Math.round(performance.now() - began)} ms`,
    });
  } catch (error) {
    show(output, "No response", false, String(error), {});
  }
  button.disabled = false;
}

function fields(form, place) {
  return [...form.querySelectorAll(`[data-place="${place}"]`)].filter((field) => field.value !== "");
}

function address(form) {
  let path = form.getAttribute("action");
  for (const field of fields(form, "path")) path = path.replace(`{${field.name}}`, encodeURIComponent(field.value));
  const query = new URLSearchParams(fields(form, "query").map((field) => [field.name, field.value]));
  return query.size ? `${path}?${query}` : path;
}

function request(form) {
  const headers = Object.fromEntries(fields(form, "header").map((field) => [field.name, field.value]));
  const body = form.querySelector("[data-body]")?.value;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  // With a token, the session of the browser has no part in it.
  if (token.value) headers.Authorization = `Bearer ${token.value}`;
  else headers["X-CSRF-Token"] = document.querySelector("meta[name=csrf]").content;
  return { method: form.dataset.method, headers, body, credentials: token.value ? "omit" : "same-origin" };
}

function show(output, title, isGood, text, headers) {
  const status = document.createElement("strong");
  status.className = isGood ? "good" : "bad";
  status.textContent = title;
  const facts = document.createElement("span");
  facts.className = "small soft";
  facts.textContent = Object.entries(headers).filter(([, value]) => value).map(([name, value]) => `${name}: ${value}`).join(" · ");
  const body = document.createElement("pre");
  body.textContent = pretty(text);
  output.replaceChildren(status, facts, body);
}

// Indented, unless that changed a number: the browser has doubles, PostgreSQL all digits.
function pretty(text) {
  const bare = (json) => json.replaceAll(/\s/g, "");
  try {
    const value = JSON.parse(text);
    return bare(JSON.stringify(value)) === bare(text) ? JSON.stringify(value, null, 2) : text;
  } catch {
    return text;
  }
}
