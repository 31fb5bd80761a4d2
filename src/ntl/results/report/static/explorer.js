// The loss explorer: what the sliders say, and what every loss makes of it.

const packed = Uint8Array.from(atob(document.getElementById("report-data").textContent), (c) => c.charCodeAt(0));
const data = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
const sliders = VALUES.map((digit) => document.getElementById(`weight-${digit}`));
const labelButtons = [...document.querySelectorAll('#explorer input[name="label"]')];
const oneScale = document.getElementById("one-scale");
// The weights themselves, as an example may have finer ones than a slider can be set to.
const weights = [...data.examples[0].weights];

const chosenLabel = () => labelButtons.findIndex((button) => button.checked);

function showProbabilities(p) {
  sliders.forEach((slider, digit) => {
    const percent = `${(100 * p[digit]).toFixed(1)} %`;
    slider.value = weights[digit];
    slider.setAttribute("aria-valuetext", `weight ${brief(weights[digit])}, probability ${percent}`);
    slider.nextElementSibling.textContent = percent;
  });
}

function card(name, words, value, top, chart) {
  const title = html("h3", {}, name, " ", html("span", {}, value));
  return html("div", { className: "card" }, title, html("p", {}, words), html("p", {}, `height ${top}`), chart);
}

const listed = (numbers) => numbers.map((number, i) => `${i}: ${brief(number)}`).join(", ");

function showCharts(p, label, results) {
  const largest = (gradient) => Math.max(...gradient.map(Math.abs));
  const common = Math.max(...results.map(({ gradient }) => largest(gradient)));
  const cards = results.map(({ value, gradient }, i) => {
    const top = oneScale.checked ? common : largest(gradient);
    const { name, formula } = LOSSES[i];
    const chart = bars(gradient, label, top, true, `gradient of ${name}: ${listed(gradient)}`);
    return card(name, formula, brief(value), `±${brief(top)}`, chart);
  });
  const most = Math.max(...p);
  const masses = bars(p, label, most, false, `probabilities: ${listed(p)}`);
  const distribution = card("p", "probabilities", "", brief(most), masses);
  document.getElementById("loss-charts").replaceChildren(distribution, ...cards);
}

function numberCell(number) {
  const cell = html("td", { className: "number" }, brief(number));
  cell.dataset.value = String(number);
  return cell;
}

function showNumbers(results) {
  const rows = results.map(({ key, value, gradient }, i) => {
    const row = html("tr", {}, html("th", { scope: "row" }, LOSSES[i].name), ...[value, ...gradient].map(numberCell));
    row.dataset.loss = key;
    return row;
  });
  document.querySelector("#loss-numbers tbody").replaceChildren(...rows);
}

function say(p, label, results) {
  const named = results.map((result, i) => [LOSSES[i].name, result]);
  const told = named.filter(([name]) => ["CE", "NTL-MSE", "NTL-WAS"].includes(name));
  const each = (number) => told.map(([name, result]) => `${name} ${brief(number(result))}`).join(", ");
  const uniform = sum(weights) === 0 ? "No weight at all counts as uniform, without a gradient. " : "";
  document.getElementById("explorer-says").textContent =
    `${uniform}Expected value ${brief(dot(p, VALUES))}, label ${label}: ${each(({ value }) => value)}. ` +
    `Gradient at the label: ${each(({ gradient }) => gradient[label])}.`;
}

function showExplorer() {
  const [p, label] = [normalise(weights), chosenLabel()];
  const results = allLosses(weights, label);
  showProbabilities(p);
  showCharts(p, label, results);
  showNumbers(results);
  say(p, label, results);
}

function showExample({ weights: chosen, label }) {
  weights.splice(0, weights.length, ...chosen);
  labelButtons[label].checked = true;
  showExplorer();
}

sliders.forEach((slider, digit) =>
  slider.addEventListener("input", () => {
    weights[digit] = Number(slider.value);
    showExplorer();
  }),
);
for (const input of [...labelButtons, oneScale]) input.addEventListener("change", showExplorer);
for (const button of document.querySelectorAll("[data-example]")) {
  button.addEventListener("click", () => showExample(data.examples[Number(button.dataset.example)]));
}
showExample(data.examples[0]);
