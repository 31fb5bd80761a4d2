// The list of runs: sorting, searching, and the details of a run when it is opened.

const runList = document.getElementById("run-list");
const runs = [...runList.querySelectorAll(".run")];
const heads = [...runList.querySelectorAll("thead th")];

function sortKey(run, column) {
  const cell = run.rows[0].cells[column];
  const { value } = cell.dataset;
  if (value === undefined) return cell.textContent;
  return value === "" ? null : Number(value);
}

// Whatever the direction, a run without a value stands at the end.
function comparing(direction) {
  return ([left], [right]) => {
    if (left === null || right === null) return (left === null) - (right === null);
    const order = typeof left === "number" ? left - right : left.localeCompare(right, "en");
    return direction * order;
  };
}

function sortRuns(column) {
  const ascending = heads[column].getAttribute("aria-sort") !== "ascending";
  heads.forEach((head, i) => {
    head.setAttribute("aria-sort", i !== column ? "none" : ascending ? "ascending" : "descending");
  });
  const keyed = [...runList.tBodies].map((run) => [sortKey(run, column), run]);
  keyed.sort(comparing(ascending ? 1 : -1));
  runList.append(...keyed.map(([, run]) => run));
}

function filterRuns(search) {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  for (const run of runs) run.hidden = !words.every((word) => run.dataset.text.includes(word));
  const shown = runs.filter((run) => !run.hidden).length;
  document.getElementById("run-count").textContent = `${shown} of ${runs.length} runs`;
}

// Metric -> rule -> value: "test/mae@paper" is the metric "test/mae" under the rule "paper".
function byMetric(metrics) {
  const rows = new Map();
  for (const [key, value] of Object.entries(metrics)) {
    const [metric, rule = "ours"] = key.split("@");
    rows.set(metric, { ...rows.get(metric), [rule]: value });
  }
  return rows;
}

function metricsTable(metrics) {
  const rows = byMetric(metrics);
  const rules = [...new Set([...rows.values()].flatMap(Object.keys))].sort();
  const text = (value) => (value === undefined ? "-" : value === null ? "undefined" : brief(value));
  const line = ([metric, values]) =>
    html(
      "tr",
      {},
      html("th", { scope: "row" }, metric),
      ...rules.map((rule) => html("td", { className: "number" }, text(values[rule]))),
    );
  const head = ["metric", ...rules].map((name) => html("th", { scope: "col" }, name));
  return html("table", {}, html("thead", {}, html("tr", {}, ...head)), html("tbody", {}, ...[...rows].map(line)));
}

function curvesPart(curves) {
  const [drawn, named] = [html("div", { className: "curves" }), []];
  for (const [name, { steps, values }] of Object.entries(curves)) {
    const points = steps.map((step, i) => [step, values[i]]);
    const known = points.filter(([, value]) => value !== null);
    if (known.length > 1) drawn.append(html("figure", {}, html("figcaption", {}, name), curve(points, name)));
    else if (known.length) named.push(`${name} ${brief(known[0][1])} at step ${known[0][0]}`);
  }
  return [drawn, html("p", {}, named.join(", "))];
}

function worstTable(answers) {
  const names = ["question", "answer", "prediction", "error", "kind"];
  const text = (value) => (typeof value === "number" ? brief(value) : (value ?? "-"));
  const cell = (value) => html("td", typeof value === "number" ? { className: "number" } : {}, text(value));
  const line = (answer) => html("tr", {}, ...names.map((name) => cell(answer[name])));
  const head = names.map((name) => html("th", { scope: "col" }, name));
  return html("table", {}, html("thead", {}, html("tr", {}, ...head)), html("tbody", {}, ...answers.map(line)));
}

const settings = (values) =>
  html("pre", {}, Object.entries(values).map(([key, value]) => `${key}: ${JSON.stringify(value)}`).join("\n"));

function folded(name, ...parts) {
  return html("details", {}, html("summary", {}, name), ...parts);
}

function showRun(run, body) {
  const { overrides, metrics, curves, config, lacks, about, worst = {} } = data.runs[run.dataset.id];
  const whole = Object.entries({ ...data.config, ...config }).filter(([key]) => !lacks.includes(key));
  body.replaceChildren(
    html("pre", {}, `python train.py ${overrides.join(" ")}`),
    ...curvesPart(curves),
    folded("Metrics", metricsTable(metrics)),
    ...Object.entries(worst).map(([split, answers]) => folded(`Worst answers, ${split}`, worstTable(answers))),
    folded("Resolved config", settings(Object.fromEntries(whole.sort()))),
    folded("Code, data and device", settings(about)),
  );
}

heads.forEach((head, column) => head.firstChild.addEventListener("click", () => sortRuns(column)));
const runFilter = document.getElementById("run-filter");
runFilter.addEventListener("input", () => filterRuns(runFilter.value));
filterRuns(runFilter.value);
for (const run of runs) {
  const details = run.querySelector("details");
  details.addEventListener("toggle", () => {
    const body = details.querySelector(".run-body");
    if (details.open && !body.firstChild) showRun(run, body);
  });
}
