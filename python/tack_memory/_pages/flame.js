for (const place of document.querySelectorAll('.flame-place')) {
  const told = JSON.parse(place.querySelector('script').textContent), graph = place.querySelector('.flame');
  const choice = place.querySelector('select'), search = place.querySelector('input'), found = place.querySelector('output');
  const names = told.names, ROW = 20;
  const size = n => { const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']; let i = 0; while (n >= 1024 && i < 4) { n /= 1024; i++ } return +n.toPrecision(3) + ' ' + units[i] };
  let root, zoomed;
  const build = rows => {
    const top = { name: 'all', value: 0, below: new Map(), up: null, depth: 0 };
    for (const [value, ...stack] of rows) {
      let node = top;
      top.value += value;
      for (const number of stack) {
        let next = node.below.get(number);
        if (!next) node.below.set(number, next = { name: names[number], value: 0, below: new Map(), up: node, depth: node.depth + 1 });
        next.value += value;
        node = next;
      }
    }
    return top;
  };
  const colour = name => { let sum = 7; for (const c of name) sum = (sum * 31 + c.codePointAt(0)) % 997; return `hsl(${22 + sum % 38} ${70 + sum % 20}% ${62 + sum % 14}%)` };
  const draw = () => {
    graph.replaceChildren();
    let deepest = 0;
    const wanted = search.value.toLowerCase(), hit = node => node.up !== null && node.name.toLowerCase().includes(wanted);  // the top one is no name of anybody's
    const one = (node, left, width, above) => {
      if (width < 0.0008) return;
      deepest = Math.max(deepest, node.depth);
      const box = document.createElement('div');
      box.style.left = 100 * left + '%'; box.style.width = 100 * width + '%'; box.style.top = node.depth * ROW + 'px';
      box.style.background = colour(node.name);
      box.textContent = node.name;
      box.title = `${node.name}\n${size(node.value)} (${root.value ? (100 * node.value / root.value).toFixed(1) : 0} %)`;
      if (above) box.classList.add('above');
      if (wanted && hit(node)) box.classList.add('found');
      box.addEventListener('click', () => { zoomed = node; draw() });
      graph.append(box);
    };
    const all = (node, left, width) => {
      one(node, left, width, false);
      for (const next of [...node.below.values()].sort((a, b) => b.value - a.value)) {
        const part = node.value ? width * next.value / node.value : 0;
        all(next, left, part);
        left += part;
      }
    };
    for (let node = zoomed.up; node; node = node.up) one(node, 0, 1, true);
    all(zoomed, 0, 1);
    graph.style.height = (deepest + 1) * ROW + 'px';
    // Of all that is zoomed into, also what is too narrow to be drawn; what is inside of a hit counts once.
    const inside = node => { if (hit(node)) return node.value; let sum = 0; for (const next of node.below.values()) sum += inside(next); return sum };
    const within = node => node !== null && (hit(node) || within(node.up));
    found.textContent = wanted ? `${size(within(zoomed) ? zoomed.value : inside(zoomed))} found` : size(zoomed.value);
  };
  const choose = () => { root = zoomed = build(told.kinds[choice.value]); draw() };
  choice.addEventListener('change', choose);
  search.addEventListener('input', draw);
  choose();
}
