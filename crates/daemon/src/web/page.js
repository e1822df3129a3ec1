// Keeps the page live and shows plans. It makes no HTML of what it reads: parts come from the server as it wrote them,
// everything else is set as text.
"use strict";

const root = document.documentElement;
const dialog = document.getElementById("dialog");
const element = (id) => document.getElementById(id);

const token = () => sessionStorage.getItem("token");
const headers = (more) => ({ ...more, ...(token() ? { Authorization: "Bearer " + token() } : {}) });

/** An answer as an object; throws what the server says of why not. */
async function ask(path, body) {
  const answer = await fetch(path, {
    method: "POST", headers: headers({ "Content-Type": "application/json" }), body: JSON.stringify(body),
  });
  return refusedOr(answer);
}

async function refusedOr(answer) {
  const told = await answer.json();
  if (answer.ok) return told;
  const { message, hints } = told.error ?? { message: "the answer is not understood", hints: [] };
  throw new Error([message, ...(hints ?? [])].join("\n"));
}

/** Exchanges the parts that have changed; the focus stays where it was. */
function show({ title, who, role, parts }) {
  document.title = title;
  if (element("who")) [element("who").textContent, element("role").textContent] = [who, role ?? "nothing"];
  root.classList.toggle("may-operate", role === "operate");
  root.classList.toggle("may-administer", role === "administer");
  for (const [id, html] of Object.entries(parts)) {
    const part = element(id);
    if (!part) { location.reload(); return; } // it was shown to somebody who might not look
    const held = part.contains(document.activeElement) ? document.activeElement.dataset.wish : undefined;
    part.innerHTML = html;
    if (held) [...part.querySelectorAll("button")].find((one) => one.dataset.wish === held)?.focus();
  }
}

function link(isLive, text) {
  root.classList.toggle("stale", !isLive);
  if (element("link")) element("link").textContent = " " + text;
}

/** Follows the stream until it ends. */
async function follow(signal) {
  const answer = await fetch("/page/live", { headers: headers({}), signal });
  if (!answer.ok) await refusedOr(answer);
  link(true, "Live.");
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = event.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
      if (data.length) show(JSON.parse(data.join("\n")));
    }
  }
}

let following = new AbortController();

async function stayLive() {
  for (;;) {
    const time = new Date().toLocaleTimeString();
    try {
      await follow(following.signal);
      link(false, "Not live since " + time + ": the stream has ended; trying again.");
    } catch (error) {
      if (!following.signal.aborted) link(false, "Not live since " + time + ": " + error.message);
    }
    if (following.signal.aborted) following = new AbortController();
    else await new Promise((go) => setTimeout(go, 2000));
  }
}

/** Fills the dialog: a heading, lines, fields by name and label, buttons by text. Gives what was filled in, or nothing. */
function dialogue(title, lines, fields, go) {
  dialog.replaceChildren();
  const add = (name, text, parent = dialog) => {
    const one = document.createElement(name);
    one.textContent = text ?? "";
    parent.append(one);
    return one;
  };
  add("h2", title).id = "dialog-title";
  lines.forEach((line) => add("p", line));
  const form = add("form");
  form.method = "dialog";
  const inputs = fields.map(([name, label, kind]) => {
    const box = add("label", label, form);
    const input = document.createElement("input");
    [input.name, input.type, input.autocomplete, input.required] = [name, kind ?? "text", "off", true];
    box.append(input);
    return input;
  });
  const does = add("button", go, form);
  [does.value, does.className] = ["go", "go"];
  const leaves = add("button", go === "close" ? "" : "leave it", form);
  [leaves.value, leaves.formNoValidate, leaves.hidden] = ["", true, go === "close"];
  if (!dialog.open) dialog.showModal();
  (inputs[0] ?? (go === "close" ? does : leaves)).focus();
  return new Promise((answer) => {
    // Escape closes it too, and leaves it.
    dialog.onclose = () => {
      const filled = Object.fromEntries(inputs.map((input) => [input.name, input.value]));
      answer(dialog.returnValue === "go" ? filled : undefined);
      dialog.returnValue = "";
    };
  });
}

/** From a wish to what became of it: what is missing is asked for, then the plan is shown, then it is done. */
async function carryOut(wish) {
  try {
    if (wish.action === "replace") {
      const filled = await dialogue("Replace " + wish.member, [], [["new", "Path of the new disk"]], "show the plan");
      if (!filled) return;
      wish = { ...wish, ...filled };
    }
    const plan = await ask("/page/plan", wish);
    const fields = [];
    if (plan.confirm) fields.push(["typed", "To make sure, type " + plan.confirm.what + " (" + plan.confirm.word + ")"]);
    if (wish.action === "acknowledge") fields.push(["why", "Why that is enough"]);
    const filled = await dialogue(plan.title, [...plan.lines, "As a command: " + plan.command], fields, "do it");
    if (!filled) return;
    const done = await ask("/page/do", { ...wish, ...filled });
    await dialogue("Done", [done.message], [], "close");
  } catch (error) {
    await dialogue("Not done", error.message.split("\n"), [], "close");
  }
}

async function signIn() {
  const filled = await dialogue("Show a token", ["It is kept until this tab is closed."], [["token", "Token", "password"]], "show it");
  if (!filled) return;
  sessionStorage.setItem("token", filled.token.trim());
  following.abort();
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.dataset.wish) carryOut(JSON.parse(button.dataset.wish));
  else if (button?.id === "sign-in") signIn();
});

root.classList.add("live");
stayLive();
