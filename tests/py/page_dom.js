// As much of a browser's document as the pages' scripts use, for node: `node page_dom.js SCRIPT`, with the page's JSON on the standard input.
// What the script has made is printed as JSON, by what the page is.
const fs = require('fs'), vm = require('vm');
const told = fs.readFileSync(0, 'utf8'), [script, search = ''] = process.argv.slice(2);

function element(name) {
  return {
    name, children: [], style: {}, textContent: '', value: '', listeners: {},
    classList: { add() {} },
    addEventListener(kind, called) { this.listeners[kind] = called },
    append(...some) { this.children.push(...some) },
    replaceChildren() { this.children = [] },
  };
}
const pen = new Proxy({ rectangles: [], fillRect(...where) { this.rectangles.push([this.fillStyle, ...where]) } }, {
  get: (target, key) => key in target ? target[key] : () => {},
  set: (target, key, value) => { target[key] = value; return true },
});
const data = element('script'), canvas = element('canvas'), output = element('output'), graph = element('div'), select = element('select'), input = element('input');
data.textContent = told;
Object.assign(canvas, { clientWidth: 876, clientHeight: 400, getContext: () => pen, setPointerCapture() {} });
input.value = search;
const place = { querySelector: what => ({ script: data, '.flame': graph, select, input, output })[what] };
const document = {
  documentElement: element('html'), getElementById: () => data, createElement: element,
  querySelector: what => ({ canvas, output })[what], querySelectorAll: what => what === '.flame-place' ? [place] : [],
};
const world = {
  document, devicePixelRatio: 1, atob: text => Buffer.from(text, 'base64').toString('latin1'), getComputedStyle: () => ({ getPropertyValue: name => name }),
  addEventListener() {}, matchMedia: () => ({ addEventListener() {} }), console,
};
if (script.endsWith('flame.js')) select.value = Object.keys(JSON.parse(told).kinds)[0];
let source = fs.readFileSync(script, 'utf8');
if (script.endsWith('timeline.js')) source += '\n;globalThis.made = { time: [...time], kind: [...kind].map(n => KINDS[n]), bytes: [...bytes], use: [...use], out: [...out], budget: [...budget], took: [...took], highest }';
vm.runInNewContext(source, world);
if (script.endsWith('timeline.js')) {
  canvas.listeners.pointermove({ offsetX: 876 });
  console.log(JSON.stringify({ ...world.made, says: output.textContent, columns: new Set(pen.rectangles.map(one => one[1])).size }));
} else {
  const boxes = () => graph.children.map(box => [box.textContent, box.style.left, box.style.width, box.style.top]);
  const all = boxes();
  const found = output.textContent;
  graph.children[graph.children.length - 1].listeners.click();
  console.log(JSON.stringify({ all, found, zoomed: boxes(), foundInside: output.textContent }));
}
