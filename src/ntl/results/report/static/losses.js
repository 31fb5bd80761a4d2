// The losses of ntl.losses for one label over the digits 0 to 9, and their gradients with respect to the ten logits.

const VALUES = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
// Below this an error is the rounding of a sum of ten probabilities: |e| has its kink there, and no direction.
const ROUNDING = 1e-14;

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
const dot = (left, right) => sum(left.map((number, i) => number * right[i]));
const oneHot = (label) => VALUES.map((value) => Number(value === label));
const sign = (number) => (Math.abs(number) < ROUNDING ? 0 : Math.sign(number));

// Weights without any mass are ten logits of minus infinity, which count as uniform and have no gradient.
function normalise(weights) {
  const total = sum(weights);
  return total > 0 ? weights.map((weight) => weight / total) : weights.map(() => 1 / weights.length);
}

// dL/dz from dL/dp, p being the softmax of z; a digit without mass has the gradient 0.
function throughSoftmax(p, slope) {
  const mean = dot(p, slope);
  return p.map((mass, i) => mass * (slope[i] - mean));
}

function crossEntropy(p, label) {
  const target = oneHot(label);
  return { value: -Math.log(p[label]), gradient: p.map((mass, i) => mass - target[i]) };
}

// A regression loss of the error e of the expected value, and its derivative.
function regression(loss, derivative) {
  return (p, label) => {
    const error = dot(p, VALUES) - label;
    const slope = VALUES.map((value) => derivative(error) * value);
    return { value: loss(error), gradient: throughSoftmax(p, slope) };
  };
}

function wasserstein(p, label) {
  const cost = VALUES.map((value) => Math.abs(value - label));
  return { value: dot(p, cost), gradient: throughSoftmax(p, cost) };
}

// A loss of F - G before each of the nine gaps between the digits, and its derivative.
function betweenCdfs(loss, derivative) {
  return (p, label) => {
    const target = oneHot(label);
    let total = 0;
    const difference = p.map((mass, i) => (total += mass - target[i])).slice(0, -1);
    const slopes = difference.map(derivative);
    const slope = VALUES.map((_, i) => sum(slopes.slice(i)));
    return { value: sum(difference.map(loss)), gradient: throughSoftmax(p, slope) };
  };
}

const square = (number) => number * number;
const huber = (error) => (Math.abs(error) < 1 ? 0.5 * square(error) : Math.abs(error) - 0.5);
const huberSlope = (error) => Math.max(-1, Math.min(1, error));

const LOSSES = [
  { key: "ce", name: "CE", formula: "−log p(y)", compute: crossEntropy },
  { key: "ntl_mse", name: "NTL-MSE", formula: "(ŷ − y)²", compute: regression(square, (e) => 2 * e) },
  { key: "ntl_mae", name: "NTL-MAE", formula: "|ŷ − y|", compute: regression(Math.abs, sign) },
  { key: "ntl_huber", name: "NTL-Huber", formula: "Huber(ŷ − y), δ = 1", compute: regression(huber, huberSlope) },
  { key: "ntl_was", name: "NTL-WAS", formula: "Σ p(v)·|v − y|", compute: wasserstein },
  { key: "ntl_was_cdf", name: "NTL-WAS-CDF", formula: "Σ |F − G|", compute: betweenCdfs(Math.abs, sign) },
  { key: "ntl_crps", name: "NTL-CRPS", formula: "Σ (F − G)²", compute: betweenCdfs(square, (d) => 2 * d) },
];

// Every loss of these weights (ten numbers from 0 on) at this label, in the order of LOSSES.
function allLosses(weights, label) {
  const p = normalise(weights);
  const nothing = sum(weights) === 0;
  return LOSSES.map(({ key, compute }) => {
    const { value, gradient } = compute(p, label);
    return { key, value, gradient: nothing ? gradient.map(() => 0) : gradient };
  });
}
