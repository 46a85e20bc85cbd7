// The page keeps the file and the sliders' places; the server computes. One request of a kind is
// under way at a time; what changed meanwhile is asked for next.
"use strict";

const $ = (id) => document.getElementById(id);
const state = { name: "", text: "", set: {}, along: null, changes: 0 };

const units = {
  number: (v) => String(Number(v.toPrecision(4))),
  count: (v) => String(v),
  bytes: (v) => (v >= 1048576 ? `${Number((v / 1048576).toPrecision(4))} MiB` : `${v} B`),
  seconds: (v) =>
    v >= 1 ? `${Number(v.toPrecision(4))} s` : v >= 1e-3 ? `${Number((v * 1e3).toPrecision(4))} ms` : `${Number((v * 1e6).toPrecision(4))} us`,
  bits: (v) => (v >= 1e9 ? `${Number((v / 1e9).toPrecision(4))} Gbit/s` : `${Number((v / 1e6).toPrecision(4))} Mbit/s`),
};

async function ask(path, question) {
  const init = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(question) };
  const response = await fetch(path, question ? init : undefined);
  const text = await response.text();
  let answer;
  try {
    answer = JSON.parse(text);
  } catch {
    throw new Error(text.trim() || response.statusText);
  }
  if (response.ok) return answer;
  throw new Error(answer.line ? `line ${answer.line}: ${answer.error}` : answer.error);
}

function tell(problem) {
  $("error").hidden = !problem;
  $("error").textContent = problem || "";
}

// Runs `work` again after it ends if it was wanted meanwhile, and never twice at once.
function latest(work, delay) {
  let running = false;
  let wanted = false;
  let timer = null;
  async function go() {
    timer = null;
    if (running) {
      wanted = true;
      return;
    }
    running = true;
    try {
      await work();
    } finally {
      running = false;
      if (wanted) {
        wanted = false;
        go();
      } else if (!solve.busy() && !answer.busy() && !study.busy()) {
        $("status").textContent = $("error").hidden ? "ready" : "stopped";
      }
    }
  }
  return {
    want() {
      $("status").textContent = "computing";
      clearTimeout(timer);
      timer = setTimeout(go, delay);
    },
    busy: () => running || timer !== null,
  };
}

const question = () => ({ text: state.text, set: state.set, along: state.along });

const solve = latest(async () => {
  try {
    const answer = await ask("/api/solve", question());
    tell(null);
    $("drawing").innerHTML = answer.drawing;
    $("tables").innerHTML = answer.tables;
    headlines(answer.headlines);
    sliders(answer.sliders, answer.left_out);
  } catch (e) {
    tell(e.message);
  }
}, 0);

// The figures that no formula gives take seconds; they are shown if nothing was changed meanwhile.
const answer = latest(async () => {
  const asked = state.changes;
  try {
    const found = await ask("/api/answer", question());
    if (asked !== state.changes) return;
    $("drawing").innerHTML = found.drawing;
    $("tables").innerHTML = found.tables;
    headlines(found.headlines);
  } catch (e) {
    if (asked === state.changes) tell(e.message);
  }
}, 200);

const study = latest(async () => {
  try {
    const answer = await ask("/api/study", question());
    $("curves").innerHTML = answer.curves;
    $("sensitivity").innerHTML = answer.sensitivity;
    $("along").textContent = answer.along || "";
    $("curves").classList.remove("stale");
    $("sensitivity").classList.remove("stale");
  } catch (e) {
    tell(e.message);
  }
}, 120);

function changed() {
  $("curves").classList.add("stale");
  $("sensitivity").classList.add("stale");
  state.changes += 1;
  solve.want();
  answer.want();
  study.want();
}

// What stays in sight while a slider is moved.
function headlines(all) {
  const items = all.map((h) => {
    const item = document.createElement("li");
    const value = document.createElement("b");
    value.textContent = h.seconds === null ? "no end" : units.seconds(h.seconds);
    item.append(`${h.name} `, value);
    return item;
  });
  $("headlines").replaceChildren(...items);
}

// The sliders are made once for a file, and only told their values afterwards.
function sliders(all, leftOut) {
  const names = all.map((s) => s.name).join("\n");
  if ($("inputs").dataset.names !== names) {
    $("inputs").dataset.names = names;
    $("inputs").replaceChildren();
    let of = null;
    let box = null;
    for (const s of all) {
      if (s.of !== of) {
        of = s.of;
        box = document.createElement("details");
        box.open = /^(copy|flow) /.test(of);
        const title = document.createElement("summary");
        title.textContent = of;
        box.append(title);
        $("inputs").append(box);
      }
      box.append(slider(s));
    }
    if (leftOut > 0) {
      const note = document.createElement("p");
      note.textContent = `${leftOut} more numbers of this network have no slider: change them in the file.`;
      $("inputs").append(note);
    }
  }
  for (const s of all) {
    const input = document.querySelector(`input[data-name="${CSS.escape(s.name)}"]`);
    if (input && document.activeElement !== input) {
      input.min = s.low;
      input.max = s.high;
      input.value = s.value;
    }
    if (input) show(input, s.unit, s.value);
  }
}

function slider(s) {
  const label = document.createElement("label");
  label.className = "slider";
  const title = document.createElement("span");
  title.textContent = s.name.split(".").pop();
  const input = document.createElement("input");
  Object.assign(input, { type: "range", min: s.low, max: s.high, step: s.unit === "count" ? 1 : "any" });
  input.dataset.name = s.name;
  input.value = s.value;
  input.addEventListener("input", () => {
    let value = Number(input.value);
    if (s.unit !== "number" && s.unit !== "seconds") value = Math.round(value);
    else if (value > s.step) value = Math.round(value / s.step) * s.step;
    state.set[s.name] = Number(value.toPrecision(9));
    state.along = s.name;
    show(input, s.unit, value);
    changed();
  });
  label.append(title, document.createElement("output"), input);
  return label;
}

function show(input, unit, value) {
  input.parentElement.querySelector("output").textContent = units[unit](value);
  input.parentElement.classList.toggle("changed", input.dataset.name in state.set);
}

function open(name, text) {
  Object.assign(state, { name, text, set: {}, along: null });
  $("name").textContent = name;
  document.title = `${name} - remora model`;
  delete $("inputs").dataset.names;
  changed();
}

$("load").addEventListener("change", async () => {
  const [file] = $("load").files;
  if (!file) return;
  open(file.name, await file.text());
  $("load").value = "";
});

$("reset").addEventListener("click", () => open(state.name, state.text));

$("save").addEventListener("click", async () => {
  try {
    const answer = await ask("/api/save", { text: state.text, set: state.set });
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([answer.text], { type: "application/toml" }));
    link.download = state.name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  } catch (e) {
    tell(e.message);
  }
});

ask("/api/start").then((start) => open(start.name, start.text), (e) => tell(e.message));
