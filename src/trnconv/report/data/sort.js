// Click or press Enter on a heading: sort by that column, numbers from large to small first.
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement, body = head.closest("table").tBodies[0];
    const column = head.cellIndex, numbers = !head.classList.contains("words");
    const before = head.getAttribute("aria-sort");
    const ascending = before ? before === "descending" : !numbers;
    const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const order = (a, b) => numbers ? key(a) - key(b) : key(a).localeCompare(key(b), "en");
    const rows = [...body.rows].sort((a, b) => (ascending ? 1 : -1) * order(a, b));
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    body.append(...rows);
  });
}
