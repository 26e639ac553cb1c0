// position.js - one position: the tokens it reads, both directions as lines, and all layers at once.

// ---- the text, coloured by what the position reads

const MOST_TOKENS = 600; // as buttons at once
let tokensKey = "";

// By its letters. A token may be a part of a character, so that the text itself is asked where the page has it.
function isRightToLeft(list) {
  const text = (list === data.tokens ? data.title : list.slice(0, 400).join("")).slice(0, 4000);
  const count = (pattern) => (text.match(pattern) || []).length;
  return 2 * count(/[\u0590-\u08ff\ufb1d-\ufefc]/g) > count(/\p{L}/gu);
}

function tokenButtons(box, list, from, end, what) {
  const parts = document.createDocumentFragment();
  if (from > 0) parts.append(element("span", { className: "soft", textContent: `… ${grouped(from)} before ` }));
  for (let i = from; i < end; i++) {
    const button = element("bdi", { className: "tok", textContent: shown(list[i]), title: `${what} ${i}`, dir: "auto" });
    button.dataset.i = i;
    parts.append(button);
    if (list[i].includes("\n")) parts.append(element("br"));
  }
  if (end < list.length) parts.append(element("span", { className: "soft", textContent: ` … ${grouped(list.length - end)} more` }));
  box.replaceChildren(parts);
  box.dir = isRightToLeft(list) ? "rtl" : "ltr";
}

function shade(box, weights, chosen) {
  for (const button of box.querySelectorAll(".tok")) {
    const i = +button.dataset.i, weight = weights.get(i) || 0, c = weight > 0.01 ? colour(weight) : null;
    button.classList.toggle("at", i === chosen);
    button.style.background = c ? css(c) : "";
    button.style.color = c ? ink(c) : "";
  }
}

const windowStart = (n, at) => n <= MOST_TOKENS ? 0 : 50 * Math.floor(Math.max(0, Math.min(n - MOST_TOKENS, at - MOST_TOKENS / 2)) / 50);

function drawTokens() {
  const map = currentMap(), { readers, read } = texts(), from = windowStart(readers.length, state.at);
  const cross = map.attention !== 0, sourceFrom = windowStart(read.length, state.key), key = [state.map, from, sourceFrom].join();
  if (key !== tokensKey) {
    tokensKey = key;
    tokenButtons($("tokens"), readers, from, Math.min(readers.length, from + MOST_TOKENS), "position");
    $("sourcebox").hidden = !cross;
    if (cross) tokenButtons($("source"), read, sourceFrom, Math.min(read.length, sourceFrom + MOST_TOKENS), "encoder position");
  }
  const row = readRow(map, state.layer, state.head, state.at), weights = new Map();
  if (row) row.keys.forEach((k, i) => weights.set(k, row.weights[i]));
  shade($("tokens"), cross ? new Map() : weights, state.at);
  if (cross) shade($("source"), weights, state.key);
}

// ---- lines: who reads it, what it reads

const MOST_LINES = 14;

// In cross attention the readers are those of the encoder's token that is chosen.
function lineLists() {
  const map = currentMap(), row = readRow(map, state.layer, state.head, state.at);
  const reads = row ? Array.from(row.keys, (key, i) => [key, row.weights[i]]).sort((a, b) => b[1] - a[1]) : [];
  const who = readersOf(map, state.layer, state.head, map.attention ? state.key : state.at);
  const large = (list) => list.filter(([, weight]) => weight >= 0.001);
  return { kept: row !== null, reads: large(reads), who: large(who) };
}

function drawLines() {
  const map = currentMap(), { readers, read } = texts(), lists = lineLists();
  const width = Math.max(300, Math.min(620, $("linesbox").clientWidth - 26)), step = 26, top = 40;
  const n = Math.max(Math.min(lists.who.length, MOST_LINES), Math.min(lists.reads.length, MOST_LINES), 1);
  const svg = svgElement("svg", { width, height: top + step * n, viewBox: `0 0 ${width} ${top + step * n}`, role: "img" });
  const middle = top + step * (n - 1) / 2, names = Math.floor(width / 38), wide = width * 0.31, cross = map.attention !== 0;
  const heading = (x, anchor, text) => svg.append(svgElement("text", { x, y: 15, "text-anchor": anchor, class: "soft" }, text));
  heading(wide, "end", cross ? "who reads the encoder's token" : "who reads it");
  heading(width - wide, "start", "what it reads");
  const side = (list, tokens, direction, choose) => list.slice(0, MOST_LINES).forEach(([i, weight], place) => {
    const x = direction < 0 ? wide : width - wide, y = top + step * place, from = width / 2 + direction * Math.min(48, width * 0.09);
    const between = (from + x) / 2;
    svg.append(svgElement("path", { d: `M${from},${middle} C${between},${middle} ${between},${y} ${x},${y}`, fill: "none",
      stroke: heat(Math.max(weight, 0.03)), "stroke-width": (1 + 8 * weight).toFixed(2) }));
    const name = `${shortened(tokens[i], names)} ${i}`, share = weight.toFixed(2).replace(/^0/, "");
    const label = svgElement("text", { x: x + direction * 4, y: y + 5, "text-anchor": direction < 0 ? "end" : "start", class: "pick" },
      direction < 0 ? `${name}  ${share}` : `${share}  ${name}`);
    label.addEventListener("click", () => choose(i));
    svg.append(label);
  });
  side(lists.who, readers, -1, (i) => change({ at: i }));
  side(lists.reads, read, 1, (i) => change(cross ? { key: i } : { at: i }));
  const own = cross ? `${shortened(readers[state.at], 10)} | ${shortened(read[state.key], 10)}` : shortened(readers[state.at], 12);
  svg.append(svgElement("text", { x: width / 2, y: middle + 5, "text-anchor": "middle", "font-weight": "bold" }, own));
  $("lines").replaceChildren(svg);
  const more = Math.max(0, lists.reads.length - MOST_LINES), others = Math.max(0, lists.who.length - MOST_LINES);
  $("linesnote").textContent = !lists.kept
    ? "This row was not kept: the text is too long for all rows. Ask for it with --at, or for all rows of this head with --layer and --head."
    : (more || others ? `not drawn: ${more} more that it reads, ${others} more readers (the matrix and the CSV have them). ` : "") +
      (map.n_rows < map.n_queries && !headRows(map, state.layer, state.head).map.exact ? "Readers are those among the rows kept." : "");
}

function saveLines(kind) {
  const { readers, read } = texts(), lists = lineLists(), name = `layer${state.layer}-head${state.head}-position${state.at}`;
  if (kind === "svg") {
    const svg = $("lines").firstChild;
    return saveSvg(name, svgFile(svg.getAttribute("width"), svg.getAttribute("height"), new XMLSerializer().serializeToString(svg)));
  }
  const key = currentMap().attention ? state.key : state.at;
  saveCsv(name, [["direction", "query", "query_token", "key", "key_token", "weight"],
    ...lists.reads.map(([i, w]) => ["reads", state.at, readers[state.at], i, read[i], +w.toPrecision(5)]),
    ...lists.who.map(([i, w]) => ["is read by", i, readers[i], key, read[key], +w.toPrecision(5)])]);
}

// ---- the position through all layers: the largest weight of any head, keys in bins where they are many

const layers = { left: 28, top: 0, bins: 1, width: 4, height: 12, values: [] };

function layerValues(map, bins) {
  return Array.from({ length: map.n_layers }, (_, layer) => {
    const values = new Float32Array(bins);
    const ready = map.layers[layer] || (state.at === data.at && map.atRow(layer, 0));
    for (let head = 0; ready && head < map.n_heads; head++) {
      const row = readRow(map, layer, head, state.at);
      for (let i = 0; row && i < row.keys.length; i++) {
        const bin = Math.floor(row.keys[i] * bins / map.n_keys);
        if (row.weights[i] > values[bin]) values[bin] = row.weights[i];
      }
    }
    return values;
  });
}

function drawLayers() {
  const map = currentMap(), n = map.n_keys, room = Math.max(200, $("layersbox").clientWidth - 26), { left } = layers;
  const { read } = texts(), bins = Math.min(n, Math.max(20, Math.floor((room - left) / 3))), labels = n <= 40 && (room - left) / n > 11;
  const width = Math.max(2, Math.min(56, (room - left) / bins)), height = Math.max(8, Math.min(18, 460 / map.n_layers));
  const top = labels ? 70 : 0, g = canvas("layers", Math.min(room, left + width * bins + 3), top + height * map.n_layers + 4);
  Object.assign(layers, { bins, width, height, top, values: layerValues(map, bins) });
  g.font = "11px sans-serif";
  g.textBaseline = "middle";
  for (let j = 0; labels && j < n; j++) {
    g.save();
    g.translate(left + (j + 0.5) * width, top - 5);
    g.rotate(-Math.PI / 2);
    g.fillStyle = style("--fg");
    g.fillText(shortened(read[j], 14), 0, 0, top - 6);
    g.restore();
  }
  g.textAlign = "right";
  for (let l = 0; l < map.n_layers; l++) {
    g.fillStyle = style("--soft");
    if (height > 10 || l % 2 === 0) g.fillText(l, left - 5, top + height * (l + 0.5));
    for (let b = 0; b < bins; b++) {
      g.fillStyle = heat(layers.values[l][b]);
      g.fillRect(left + b * width, top + l * height, Math.ceil(width) - (width > 8 ? 1 : 0), height - (height > 5 ? 1 : 0));
    }
  }
  g.strokeStyle = style("--accent");
  g.lineWidth = 2;
  g.strokeRect(left - 1, top + state.layer * height - 1, width * bins + 2, height + 1);
}

function layerAt(event) { // null: outside
  const box = $("layers").getBoundingClientRect(), layer = Math.floor((event.clientY - box.top - layers.top) / layers.height);
  const bin = Math.floor((event.clientX - box.left - layers.left) / layers.width), map = currentMap();
  if (layer < 0 || layer >= map.n_layers || bin < 0 || bin >= layers.bins) return null;
  const first = Math.ceil(bin * map.n_keys / layers.bins), last = Math.ceil((bin + 1) * map.n_keys / layers.bins) - 1;
  return { layer, first, last: Math.max(first, last), weight: layers.values[layer][bin] };
}

function hoverLayers(event) {
  const at = layerAt(event);
  if (!at) return tip(event);
  tip(event, `layer ${at.layer}: `, tokenElement(texts().read[at.first]), at.last > at.first ? ` (${at.first} to ${at.last})` : ` (${at.first})`,
    `, largest weight of any head ${number(at.weight, 2)}`);
}

// A click goes to the head that reads most there.
function clickLayers(event) {
  const at = layerAt(event), map = currentMap();
  if (!at) return;
  let head = 0, most = -1;
  for (let h = 0; h < map.n_heads; h++) {
    const row = readRow(map, at.layer, h, state.at);
    for (let i = 0; row && i < row.keys.length; i++)
      if (row.keys[i] >= at.first && row.keys[i] <= at.last && row.weights[i] > most) {
        most = row.weights[i];
        head = h;
      }
  }
  change({ layer: at.layer, head });
}

function saveLayers(kind) {
  const map = currentMap(), { read } = texts(), name = `position${state.at}-layers`, c = 14;
  if (kind === "csv") {
    const rows = [["layer", "head", "query", "key", "key_token", "weight"]];
    for (let l = 0; l < map.n_layers; l++)
      for (let h = 0; h < map.n_heads; h++) {
        const row = readRow(map, l, h, state.at);
        for (let i = 0; row && i < row.keys.length; i++) rows.push([l, h, state.at, row.keys[i], read[row.keys[i]], +row.weights[i].toPrecision(5)]);
      }
    return saveCsv(name, rows);
  }
  const marks = layers.values.flatMap((values, l) => [`<text x="24" y="${30 + c * l + 11}" text-anchor="end">${l}</text>`,
    ...Array.from(values, (w, b) => `<rect x="${30 + c * b}" y="${30 + c * l}" width="${c - 1}" height="${c - 1}" fill="${heat(w)}"/>`)]);
  saveSvg(name, svgFile(40 + c * layers.bins, 40 + c * map.n_layers, `<text x="10" y="18">position ${state.at} ` +
    `${escaped(shortened(texts().readers[state.at], 16))} through all layers</text>` + marks.join("")));
}
