// Of each table of the class tack-lines: a click on a head sorts by the cells' data-value, which is JSON.
for (const table of document.querySelectorAll('table.tack-lines')) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => head.firstElementChild.addEventListener('click', () => {
    const down = head.getAttribute('aria-sort') !== 'descending', sign = down ? -1 : 1;
    const key = row => JSON.parse(row.cells[column].dataset.value);
    const order = (a, b) => a === b ? 0 : a === null ? 1 : b === null ? -1 : a < b ? -sign : sign;
    heads.forEach(other => other.removeAttribute('aria-sort'));
    head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
    body.append(...[...body.rows].sort((a, b) => order(key(a), key(b))));
  }));
}
