// SVG charts, drawn from numbers alone.

const SVG = "http://www.w3.org/2000/svg";

function svg(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function html(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// Four digits; rounding errors of a sum are 0, and a minus sign is a minus sign.
function brief(number) {
  if (number === Infinity) return "∞";
  if (Math.abs(number) < 1e-12) return "0";
  const large = Math.abs(number) >= 1e5 || Math.abs(number) < 1e-3;
  return (large ? number.toExponential(2) : String(Number(number.toPrecision(4)))).replace("-", "−");
}

// One bar a digit: up for positive and down for negative numbers, where signed, else from the foot; top is the number
// that a bar of full height stands for.
function bars(numbers, label, top, signed, described) {
  const [width, half, foot] = [200, 38, 14];
  const step = width / numbers.length;
  const floor = signed ? half : 2 * half;
  const kind = (number) => (!signed ? "mass" : number > 0 ? "up" : "down");
  const drawn = numbers.map((number, i) => {
    const height = top > 0 ? (Math.abs(number) / top) * floor : 0;
    const y = number > 0 ? floor - height : floor;
    return svg("rect", { x: i * step + 3, y, width: step - 6, height, class: kind(number) });
  });
  const names = numbers.map((_, i) =>
    svg("text", { x: (i + 0.5) * step, y: 2 * half + foot - 2, class: i === label ? "label" : "" }, String(i)),
  );
  const line = svg("line", { x1: 0, x2: width, y1: floor, y2: floor });
  const box = { viewBox: `0 -2 ${width} ${2 * half + foot + 4}`, class: "bars", role: "img", "aria-label": described };
  return svg("svg", box, ...drawn, line, ...names);
}

// A line over steps; a step without a value is a gap. points: [[step, value or null], ...], two values at least.
function curve(points, name) {
  const known = points.filter(([, value]) => value !== null);
  const [width, height, left, foot, head] = [260, 120, 52, 16, 8];
  const values = known.map(([, value]) => value);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const [first, last] = [points[0][0], points[points.length - 1][0]];
  const x = (step) => left + ((width - left - 4) * (step - first)) / (last - first || 1);
  const y = (value) => (high > low ? head + (height - foot - head) * ((high - value) / (high - low)) : height / 2);
  let pen = "M";
  const path = points.map(([step, value]) => {
    const move = value === null ? "" : `${pen}${x(step).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = value === null ? "M" : "L";
    return move;
  });
  const axis = svg("path", { d: `M${left} ${head}V${height - foot}H${width - 4}`, class: "axis" });
  const text = (words, at) => svg("text", at, words);
  const end = known[known.length - 1];
  const described = `${name}: ${brief(known[0][1])} at step ${known[0][0]}, ${brief(end[1])} at step ${end[0]}`;
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, class: "curve", role: "img", "aria-label": described },
    axis,
    svg("path", { d: path.join(""), class: "line" }),
    text(brief(high), { x: left - 4, y: head + 4, class: "end" }),
    text(high > low ? brief(low) : "", { x: left - 4, y: height - foot, class: "end" }),
    text(String(first), { x: left, y: height - 2 }),
    text(`step ${last}`, { x: width - 4, y: height - 2, class: "end" }),
  );
}
