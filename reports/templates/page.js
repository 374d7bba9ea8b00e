"use strict";
// Tables sort by a click on a heading, or by Enter or Space on it.
// A number's cell carries its value; a cell without a value stays last either way.

const letters = new Intl.Collator("en", { numeric: true });

function keyOf(row, column, isNumber) {
  const cell = row.cells[column];
  if (!isNumber) return cell.textContent.trim();
  return cell.dataset.value === undefined ? null : Number(cell.dataset.value);
}

function sortBy(table, column) {
  const headings = [...table.tHead.rows[0].cells];
  const heading = headings[column];
  const isNumber = heading.dataset.kind === "number";
  const first = isNumber ? "descending" : "ascending";
  const other = isNumber ? "ascending" : "descending";
  const order = heading.getAttribute("aria-sort") === first ? other : first;
  const sign = order === "ascending" ? 1 : -1;

  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => ({ row, key: keyOf(row, column, isNumber) }));
  const missing = (key) => key === null || key === "";
  rows.sort((a, b) => {
    if (missing(a.key) || missing(b.key)) return missing(a.key) - missing(b.key);
    return sign * (isNumber ? a.key - b.key : letters.compare(a.key, b.key));
  });
  body.append(...rows.map((entry) => entry.row));
  for (const each of headings) each.setAttribute("aria-sort", each === heading ? order : "none");
}

for (const table of document.querySelectorAll("table[data-sortable]")) {
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    heading.querySelector("button").addEventListener("click", () => sortBy(table, column));
  });
}
