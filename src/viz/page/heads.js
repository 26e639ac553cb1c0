// heads.js - every layer and head as thumbnails, and one head as a matrix.

// ---- thumbnails

const THUMB = 32; // pixels; the cells of a short text are fewer
const thumbs = { key: "", image: null, cell: 30, left: 28, top: 18 };

// All thumbnails as one picture, made anew when the colours change.
function thumbImage(map) {
  const key = [state.map, state.root, isDark()].join();
  if (thumbs.key === key) return thumbs.image;
  const cells = map.thumbs(), side = map.thumb, image = element("canvas", { width: map.n_heads * THUMB, height: map.n_layers * THUMB });
  const g = image.getContext("2d"), pixels = g.createImageData(image.width, image.height);
  const colours = ramp.map((_, i) => state.root ? ramp[i] : ramp[Math.round(i * i / 255)]);
  const cellOf = Array.from({ length: THUMB }, (_, i) => Math.floor(i * side / THUMB));
  for (let head = 0; head < map.n_layers * map.n_heads; head++) {
    const corner = Math.floor(head / map.n_heads) * THUMB * image.width + head % map.n_heads * THUMB;
    for (let y = 0; y < THUMB; y++)
      for (let x = 0; x < THUMB; x++) {
        const c = colours[cells[(head * side + cellOf[y]) * side + cellOf[x]]], to = 4 * (corner + y * image.width + x);
        pixels.data[to] = c[0];
        pixels.data[to + 1] = c[1];
        pixels.data[to + 2] = c[2];
        pixels.data[to + 3] = 255;
      }
  }
  g.putImageData(pixels, 0, 0);
  thumbs.key = key;
  thumbs.image = image;
  return image;
}

function drawThumbs() {
  const map = currentMap(), room = $("thumbbox").clientWidth - 46, { left, top } = thumbs;
  const cell = thumbs.cell = Math.max(14, Math.min(52, Math.max(27, Math.floor(816 / map.n_layers)), Math.floor((room - left) / map.n_heads)));
  const g = canvas("thumbs", left + cell * map.n_heads + 3, top + cell * map.n_layers + 3), image = thumbImage(map);
  g.imageSmoothingEnabled = cell < THUMB;
  g.fillStyle = style("--soft");
  g.font = "11px sans-serif";
  g.textBaseline = "middle";
  g.textAlign = "right";
  for (let l = 0; l < map.n_layers; l++) g.fillText(l, left - 5, top + cell * (l + 0.5));
  g.textAlign = "center";
  for (let h = 0; h < map.n_heads; h++) if (cell > 18 || h % 2 === 0) g.fillText(h, left + cell * (h + 0.5), top - 9);
  for (let l = 0; l < map.n_layers; l++)
    for (let h = 0; h < map.n_heads; h++)
      g.drawImage(image, h * THUMB, l * THUMB, THUMB, THUMB, left + cell * h + 1, top + cell * l + 1, cell - 2, cell - 2);
  g.strokeStyle = style("--accent");
  g.lineWidth = 3;
  g.strokeRect(left + cell * state.head, top + cell * state.layer, cell, cell);
}

function thumbAt(event) {
  const box = $("thumbs").getBoundingClientRect(), map = currentMap();
  const head = Math.floor((event.clientX - box.left - thumbs.left) / thumbs.cell);
  const layer = Math.floor((event.clientY - box.top - thumbs.top) / thumbs.cell);
  return head >= 0 && layer >= 0 && head < map.n_heads && layer < map.n_layers ? { layer, head } : null;
}

const statOf = (map, layer, head) => {
  const [entropy, distance, first, largest, query, key] = map.stats[layer * map.n_heads + head];
  return { entropy, distance, first, largest, query, key };
};

function hoverThumbs(event) {
  const at = thumbAt(event);
  if (!at) return tip(event);
  const s = statOf(currentMap(), at.layer, at.head);
  tip(event, `layer ${at.layer}, head ${at.head}: first token ${number(s.first, 2)}, mean distance ${number(s.distance, 1)}, ` +
    `largest elsewhere ${number(s.largest, 2)}`);
}

function saveThumbs(kind) {
  const map = currentMap(), c = 2 * THUMB, rows = [["layer", "head", "entropy", "distance", "first_token", "largest_elsewhere", "query", "key"]];
  if (kind === "svg") {
    const labels = Array.from({ length: map.n_layers }, (_, l) => `<text x="24" y="${34 + c * l + 36}" text-anchor="end">${l}</text>`)
      .concat(Array.from({ length: map.n_heads }, (_, h) => `<text x="${30 + c * (h + 0.5)}" y="26" text-anchor="middle">${h}</text>`));
    return saveSvg("heads", svgFile(40 + c * map.n_heads, 44 + c * map.n_layers, labels.join("") +
      `<image x="30" y="34" width="${c * map.n_heads}" height="${c * map.n_layers}" style="image-rendering:pixelated" ` +
      `href="${thumbImage(map).toDataURL()}"/>`));
  }
  for (let l = 0; l < map.n_layers; l++)
    for (let h = 0; h < map.n_heads; h++) rows.push([l, h, ...map.stats[l * map.n_heads + h]]);
  saveCsv("heads", rows);
}

// ---- the matrix

const matrix = { size: 400, left: 0 };

// The part in sight: its corner, its span in tokens, pixels for each.
function matrixView() {
  const map = currentMap(), n = Math.max(map.n_queries, map.n_keys), span = n / state.zoom;
  const inside = (v) => Math.min(Math.max(v, 0), n - span);
  return { span, x: inside(state.x), y: inside(state.y), pixels: matrix.size / span };
}

// The pairs that count: all, or those with a key that is not later.
function fillPairs(g, map, view) {
  const p = view.pixels, x = -view.x * p, y = -view.y * p;
  if (!map.causal) return g.fillRect(x, y, map.n_keys * p, map.n_queries * p);
  if (view.span <= 400) {
    for (let q = Math.floor(view.y); q < Math.min(map.n_queries, view.y + view.span + 1); q++)
      g.fillRect(x, y + q * p, (q + 1) * p, p + 0.3);
    return;
  }
  g.beginPath();
  g.moveTo(x, y);
  g.lineTo(x + map.n_keys * p, y + map.n_queries * p);
  g.lineTo(x, y + map.n_queries * p);
  g.fill();
}

// Many tokens to a pixel: the largest weight of each.
function drawPooled(g, view) {
  const side = Math.floor(matrix.size), best = new Float32Array(side * side), p = view.pixels;
  eachWeight(currentMap(), state.layer, state.head, view.y - 1, view.y + view.span, (query, key, weight) => {
    const y = Math.floor((query - view.y) * p), x = Math.floor((key - view.x) * p);
    if (x >= 0 && y >= 0 && x < side && y < side && weight > best[y * side + x]) best[y * side + x] = weight;
  });
  const image = element("canvas", { width: side, height: side }), to = image.getContext("2d"), pixels = to.createImageData(side, side);
  for (let i = 0; i < best.length; i++) {
    if (best[i] < 4e-4) continue;
    const c = colour(best[i]);
    pixels.data.set([c[0], c[1], c[2], 255], 4 * i);
  }
  to.putImageData(pixels, 0, 0);
  g.drawImage(image, 0, 0, side, side);
}

function drawWeights(g, view) {
  if (view.pixels < 1) return drawPooled(g, view);
  const size = view.pixels, map = currentMap(), p = view.pixels;
  g.font = Math.min(13, p / 3) + "px sans-serif";
  g.textAlign = "center";
  g.textBaseline = "middle";
  eachWeight(map, state.layer, state.head, view.y - 1, view.y + view.span, (query, key, weight) => {
    if (key < view.x - 1 || key > view.x + view.span || weight < 4e-4) return;
    const c = colour(weight);
    g.fillStyle = css(c);
    g.fillRect((key - view.x) * p, (query - view.y) * p, size, size);
    if (p < 30 || weight < 0.005) return;
    g.fillStyle = ink(c);
    g.fillText(weight.toFixed(2).replace(/^0/, ""), (key - view.x + 0.5) * p, (query - view.y + 0.5) * p);
  });
}

function drawMatrixLabels(g, view) {
  const map = currentMap(), { readers, read } = texts(), p = view.pixels, left = matrix.left;
  g.fillStyle = style("--fg");
  g.font = Math.max(8, Math.min(13, p * 0.8)) + "px sans-serif";
  g.textBaseline = "middle";
  g.textAlign = "right";
  for (let i = Math.max(0, Math.ceil(view.y)); i < Math.min(map.n_queries, view.y + view.span); i++)
    g.fillText(shortened(readers[i], 16), left - 5, left + (i - view.y + 0.5) * p, left - 8);
  g.textAlign = "left";
  for (let j = Math.max(0, Math.ceil(view.x)); j < Math.min(map.n_keys, view.x + view.span); j++) {
    g.save();
    g.translate(left + (j - view.x + 0.5) * p, left - 5);
    g.rotate(-Math.PI / 2);
    g.fillText(shortened(read[j], 16), 0, 0, left - 8);
    g.restore();
  }
}

function drawMatrix() {
  const map = currentMap(), room = Math.max(200, Math.min($("matrixbox").clientWidth - 26, 600));
  const labels = matrixView().span <= 40;
  matrix.left = labels ? Math.min(100, room * 0.25) : 0;
  matrix.size = Math.min(room - matrix.left, 72 * Math.max(map.n_queries, map.n_keys));
  const view = matrixView(), p = view.pixels, side = matrix.size + matrix.left, g = canvas("matrix", side, side);
  g.save();
  g.translate(matrix.left, matrix.left);
  g.beginPath();
  g.rect(0, 0, matrix.size, matrix.size);
  g.clip();
  g.fillStyle = style("--card");
  g.fillRect(0, 0, matrix.size, matrix.size);
  g.fillStyle = heat(0);
  fillPairs(g, map, view);
  drawWeights(g, view);
  g.strokeStyle = style("--accent");
  g.lineWidth = 2;
  g.strokeRect(-view.x * p + 1, (state.at - view.y) * p, map.n_keys * p - 2, Math.max(p, 2));
  g.restore();
  if (labels) drawMatrixLabels(g, view);
}

function cellAt(event) { // null: outside
  const box = $("matrix").getBoundingClientRect(), view = matrixView(), map = currentMap();
  const query = Math.floor((event.clientY - box.top - matrix.left) / view.pixels + view.y);
  const key = Math.floor((event.clientX - box.left - matrix.left) / view.pixels + view.x);
  const inside = query >= 0 && key >= 0 && query < map.n_queries && key < map.n_keys &&
    event.clientX - box.left >= matrix.left && event.clientY - box.top >= matrix.left;
  return inside ? { query, key } : null;
}

// What cutting a reading did, where it was cut.
function cutText(layer, head, query, key) {
  const e = data.measures && data.measures.edges.find((x) => x.map === state.map && x.layer === layer && x.head === head && x.query === query && x.key === key);
  if (!e || e.why & 8) return "";
  return `; cut: knockout ${signed(e.knockout[0])}, removal ${signed(e.removal[0])}, mean value ${signed(e.mean[0])}`;
}

// What a reading is, in words: its weight, the size it moves, its direct effect where that is defined, and its cuts.
function readingText(layer, head, query, key) {
  const map = currentMap(), weight = weightOf(map, layer, head, query, key), value = map.value(layer, head, key);
  if (map.causal && key > query) return "later: not visible";
  if (weight === null) return "this row was not kept";
  if (weight === 0) return map.least_kept ? `below ${number(map.least_kept)}, or not among the largest` : "weight 0";
  const direct = value && value[1] !== null && query === map.n_queries - 1 ? `, direct effect ${signed(weight * value[1])}` : "";
  return `weight ${map.exact || query === data.at ? "" : "≈ "}${number(weight)}` +
    (value ? `, moves ${number(weight * value[0], 2)}` + direct : "") + cutText(layer, head, query, key);
}

function hoverMatrix(event) {
  const at = cellAt(event), { readers, read } = texts();
  if (!at) return tip(event);
  tip(event, tokenElement(readers[at.query]), ` (${at.query}) reads `, tokenElement(read[at.key]), ` (${at.key}): `,
    readingText(state.layer, state.head, at.query, at.key));
}

// Zooms by a factor around a cell, or the middle.
function zoom(by, at) {
  const view = matrixView(), map = currentMap(), n = Math.max(map.n_queries, map.n_keys);
  const level = Math.min(Math.max(state.zoom * by, 1), Math.max(1, n / 4)), span = n / level;
  const fx = at ? (at.key - view.x) / view.span : 0.5, fy = at ? (at.query - view.y) / view.span : 0.5;
  state.x = view.x + fx * (view.span - span);
  state.y = view.y + fy * (view.span - span);
  state.zoom = level;
  drawMatrix();
}

// Drags pan, clicks choose the reader's position, the wheel zooms.
function useMatrix() {
  const box = $("matrix");
  let drag = null;
  box.onpointerdown = (event) => {
    const view = matrixView();
    drag = { from: event, x: view.x, y: view.y, moved: false };
    box.setPointerCapture(event.pointerId);
  };
  box.onpointermove = (event) => {
    if (!drag) return hoverMatrix(event);
    const dx = event.clientX - drag.from.clientX, dy = event.clientY - drag.from.clientY, { pixels } = matrixView();
    drag.moved = drag.moved || Math.abs(dx) + Math.abs(dy) > 4;
    if (!drag.moved) return;
    state.x = drag.x - dx / pixels;
    state.y = drag.y - dy / pixels;
    drawMatrix();
  };
  box.onpointerup = (event) => {
    const at = cellAt(event);
    if (drag && !drag.moved && at) change({ at: at.query, key: currentMap().attention ? at.key : state.key });
    drag = null;
  };
  box.onpointercancel = () => { drag = null; };
  box.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.25 : 0.8, cellAt(event));
  }, { passive: false });
}

function saveMatrix(kind) {
  const map = currentMap(), view = matrixView(), { readers, read } = texts(), name = `layer${state.layer}-head${state.head}`;
  const rows = [["layer", "head", "query", "query_token", "key", "key_token", "weight"]], marks = [], labels = view.span <= 60;
  const side = labels ? Math.min(560, 60 * view.span) : 560, cell = side / view.span, left = labels ? 120 : 10, top = left + 24;
  eachWeight(map, state.layer, state.head, view.y - 0.99, view.y + view.span - 0.01, (query, key, weight) => {
    if (key < view.x - 0.99 || key >= view.x + view.span) return;
    rows.push([state.layer, state.head, query, readers[query], key, read[key], +weight.toPrecision(5)]);
    const x = left + (key - view.x) * cell, y = top + (query - view.y) * cell;
    if (weight > 0.002 && marks.length < 40000)
      marks.push(`<rect x="${x.toFixed(2)}" y="${y.toFixed(2)}" width="${cell.toFixed(2)}" height="${cell.toFixed(2)}" ` +
        `fill="${heat(weight)}"><title>${weight.toFixed(4)}</title></rect>`);
  });
  if (kind === "csv") return saveCsv(name, rows);
  for (let i = Math.ceil(view.y); labels && i < Math.min(map.n_queries, view.y + view.span); i++)
    marks.push(`<text x="${left - 5}" y="${(top + (i - view.y + 0.6) * cell).toFixed(1)}" text-anchor="end">${escaped(shortened(readers[i], 16))}</text>`);
  for (let j = Math.ceil(view.x); labels && j < Math.min(map.n_keys, view.x + view.span); j++)
    marks.push(`<text transform="translate(${(left + (j - view.x + 0.6) * cell).toFixed(1)},${top - 5}) rotate(-90)">${escaped(shortened(read[j], 16))}</text>`);
  saveSvg(name, svgFile(left + side + 10, top + side + 10, `<text x="10" y="18">layer ${state.layer}, head ${state.head}: readers down</text>` +
    `<rect x="${left}" y="${top}" width="${side}" height="${side}" fill="${heat(0)}"/>` + marks.join("")));
}
