const told = JSON.parse(document.getElementById('told').textContent), KINDS = told.kinds;
const canvas = document.querySelector('canvas'), says = document.querySelector('output'), pen = canvas.getContext('2d');
// Each event is seven numbers, each as the difference to the one before; a negative one n is written as -2n - 1, another as 2n, seven bits a byte.
const N = told.count, time = new Float64Array(N), kind = new Uint8Array(N), bytes = new Float64Array(N), use = new Float64Array(N), out = new Float64Array(N),
  budget = new Float64Array(N), took = new Float64Array(N);
{
  const raw = atob(told.events);
  let at = 0;
  const next = () => { let n = 0, scale = 1, c; do { c = raw.charCodeAt(at++); n += (c & 127) * scale; scale *= 128 } while (c > 127); return n % 2 ? -(n + 1) / 2 : n / 2 };
  const last = [0, 0, 0, 0, 0, 0, 0];
  for (let i = 0; i < N; i++) {
    for (let j = 0; j < 7; j++) last[j] += next();
    [time[i], kind[i], bytes[i], use[i], out[i], budget[i], took[i]] = last;
  }
}
const END = Math.max(told.end, N ? time[N - 1] : 0, 1);
let highest = 1;
for (let i = 0; i < N; i++) highest = Math.max(highest, use[i] + out[i]);
// A budget is in the picture where that leaves half of the height to the memory; the page's text tells of others.
const REACH = told.reach * highest;
for (let i = 0; i < N; i++) if (budget[i] <= REACH) highest = Math.max(highest, budget[i]);
let from = 0, to = END, pointed = -1;
const LEFT = 76, BELOW = 24, ABOVE = 8;
const size = n => { const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']; let i = 0; while (n >= 1024 && i < 4) { n /= 1024; i++ } return +n.toPrecision(4) + ' ' + units[i] };
const seconds = us => us < 1e3 ? +us.toPrecision(4) + ' us' : us < 1e6 ? +(us / 1e3).toPrecision(4) + ' ms' : +(us / 1e6).toPrecision(6) + ' s';
const lastBefore = t => { let low = 0, high = N; while (low < high) { const middle = low + high >> 1; if (time[middle] <= t) low = middle + 1; else high = middle } return low - 1 };
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
function draw() {
  const ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = width * ratio; canvas.height = height * ratio;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  const plot = width - LEFT, floor = height - BELOW, x = t => LEFT + (t - from) / (to - from) * plot, y = n => floor - n / highest * (floor - ABOVE);
  const [fore, line, resident, spilled, limit] = ['--fore', '--line', '--resident', '--spilled', '--limit'].map(colour);
  // One column of pixels shows the most that there was in its time: the stack of resident and spilled at the event where that was highest.
  let i = lastBefore(from);
  for (let column = 0; column < plot; column++) {
    const end = from + (column + 1) / plot * (to - from);
    let best = i;
    while (i + 1 < N && time[i + 1] < end) { i++; if (best < 0 || use[i] + out[i] >= use[best] + out[best]) best = i }
    if (best >= 0) {
      pen.fillStyle = resident; pen.fillRect(LEFT + column, y(use[best]), 1, floor - y(use[best]));
      pen.fillStyle = spilled; pen.fillRect(LEFT + column, y(use[best] + out[best]), 1, y(use[best]) - y(use[best] + out[best]));
    }
  }
  pen.strokeStyle = limit; pen.lineWidth = 1.5; pen.beginPath();
  for (let j = Math.max(0, lastBefore(from)); j < N && time[j] <= to;) {
    let k = j;
    while (k + 1 < N && budget[k + 1] === budget[j] && time[k + 1] <= to) k++;
    if (budget[j] >= 0 && budget[j] <= highest) { const until = k + 1 < N ? Math.min(to, time[k + 1]) : to; pen.moveTo(x(Math.max(from, time[j])), y(budget[j])); pen.lineTo(x(until), y(budget[j])) }
    j = k + 1;
  }
  pen.stroke();
  pen.fillStyle = fore; pen.font = '12px system-ui, sans-serif'; pen.textBaseline = 'middle'; pen.textAlign = 'right'; pen.strokeStyle = line; pen.lineWidth = 1;
  for (let step = 0; step <= 4; step++) {
    const n = highest * step / 4;
    pen.globalAlpha = .5; pen.beginPath(); pen.moveTo(LEFT, y(n)); pen.lineTo(width, y(n)); pen.stroke(); pen.globalAlpha = 1;
    pen.fillText(size(n), LEFT - 6, Math.max(8, y(n)));
  }
  pen.textBaseline = 'top';
  for (let step = 0; step <= 4; step++) {
    pen.textAlign = step === 0 ? 'left' : step === 4 ? 'right' : 'center';
    pen.fillText(seconds(from + (to - from) * step / 4), LEFT + plot * step / 4, floor + 6);
  }
  if (pointed >= 0) { pen.strokeStyle = fore; pen.beginPath(); pen.moveTo(x(time[pointed]), ABOVE); pen.lineTo(x(time[pointed]), floor); pen.stroke() }
}
function tell() {
  if (pointed < 0) { says.textContent = 'Point at the picture; drag to zoom in, turn the wheel, double-click for all of it, arrow keys for the next event.'; return }
  const i = pointed, moved = took[i] ? `, took ${seconds(took[i])}` : '';
  says.textContent = `${seconds(time[i])}  event ${i + 1} of ${N}: ${KINDS[kind[i]]} ${size(bytes[i])}${moved}; in use ${size(use[i])}, spilled ${size(out[i])}` +
    (budget[i] >= 0 ? `, budget ${size(budget[i])}` : '');
}
const at = event => from + Math.max(0, Math.min(1, (event.offsetX - LEFT) / (canvas.clientWidth - LEFT))) * (to - from);
const zoom = (a, b) => { from = Math.max(0, Math.min(a, b)); to = Math.min(END, Math.max(a, b)); if (to - from < 1) to = from + 1; draw() };
let begun = null;
canvas.addEventListener('pointerdown', event => { begun = at(event); canvas.setPointerCapture(event.pointerId) });
canvas.addEventListener('pointerup', event => { const a = begun, b = at(event); begun = null; if (a !== null && Math.abs(a - b) > (to - from) / 100) zoom(a, b) });
canvas.addEventListener('pointermove', event => { pointed = lastBefore(at(event)); tell(); draw() });
canvas.addEventListener('wheel', event => { event.preventDefault(); const t = at(event), scale = event.deltaY > 0 ? 1.25 : .8; zoom(t - (t - from) * scale, t + (to - t) * scale) }, { passive: false });
canvas.addEventListener('dblclick', () => zoom(0, END));
addEventListener('keydown', event => {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (step && N) { pointed = Math.max(0, Math.min(N - 1, pointed + step)); if (time[pointed] < from || time[pointed] > to) { const half = (to - from) / 2; zoom(time[pointed] - half, time[pointed] + half) } tell(); draw() }
});
addEventListener('resize', draw);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
tell(); draw();
