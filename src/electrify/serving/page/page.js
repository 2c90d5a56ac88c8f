"use strict";
// Text from a user or a model reaches the page through textContent alone.
const at = (id) => document.getElementById(id);
const percent = (p) => `${(100 * p).toFixed(p < 0.1 ? 1 : 0)}\u00a0%`;
const WAIT_MS = 300; // before a focused word asks for its alternatives
let models = [];
let text = ""; // the text that was checked, whatever the field holds now
let model = ""; // the model that checked it
let words = []; // {button, start, end, probability}
let asking = null; // the request for alternatives in progress
let timer = 0;

async function ask(path, body, signal) {
  let response;
  try {
    const how = { method: "POST", headers: { "content-type": "application/json" } };
    response = await fetch(path, body ? { ...how, body: JSON.stringify(body), signal } : { signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server cannot be reached.");
  }
  const found = await response.json().catch(() => ({ detail: response.statusText }));
  if (!response.ok) throw new Error(`${found.detail} (${response.status})`);
  return found;
}

function tell(sentence, wrong = false) {
  at("status").textContent = sentence;
  at("status").classList.toggle("wrong", wrong);
}

function element(name, content) {
  const made = document.createElement(name);
  made.textContent = content;
  return made;
}

// ---------------------------------------------------------------- words

async function check() {
  text = at("text").value;
  if (!text.trim()) {
    tell("Enter a text first.", true);
    at("text").focus();
    return;
  }
  tell("Checking ...");
  at("check").setAttribute("aria-disabled", "true");
  try {
    model = at("model").value;
    const found = await ask("detect", { text, model });
    show(found.result.words);
  } catch (error) {
    at("found").hidden = at("alternatives").hidden = true;
    tell(error.message, true);
  } finally {
    at("check").removeAttribute("aria-disabled");
  }
}

function show(found) {
  const characters = Array.from(text); // offsets count characters, not UTF-16 units
  const box = at("words");
  box.replaceChildren();
  at("alternatives").hidden = true;
  words = [];
  let last = 0;
  for (const { start, end, probability } of found) {
    if (end <= last) continue; // a character of several pieces
    box.append(characters.slice(last, Math.max(start, last)).join(""));
    const button = element("span", characters.slice(Math.max(start, last), end).join(""));
    button.className = "word"; // a button would be broken from the punctuation after it
    button.setAttribute("role", "button");
    button.style.setProperty("--p", probability);
    button.title = `replaced: ${percent(probability)}`;
    button.setAttribute("aria-pressed", "false");
    box.append(button);
    words.push({ button, start, end, probability });
    last = end;
  }
  box.append(characters.slice(last).join(""));
  at("found").hidden = false;
  mark();
}

function mark() {
  const threshold = Number(at("threshold").value);
  at("shown").textContent = threshold.toFixed(2);
  const marked = [];
  for (const word of words) {
    const is = word.probability >= threshold;
    const name = word.button.textContent;
    word.button.classList.toggle("marked", is);
    word.button.tabIndex = is ? 0 : -1;
    word.button.setAttribute("aria-label",
      `${name}, ${percent(word.probability)}${is ? ", marked" : ""}`);
    if (is) marked.push(`${name} (${percent(word.probability)})`);
  }
  if (words.length && !marked.length) words[0].button.tabIndex = 0;
  const named = marked.slice(0, 8).join(", ") + (marked.length > 8 ? ", ..." : "");
  tell(marked.length
    ? `${marked.length} of ${words.length} words marked: ${named}`
    : `None of ${words.length} words marked.`);
}

// ---------------------------------------------------------------- alternatives

function wordOf(button) {
  return words.find((word) => word.button === button);
}

async function alternatives(word) {
  clearTimeout(timer);
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking;
  for (const other of words) other.button.setAttribute("aria-pressed", String(other === word));
  const name = word.button.textContent;
  at("alternatives").hidden = false;
  at("alternatives-heading").textContent = `Instead of "${name}"`;
  at("list").replaceChildren();
  const replaced = `Probability that "${name}" was replaced: ${percent(word.probability)}.`;
  at("chosen").textContent = replaced;
  if (!models.some((known) => known.endpoints.includes("alternatives"))) {
    at("chosen").textContent += " No masked language model is served that could name alternatives.";
    return;
  }
  try {
    const place = { text, start: word.start, end: word.end };
    const found = await ask("alternatives", { ...place, model }, signal);
    at("list").replaceChildren(...found.result.map((one) =>
      element("li", `${one.word} (${percent(one.probability)})`)));
  } catch (error) {
    if (error.name !== "AbortError") at("chosen").textContent = `${replaced} ${error.message}`;
  }
}

const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

function press(event) {
  const from = words.findIndex((word) => word.button === event.target);
  if (from < 0) return;
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    alternatives(words[from]);
    return;
  }
  let to = from + (STEPS[event.key] ?? 0);
  if (event.key === "Home") to = 0;
  if (event.key === "End") to = words.length - 1;
  if (to === from || !words[to]) return;
  event.preventDefault();
  words[to].button.focus();
}

// ---------------------------------------------------------------- start

async function start() {
  ({ models } = await ask("models"));
  const detecting = models.filter((known) => known.endpoints.includes("detect"));
  at("model").replaceChildren(...detecting.map(({ name }) => {
    const option = element("option", name);
    option.value = name;
    return option;
  }));
  at("choice").hidden = detecting.length < 2;
  if (!detecting.length) {
    at("check").disabled = true;
    tell("No discriminator is served, so words cannot be checked.", true);
  }
}

at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  check();
});
at("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) at("form").requestSubmit();
});
at("threshold").addEventListener("input", mark);
at("words").addEventListener("keydown", press);
at("words").addEventListener("click", (event) => {
  const word = wordOf(event.target);
  if (word) alternatives(word);
});
at("words").addEventListener("focusin", (event) => {
  const word = wordOf(event.target);
  clearTimeout(timer);
  if (word?.button.classList.contains("marked")) timer = setTimeout(alternatives, WAIT_MS, word);
});
start().catch((error) => tell(error.message, true));
