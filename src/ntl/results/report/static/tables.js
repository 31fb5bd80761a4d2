// The two switches above the tables: the style shows of each cell what the section's attributes name.

const tableSection = document.getElementById("tables");

for (const input of tableSection.querySelectorAll(".switches input")) {
  // A browser may remember what was chosen before the page was loaded again.
  if (input.checked) tableSection.dataset[input.name] = input.value;
  input.addEventListener("change", () => (tableSection.dataset[input.name] = input.value));
}

// What a link leads to may be folded; most browsers open it themselves.
function unfold() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
  target?.scrollIntoView();
}

addEventListener("hashchange", unfold);
unfold();
