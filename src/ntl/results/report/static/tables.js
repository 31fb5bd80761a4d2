// The two switches above the tables: the style shows of each cell what the section's attributes name.

const tableSection = document.getElementById("tables");

for (const input of tableSection.querySelectorAll(".switches input")) {
  // A browser may remember what was chosen before the page was loaded again.
  if (input.checked) tableSection.dataset[input.name] = input.value;
  input.addEventListener("change", () => (tableSection.dataset[input.name] = input.value));
}
