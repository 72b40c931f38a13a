// Tables: on a phone, one with sentences in it becomes a list of rows (rota.css), each value with the head of its
// column; the table of schedules can be sorted.
const LONG = 30; // characters of a cell that would be squeezed on a phone

const heads = (table) => [...table.tHead.rows[0].cells];

const stack = (table) => {
  const labels = heads(table).map((cell) => cell.textContent.trim());
  const rows = [...table.tBodies[0].rows];
  const long = rows.some((row) => [...row.cells].some((cell) => cell.textContent.length > LONG));
  if (labels.length < 3 || !long) return;
  for (const row of rows) [...row.cells].forEach((cell, column) => (cell.dataset.label = labels[column]));
  table.dataset.stacked = "";
};

// Costs such as +4%, ~+17% or ~0 sort as numbers.
const number = (text) => {
  const found = text.replaceAll(",", "").match(/^~?([+-]?\d+(\.\d+)?)%?$/);
  return found ? Number(found[1]) : null;
};

const compare = (a, b) => {
  const [left, right] = [number(a), number(b)];
  return left !== null && right !== null ? left - right : a.localeCompare(b);
};

// A second click on the same head turns the order round.
const sortBy = (table, column) => {
  const head = heads(table);
  const down = head[column].getAttribute("aria-sort") === "ascending";
  for (const cell of head) cell.removeAttribute("aria-sort");
  head[column].setAttribute("aria-sort", down ? "descending" : "ascending");
  const text = (row) => row.cells[column].textContent.trim();
  const rows = [...table.tBodies[0].rows].sort((a, b) => (down ? -1 : 1) * compare(text(a), text(b)));
  table.tBodies[0].append(...rows);
};

const makeSortable = (table) => {
  table.dataset.sortable = "";
  heads(table).forEach((cell, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...cell.childNodes);
    button.addEventListener("click", () => sortBy(table, column));
    cell.append(button);
  });
};

document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll(".md-content table:not([class])")) {
    if (!table.tHead) continue;
    stack(table);
    if (location.pathname.endsWith("/schedules.html")) makeSortable(table);
  }
});
