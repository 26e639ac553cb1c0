"use strict";
(() => {
const D = JSON.parse(document.getElementById("data").textContent), $ = id => document.getElementById(id);
const LIMIT = 600; // tokens shown as buttons at once
function bytes(text) { const s = atob(text), b = new Uint8Array(s.length); for (let i = 0; i < s.length; i++) b[i] = s.charCodeAt(i); return b.buffer; }
for (const m of D.maps.concat(D.focus ? [D.focus] : [])) { // packed arrays, little-endian
  m.queries = new Int32Array(bytes(m.queries)); m.counts = new Uint16Array(bytes(m.counts));
  m.keys = m.n_keys > 65536 ? new Uint32Array(bytes(m.keys)) : new Uint16Array(bytes(m.keys));
  m.weights = new Uint16Array(bytes(m.weights));
  m.starts = new Uint32Array(m.counts.length + 1);
  for (let i = 0; i < m.counts.length; i++) m.starts[i + 1] = m.starts[i] + m.counts[i];
  for (const name of ["at_rows", "value_norms", "value_directs"]) m[name] = m[name] ? new Float32Array(bytes(m[name])) : null;
  m.row_of = new Map(); m.queries.forEach((q, r) => m.row_of.set(q, r));
}
// ---- tokens as a reader expects: spaces, line ends and controls shown, reordering characters spelled out
const shownCache = new Map();
function shown(t) {
  if (shownCache.has(t)) return shownCache.get(t);
  let s = "";
  for (const c of t) {
    const p = c.codePointAt(0);
    if (c === "\n") s += "⏎"; else if (c === "\t") s += "⇥"; else if (c === " ") s += "·";
    else if (p < 32) s += String.fromCodePoint(0x2400 + p); else if (p === 127) s += "␡";
    else if ((p >= 0x80 && p < 0xa0) || (p >= 0x200b && p <= 0x200f && p !== 0x200d) || (p >= 0x2028 && p <= 0x202e) || (p >= 0x2060 && p <= 0x206f) || p === 0xfeff) s += "\\u" + p.toString(16).padStart(4, "0");
    else s += c;
  }
  if (/^\p{M}/u.test(s)) s = "◌" + s;
  if (s.length > 48) s = s.slice(0, 47).replace(/[\ud800-\udbff]$/, "") + "…";
  shownCache.set(t, s || "∅"); return s || "∅";
}
const side = m => m.attention ? [D.target, D.tokens] : D.target && !m.encoder ? [D.target, D.target] : [D.tokens, D.tokens];
const tokensOf = () => side(map()); // [queries', keys'] texts
// ---- state, deep links
const first = { map: D.maps.length > 1 ? 1 : 0, layer: D.layer, head: D.head, at: D.at, zoom: 1, x: 0, y: 0, root: 1 };
const S = Object.assign({}, first);
const map = () => D.maps[S.map];
function fromLink() {
  const h = new URLSearchParams(location.hash.slice(1));
  for (const k of ["map", "layer", "head", "at"]) if (h.has(k) && /^\d+$/.test(h.get(k))) S[k] = +h.get(k);
  clamp();
}
function clamp() {
  S.map = Math.min(Math.max(S.map, 0), D.maps.length - 1); const m = map();
  S.layer = Math.min(Math.max(S.layer, 0), m.n_layers - 1); S.head = Math.min(Math.max(S.head, 0), m.n_heads - 1);
  S.at = Math.min(Math.max(S.at, 0), m.n_queries - 1);
}
let link = 0;
function set(change) {
  Object.assign(S, change); clamp(); draw();
  clearTimeout(link); link = setTimeout(() => history.replaceState(null, "", `#map=${S.map}&layer=${S.layer}&head=${S.head}&at=${S.at}`), 60);
}
// ---- rows
function source(layer, head) { // the map and head index that hold a head's rows
  const m = map();
  if (D.focus && layer === D.focus.layer && head === D.focus.head && !m.attention && m === D.maps[D.maps.length > 1 ? 1 : 0]) return [D.focus, 0];
  return [m, layer * m.n_heads + head];
}
function row(layer, head, q) { // [keys, weights]; null: not stored
  const m0 = map();
  if (q === D.at && m0.at_rows) { const n = m0.n_keys, at = (layer * m0.n_heads + head) * n, k = [], w = [];
    for (let j = 0; j < n; j++) if (m0.at_rows[at + j] > 0) { k.push(j); w.push(m0.at_rows[at + j]); } return [k, w]; }
  const [m, h] = source(layer, head), r = m.row_of.get(q);
  if (r === undefined) return null;
  const i = h * m.queries.length + r, a = m.starts[i], b = m.starts[i + 1], w = new Array(b - a);
  for (let k = a; k < b; k++) w[k - a] = m.weights[k] / 65535;
  return [m.keys.subarray(a, b), w];
}
function weight(layer, head, q, j) { const r = row(layer, head, q); if (!r) return null; for (let i = 0; i < r[0].length; i++) if (r[0][i] === j) return r[1][i]; return 0; }
// ---- colours: even steps of lightness from dark violet over green to yellow (OKLCH), told apart without red and green
const dark = () => document.documentElement.classList.contains("dark");
function oklch(L, C, H) {
  const a = C * Math.cos(H), b = C * Math.sin(H), l = (L + .3963377774 * a + .2158037573 * b) ** 3, m = (L - .1055613458 * a - .0638541728 * b) ** 3, s = (L - .0894841775 * a - 1.291485548 * b) ** 3;
  return [4.0767416621 * l - 3.3077115913 * m + .2309699292 * s, -1.2684380046 * l + 2.6097574011 * m - .3413193965 * s, -.0041960863 * l - .7034186147 * m + 1.707614701 * s]
    .map(v => Math.round(255 * Math.min(1, Math.max(0, v <= .0031308 ? 12.92 * v : 1.055 * Math.max(v, 0) ** (1 / 2.4) - .055))));
}
let ramp = [];
function makeRamp() { ramp = []; for (let i = 0; i < 256; i++) { const t = i / 255, u = dark() ? t : 1 - t; ramp.push(oklch(.24 + .71 * u, .05 + .28 * u * (1 - u) + .06 * u, (300 - 195 * u) * Math.PI / 180)); } }
const scale = w => S.root ? Math.sqrt(w) : w;
const colour = w => ramp[Math.min(255, Math.round(255 * scale(w)))];
const css = c => `rgb(${c[0]},${c[1]},${c[2]})`;
const ink = c => .299 * c[0] + .587 * c[1] + .114 * c[2] > 140 ? "#111" : "#fff";
const num = (v, n = 3) => v === null || v === undefined || Number.isNaN(v) ? "–" : Math.abs(v) >= 1e-3 || v === 0 ? v.toFixed(n) : v.toExponential(1);
const signed = v => v === null || v === undefined ? "–" : (v > 0 ? "+" : "") + num(v);
function el(tag, props, ...kids) { const e = document.createElement(tag); Object.assign(e, props || {}); for (const k of kids) e.append(k); return e; }
const bdi = t => el("bdi", { textContent: shown(t), dir: "auto", title: shown(t) });
function canvas(id, width, height) {
  const c = $(id), r = window.devicePixelRatio || 1;
  c.width = Math.round(width * r); c.height = Math.round(height * r); c.style.width = width + "px"; c.style.height = height + "px";
  const g = c.getContext("2d"); g.setTransform(r, 0, 0, r, 0, 0); g.clearRect(0, 0, width, height); return g;
}
// ---- thumbnails: each head max-pooled to 32 x 32, once for each map
const pools = new Map();
function pooled(m) {
  if (pools.has(m)) return pools.get(m);
  const P = 32, heads = m.n_layers * m.n_heads, out = new Uint16Array(heads * P * P), nq = m.queries.length;
  for (let h = 0; h < heads; h++) for (let r = 0; r < nq; r++) {
    const i = h * nq + r, y = Math.floor(m.queries[r] * P / m.n_queries);
    for (let k = m.starts[i]; k < m.starts[i + 1]; k++) { const at = (h * P + y) * P + Math.floor(m.keys[k] * P / m.n_keys); if (m.weights[k] > out[at]) out[at] = m.weights[k]; }
  }
  pools.set(m, out); return out;
}
let thumbKey = "", thumbImage = null, cell = 30;
function drawThumbs() {
  const m = map(), P = 32, room = $("thumbbox").clientWidth - 30, key = [S.map, S.root, dark(), room].join();
  const small = m.n_queries < P ? m.n_queries : P;
  cell = Math.max(14, Math.min(44, Math.floor(room / m.n_heads)));
  const g = canvas("thumbs", 28 + cell * m.n_heads, 16 + cell * m.n_layers);
  if (key !== thumbKey) {
    thumbKey = key; const p = pooled(m);
    thumbImage = document.createElement("canvas"); thumbImage.width = m.n_heads * P; thumbImage.height = m.n_layers * P;
    const ig = thumbImage.getContext("2d"), im = ig.createImageData(thumbImage.width, thumbImage.height);
    for (let l = 0; l < m.n_layers; l++) for (let h = 0; h < m.n_heads; h++) for (let y = 0; y < P; y++) for (let x = 0; x < P; x++) {
      // a short text fills the thumbnail: P pixels show n_queries cells
      const yy = small < P ? Math.floor(Math.floor(y * m.n_queries / P) * P / m.n_queries) : y, xx = m.n_keys < P ? Math.floor(Math.floor(x * m.n_keys / P) * P / m.n_keys) : x;
      const c = colour(p[((l * m.n_heads + h) * P + yy) * P + xx] / 65535), at = 4 * ((l * P + y) * thumbImage.width + h * P + x);
      im.data[at] = c[0]; im.data[at + 1] = c[1]; im.data[at + 2] = c[2]; im.data[at + 3] = 255;
    }
    ig.putImageData(im, 0, 0);
  }
  g.imageSmoothingEnabled = cell < P;
  const style = getComputedStyle(document.documentElement);
  g.fillStyle = style.getPropertyValue("--soft"); g.font = "11px sans-serif"; g.textAlign = "right"; g.textBaseline = "middle";
  for (let l = 0; l < m.n_layers; l++) g.fillText(l, 24, 16 + cell * (l + .5));
  g.textAlign = "center"; for (let h = 0; h < m.n_heads; h++) g.fillText(h, 28 + cell * (h + .5), 8);
  for (let l = 0; l < m.n_layers; l++) for (let h = 0; h < m.n_heads; h++) g.drawImage(thumbImage, h * P, l * P, P, P, 28 + cell * h + 1, 16 + cell * l + 1, cell - 2, cell - 2);
  g.strokeStyle = style.getPropertyValue("--accent"); g.lineWidth = 3; g.strokeRect(28 + cell * S.head, 16 + cell * S.layer, cell, cell);
}
// ---- one head as a matrix
let matrixSize = 400, left = 0;
function view() { const m = map(), n = Math.max(m.n_queries, m.n_keys), span = n / S.zoom; return { span, x: Math.min(Math.max(S.x, 0), n - span), y: Math.min(Math.max(S.y, 0), n - span), px: matrixSize / span }; }
function eachCell(f) {
  const [m, h] = source(S.layer, S.head), v = view(), nq = m.queries.length;
  for (let r = 0; r < nq; r++) {
    const q = m.queries[r]; if (q < v.y - 1 || q > v.y + v.span) continue;
    const got = q === D.at ? row(S.layer, S.head, q) : null, i = h * nq + r, a = m.starts[i], b = m.starts[i + 1];
    if (got) for (let k = 0; k < got[0].length; k++) f(q, got[0][k], got[1][k]);
    else for (let k = a; k < b; k++) f(q, m.keys[k], m.weights[k] / 65535);
  }
}
function drawMatrix() {
  const room = $("matrixbox").clientWidth - 26; matrixSize = Math.max(180, Math.min(room, 560));
  const m = map(), v0 = view(), labels = v0.span <= 40; left = labels ? Math.min(92, matrixSize * .25) : 0; matrixSize -= left;
  const v = view(), g = canvas("matrix", matrixSize + left, matrixSize + left), style = getComputedStyle(document.documentElement), [tq, tk] = tokensOf();
  g.save(); g.translate(left, left); g.beginPath(); g.rect(0, 0, matrixSize, matrixSize); g.clip();
  g.fillStyle = style.getPropertyValue("--card"); g.fillRect(0, 0, matrixSize, matrixSize);
  g.fillStyle = css(colour(0));
  const causal = !m.encoder && !m.attention;
  g.beginPath(); // the pairs that count
  if (causal) { g.moveTo(-v.x * v.px, -v.y * v.px); const N = m.n_queries; g.lineTo((1 - v.x) * v.px, -v.y * v.px); g.lineTo((N - v.x) * v.px, (N - 1 - v.y) * v.px); g.lineTo((N - v.x) * v.px, (N - v.y) * v.px); g.lineTo(-v.x * v.px, (N - v.y) * v.px); g.fill(); }
  else g.fillRect(-v.x * v.px, -v.y * v.px, m.n_keys * v.px, m.n_queries * v.px);
  const size = Math.max(v.px, 1);
  eachCell((q, j, w) => { if (j < v.x - 1 || j > v.x + v.span || w < 4e-4) return; g.fillStyle = css(colour(w)); g.fillRect((j - v.x) * v.px, (q - v.y) * v.px, size, size); if (v.px >= 30 && w >= .005) { g.fillStyle = ink(colour(w)); g.font = Math.min(13, v.px / 3) + "px sans-serif"; g.textAlign = "center"; g.textBaseline = "middle"; g.fillText(w.toFixed(2).replace(/^0/, ""), (j - v.x + .5) * v.px, (q - v.y + .5) * v.px); } });
  g.strokeStyle = style.getPropertyValue("--accent"); g.lineWidth = 1.5; g.strokeRect(-v.x * v.px, (S.at - v.y) * v.px, m.n_keys * v.px, Math.max(v.px, 2)); g.restore();
  if (labels) {
    g.fillStyle = style.getPropertyValue("--fg"); g.font = Math.max(8, Math.min(13, v.px * .8)) + "px sans-serif"; g.textBaseline = "middle";
    for (let i = Math.max(0, Math.ceil(v.y)); i < Math.min(m.n_queries, v.y + v.span); i++) { g.textAlign = "right"; g.fillText("\u2068" + shown(tq[i]) + "\u2069", left - 4, left + (i - v.y + .5) * v.px, left - 6); }
    for (let j = Math.max(0, Math.ceil(v.x)); j < Math.min(m.n_keys, v.x + v.span); j++) { g.save(); g.translate(left + (j - v.x + .5) * v.px, left - 4); g.rotate(-Math.PI / 2); g.textAlign = "left"; g.fillText("\u2068" + shown(tk[j]) + "\u2069", 0, 0, left - 6); g.restore(); }
  }
}
function cellAt(e) { const b = $("matrix").getBoundingClientRect(), v = view(); return [Math.floor((e.clientY - b.top - left) / v.px + v.y), Math.floor((e.clientX - b.left - left) / v.px + v.x)]; }
// ---- lines: what the position reads, who reads it
function readers(layer, head, j) { const [m, h] = source(layer, head), nq = m.queries.length, out = [];
  for (let r = 0; r < nq; r++) { const i = h * nq + r; for (let k = m.starts[i]; k < m.starts[i + 1]; k++) if (m.keys[k] === j) out.push([m.queries[r], m.weights[k] / 65535]); } return out.sort((a, b) => b[1] - a[1]); }
function drawLines() {
  const [tq, tk] = tokensOf(), m = map(), got = row(S.layer, S.head, S.at), TOP = 14;
  const reads = got ? Array.from(got[0], (j, i) => [j, got[1][i]]).sort((a, b) => b[1] - a[1]).filter(p => p[1] >= .001).slice(0, TOP) : [];
  const who = m.attention ? [] : readers(S.layer, S.head, S.at).filter(p => p[1] >= .001).slice(0, TOP);
  const n = Math.max(reads.length, who.length, 1), H = 24 * n + 34, W = Math.max(280, Math.min(640, $("linesbox").clientWidth - 26)), ns = "http://www.w3.org/2000/svg", svg = document.createElementNS(ns, "svg");
  svg.setAttribute("width", W); svg.setAttribute("height", H); svg.setAttribute("viewBox", `0 0 ${W} ${H}`); svg.setAttribute("xmlns", ns);
  const add = (tag, a, text) => { const e = document.createElementNS(ns, tag); for (const k in a) e.setAttribute(k, a[k]); if (text !== undefined) e.textContent = text; svg.append(e); return e; };
  const short = t => { const s = shown(t); return "\u2068" + (s.length > 14 ? s.slice(0, 13) + "…" : s) + "\u2069"; }, mid = 34 + 12 * n;
  add("text", { x: 4, y: 14 }, m.attention ? "" : "who reads it"); add("text", { x: W - 4, y: 14, "text-anchor": "end" }, "what it reads");
  const part = (list, x, end, texts, to) => list.forEach(([i, w], r) => { const y = 34 + 24 * r; add("path", { d: `M${W / 2 + to * 46},${mid} C${W / 2 + to * W * .2},${mid} ${W / 2 + to * W * .1},${y} ${x - to * 4 - to * 96},${y}`, fill: "none", stroke: css(colour(Math.max(w, .02))), "stroke-width": 1 + 7 * w });
    const t = add("text", { x, y: y + 4, "text-anchor": end, style: "cursor:pointer" }, end === "end" ? `${num(w, 2)}  ${short(texts[i])} ${i}` : `${i} ${short(texts[i])}  ${num(w, 2)}`); t.addEventListener("click", () => set({ at: i })); });
  part(who, 4, "start", tq, -1); part(reads, W - 4, "end", tk, 1);
  add("text", { x: W / 2, y: mid + 4, "text-anchor": "middle", "font-weight": "bold" }, short(tq[S.at]));
  $("lines").replaceChildren(svg);
  $("linesnote").textContent = got ? "" : "This row was not kept: the text is too long for all rows. Ask for it with --at, or for all rows of this head with --layer and --head.";
}
// ---- one position through all layers: the largest weight of any head
let through = [];
function drawLayers() {
  const m = map(), n = m.n_keys, room = $("layersbox").clientWidth - 26, [, tk] = tokensOf(), bins = Math.min(n, Math.max(20, Math.floor((room - 26) / 3)));
  const w = Math.max(2, Math.min(46, (room - 26) / bins)), h = Math.max(8, Math.min(15, 420 / m.n_layers)), g = canvas("layers", Math.min(room, 26 + w * bins), h * m.n_layers + 4);
  through = Array.from({ length: m.n_layers }, () => new Float32Array(bins));
  for (let l = 0; l < m.n_layers; l++) for (let k = 0; k < m.n_heads; k++) { const r = row(l, k, S.at); if (r) for (let i = 0; i < r[0].length; i++) { const b = Math.floor(r[0][i] * bins / n); if (r[1][i] > through[l][b]) through[l][b] = r[1][i]; } }
  const style = getComputedStyle(document.documentElement); g.font = "10px sans-serif"; g.textAlign = "right"; g.textBaseline = "middle";
  for (let l = 0; l < m.n_layers; l++) { g.fillStyle = style.getPropertyValue("--soft"); if (h > 9 || l % 2 === 0) g.fillText(l, 22, h * (l + .5)); for (let b = 0; b < bins; b++) { g.fillStyle = css(colour(through[l][b])); g.fillRect(26 + b * w, l * h, Math.ceil(w), h - (h > 5 ? 1 : 0)); } }
  g.strokeStyle = style.getPropertyValue("--accent"); g.lineWidth = 2; g.strokeRect(25, S.layer * h - 1, w * bins + 2, h + 1);
  $("layers").at = e => { const b = $("layers").getBoundingClientRect(), l = Math.floor((e.clientY - b.top) / h), x = Math.floor((e.clientX - b.left - 26) / w); return l >= 0 && l < m.n_layers && x >= 0 && x < bins ? [l, Math.floor(x * n / bins), through[l][x], tk] : null; };
}
// ---- tokens
let tokenKey = "";
function drawTokens() {
  const m = map(), [tq, tk] = tokensOf(), texts = m.attention ? tq : tk, box = $("tokens"), n = texts.length;
  const from = n <= LIMIT ? 0 : Math.max(0, Math.min(n - LIMIT, S.at - LIMIT / 2)), key = [S.map, Math.floor(from / 50)].join();
  if (key !== tokenKey || !box.firstChild) {
    tokenKey = key; const f = document.createDocumentFragment();
    if (from > 0) f.append(el("span", { className: "soft", textContent: `… ${from} before ` }));
    for (let i = from; i < Math.min(n, from + LIMIT); i++) { const t = el("bdi", { className: "tok", textContent: shown(texts[i]), title: `position ${i}`, dir: "auto", tabIndex: -1 }); t.dataset.i = i; f.append(t); }
    if (from + LIMIT < n) f.append(el("span", { className: "soft", textContent: ` … ${n - from - LIMIT} more` }));
    box.replaceChildren(f);
  }
  const r = row(S.layer, S.head, S.at), w = new Map(); if (r && !m.attention) for (let i = 0; i < r[0].length; i++) w.set(r[0][i], r[1][i]);
  for (const t of box.querySelectorAll(".tok")) { const i = +t.dataset.i, v = w.get(i) || 0, c = v > .01 ? colour(v) : null; t.classList.toggle("at", i === S.at); t.style.background = c ? css(c) : ""; t.style.color = c ? ink(c) : ""; }
}
// ---- beside the weight
const effect = e => e ? signed(e[0]) : "–";
let sortBy = -1, sortUp = false;
const why = w => [w & 1 ? "largest estimate" : "", w & 2 ? "random sample" : "", w & 4 ? "read by the position" : ""].filter(Boolean).join(", ");
function drawMeasures() {
  const box = $("measures"), M = D.measures; box.replaceChildren();
  if (D.note) box.append(el("p", { textContent: D.note }));
  if (!M) { $("measuresbox").hidden = !D.note; return; }
  const T = D.tokens, a = D.answers.map(shown);
  box.append(el("p", {}, "Outcome: logit(", el("b", {}, bdi(D.answers[0])), ") − logit(", el("b", {}, bdi(D.answers[1])), `) after the last token, ${signed(M.outcome)} as it stands. Effects are changes of that difference; KL in nats.`));
  const c = M.estimated, s = M.sampled;
  box.append(el("p", { textContent: `All ${M.n_screened.toLocaleString("en")} readings were screened by ${M.estimate === 1 ? "a gradient (first-order effect of the knockout)" : "their direct effect (readings of the last position only)"}: an estimate. The ${M.edges.length} below were run again in the model: exact.` }));
  box.append(el("p", { textContent: `Rank correlation (Spearman) of weight and |effect|: over ${c.n.toLocaleString("en")} screened readings, estimated ${num(c.all, 2)}, without the first token ${num(c.without_first, 2)} (n ${c.n_without_first.toLocaleString("en")}); over ${s.n} readings drawn at random, exact knockouts ${num(s.all, 2)}, without the first token ${num(s.without_first, 2)} (n ${s.n_without_first}).` }));
  const cols = [["layer.head", e => e.layer * 1e4 + e.head, e => `${e.layer}.${e.head}`], ["reader", e => e.query, e => bdi(T[e.query]), 1], ["reads", e => e.key, e => bdi(T[e.key]), 1], ["weight", e => e.weight, e => num(e.weight)], ["|moved|", e => e.moved, e => num(e.moved, 2)], ["direct", e => e.direct, e => signed(e.direct)], ["estimate", e => e.estimate, e => signed(e.estimate)],
    ["knockout", e => e.knockout && e.knockout[0], e => effect(e.knockout)], ["removal", e => e.removal[0], e => effect(e.removal)], ["mean value", e => e.mean[0], e => effect(e.mean)], ["KL (knockout)", e => e.knockout && e.knockout[1], e => e.knockout ? num(e.knockout[1], 4) : "–"]];
  if (D.pair) cols.push(["pair's value", e => e.pair && e.pair[0], e => effect(e.pair)]);
  const list = M.edges.slice(); if (sortBy >= 0) list.sort((x, y) => { const p = cols[sortBy][1](x), q = cols[sortBy][1](y); return (sortUp ? 1 : -1) * ((p ?? -1e9) - (q ?? -1e9)); });
  const head = el("tr"); cols.forEach((k, i) => { const th = el("th", { textContent: k[0] + (i === sortBy ? sortUp ? " ▲" : " ▼" : ""), className: k[3] ? "l" : "" }); th.onclick = () => { sortUp = sortBy === i ? !sortUp : false; sortBy = i; drawMeasures(); }; head.append(th); });
  const body = el("tbody"); for (const e of list) { const tr = el("tr", { className: "pick", title: "run again because: " + why(e.why) }); for (const k of cols) { const td = el("td", { className: k[3] ? "l" : "" }); td.append(k[2](e)); tr.append(td); } tr.onclick = () => set({ layer: e.layer, head: e.head, at: e.query }); body.append(tr); }
  box.append(el("div", { className: "scroll" }, el("table", { id: "edges" }, el("thead", {}, head), body)));
  if (M.windows) { const W = Math.min(620, box.clientWidth - 20), H = 130, top = Math.max(...M.windows.map(x => Math.abs(x[0])), 1e-6), ns = "http://www.w3.org/2000/svg", svg = document.createElementNS(ns, "svg"), add = (t, at, text) => { const x = document.createElementNS(ns, t); for (const k in at) x.setAttribute(k, at[k]); if (text !== undefined) x.textContent = text; svg.append(x); };
    svg.setAttribute("width", W); svg.setAttribute("height", H); add("line", { x1: 40, x2: W, y1: 60, y2: 60, stroke: "currentColor", "stroke-opacity": .4 }); add("text", { x: 0, y: 14 }, "+" + num(top, 2)); add("text", { x: 0, y: 116 }, "−" + num(top, 2));
    M.windows.forEach((x, l) => { const y = 50 * x[0] / top, w = (W - 46) / M.windows.length; add("rect", { x: 44 + l * w, y: y > 0 ? 60 - y : 60, width: Math.max(1, w - 2), height: Math.max(1, Math.abs(y)), fill: css(ramp[dark() ? 170 : 120]) }); if (M.windows.length < 40 && l % 5 === 0) add("text", { x: 44 + l * w, y: 128 }, l); });
    box.append(el("p", {}, "The reading ", bdi(T[M.window_query]), " ← ", bdi(T[M.window_key]), ` cut in every head of ${M.window} layers at once, by the middle layer: later layers often repair a single cut.`), svg); }
  if (M.heads) { const t = el("tbody"), H = M.heads.map((h, i) => [i, h]).sort((x, y) => Math.abs(y[1].mean[0]) - Math.abs(x[1].mean[0])).slice(0, 30), n = D.maps[0].n_heads; for (const [i, h] of H) { const tr = el("tr", { className: "pick" }); for (const v of [`${Math.floor(i / n)}.${i % n}`, signed(h.direct), effect(h.mean), effect(h.resample), effect(h.zero)].concat(D.pair ? [effect(h.patch), effect(h.path)] : [])) tr.append(el("td", { textContent: v })); tr.onclick = () => set({ layer: Math.floor(i / n), head: i % n }); t.append(tr); }
    const hr = el("tr"); for (const k of ["layer.head", "direct", "mean", "resample", "zero"].concat(D.pair ? ["activation patch", "path patch"] : [])) hr.append(el("th", { textContent: k }));
    box.append(el("h2", { textContent: "Whole heads replaced at every position (the 30 that move most by their mean)" }), el("div", { className: "scroll" }, el("table", {}, el("thead", {}, hr), t))); }
}
// ---- all
function drawLegend() { const g = canvas("legend", 180, 14); for (let i = 0; i < 180; i++) { g.fillStyle = css(colour(i / 179)); g.fillRect(i, 0, 1, 14); } }
let lastTheme = null;
function draw() {
  const m = map(), [tq] = tokensOf(), st = m.stats[S.layer * m.n_heads + S.head];
  if (lastTheme !== dark()) { lastTheme = dark(); makeRamp(); thumbKey = ""; drawMeasures(); }
  $("map").value = S.map; $("layer").value = S.layer; $("head").value = S.head; $("at").value = S.at; $("layer").max = m.n_layers - 1; $("head").max = m.n_heads - 1; $("at").max = m.n_queries - 1;
  $("which").replaceChildren(`Layer ${S.layer}, head ${S.head}; position ${S.at} `, bdi(tq[S.at]));
  $("stat").textContent = `means over rows: entropy ${num(st[0], 2)} nats, distance ${num(st[1], 1)} tokens, first token ${num(st[2], 2)}; largest elsewhere ${num(st[3], 2)}` + (m.queries.length < m.n_queries ? `; ${m.queries.length} of ${m.n_queries} rows kept` : "") + (m.most_kept < m.n_keys ? `; of a row the ${m.most_kept} largest weights above ${m.least_kept}` : "");
  drawLegend(); drawTokens(); drawThumbs(); drawMatrix(); drawLines(); drawLayers();
}
const tip = (e, ...parts) => { const t = $("tip"); if (!parts.length) { t.style.display = "none"; return; } t.replaceChildren(...parts); t.style.display = "block"; t.style.left = Math.min(e.clientX + 14, innerWidth - t.offsetWidth - 8) + "px"; t.style.top = Math.min(e.clientY + 14, innerHeight - t.offsetHeight - 8) + "px"; };
function zoom(by, q, j) { const v = view(), n = Math.max(map().n_queries, map().n_keys), z = Math.min(Math.max(S.zoom * by, 1), Math.max(1, n / 4)), span = n / z, fy = q === undefined ? .5 : (q - v.y) / v.span, fx = j === undefined ? .5 : (j - v.x) / v.span; S.x = v.x + fx * (v.span - span); S.y = v.y + fy * (v.span - span); S.zoom = z; drawMatrix(); }
function save(name, type, text) { const a = el("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name }); a.click(); setTimeout(() => URL.revokeObjectURL(a.href), 1000); }
const xml = s => s.replace(/[&<>"']/g, c => "&#" + c.charCodeAt(0) + ";");
function matrixSvg() { const v = view(), m = map(), [tq, tk] = tokensOf(), c = 560 / v.span, out = [], L = v.span <= 60 ? 120 : 8; let n = 0;
  eachCell((q, j, w) => { if (n < 40000 && w > .002 && j >= v.x - 1 && j < v.x + v.span) { n++; out.push(`<rect x="${(L + (j - v.x) * c).toFixed(2)}" y="${(L + (q - v.y) * c).toFixed(2)}" width="${c.toFixed(2)}" height="${c.toFixed(2)}" fill="${css(colour(w))}"><title>${w.toFixed(4)}</title></rect>`); } });
  if (L > 8) { for (let i = Math.ceil(v.y); i < Math.min(m.n_queries, v.y + v.span); i++) out.push(`<text x="${L - 5}" y="${(L + (i - v.y + .7) * c).toFixed(1)}" text-anchor="end">${xml(shown(tq[i]))}</text>`); for (let j = Math.ceil(v.x); j < Math.min(m.n_keys, v.x + v.span); j++) out.push(`<text transform="translate(${(L + (j - v.x + .7) * c).toFixed(1)},${L - 5}) rotate(-90)">${xml(shown(tk[j]))}</text>`); }
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${L + 568}" height="${L + 590}" font-family="sans-serif" font-size="${Math.min(14, c * .8).toFixed(1)}"><rect x="${L}" y="${L}" width="560" height="560" fill="${css(colour(0))}"/>${out.join("")}<text x="${L}" y="${L + 582}" font-size="13">layer ${S.layer}, head ${S.head}</text></svg>`; }
function csv() { const [tq, tk] = tokensOf(), cell = s => '"' + (/^[=+\-@]/.test(s) ? "'" : "") + s.replace(/"/g, '""') + '"', out = ["layer,head,query,query_token,key,key_token,weight"]; eachCell((q, j, w) => out.push([S.layer, S.head, q, cell(tq[q]), j, cell(tk[j]), w.toFixed(5)].join(","))); return out.join("\n") + "\n"; }
function start() {
  document.title = "attn: " + shown(D.title); $("title").textContent = D.title; $("model").textContent = D.model;
  D.maps.forEach((m, i) => $("map").append(el("option", { value: i, textContent: m.attention ? "decoder reads encoder (cross)" : m.encoder ? "encoder (both directions)" : "decoder (backwards only)" }))); $("maplabel").hidden = D.maps.length < 2;
  if (D.top.length) $("top").replaceChildren("Likeliest next: ", ...D.top.slice(0, 6).flatMap(t => [el("b", {}, bdi(t[0])), ` ${(100 * t[1]).toFixed(1)} %  `]));
  if (matchMedia("(prefers-color-scheme: dark)").matches) document.documentElement.classList.add("dark");
  for (const k of ["map", "layer", "head", "at"]) $(k).addEventListener("change", e => set({ [k]: +e.target.value }));
  $("theme").onclick = () => { document.documentElement.classList.toggle("dark"); draw(); };
  $("root").onclick = () => { S.root = 1 - S.root; thumbKey = ""; $("root").textContent = S.root ? "colour: root" : "colour: linear"; $("legendmid").textContent = S.root ? "0.25" : "0.5"; draw(); };
  $("svg").onclick = () => save(`layer${S.layer}-head${S.head}.svg`, "image/svg+xml", matrixSvg()); $("csv").onclick = () => save(`layer${S.layer}-head${S.head}.csv`, "text/csv", csv());
  $("tokens").onclick = e => { const t = e.target.closest(".tok"); if (t) set({ at: +t.dataset.i }); };
  const thumbAt = e => { const b = $("thumbs").getBoundingClientRect(), h = Math.floor((e.clientX - b.left - 28) / cell), l = Math.floor((e.clientY - b.top - 16) / cell), m = map(); return h >= 0 && l >= 0 && h < m.n_heads && l < m.n_layers ? [l, h] : null; };
  $("thumbs").onclick = e => { const t = thumbAt(e); if (t) set({ layer: t[0], head: t[1] }); };
  $("thumbs").onmousemove = e => { const t = thumbAt(e); if (!t) return tip(e); const st = map().stats[t[0] * map().n_heads + t[1]]; tip(e, `layer ${t[0]}, head ${t[1]}: first token ${num(st[2], 2)}, distance ${num(st[1], 1)}, largest elsewhere ${num(st[3], 2)}`); };
  const mx = $("matrix"); let drag = null;
  mx.onpointerdown = e => { drag = [e.clientX, e.clientY, view().x, view().y, false]; mx.setPointerCapture(e.pointerId); };
  mx.onpointermove = e => {
    if (drag) { const v = view(); if (Math.abs(e.clientX - drag[0]) + Math.abs(e.clientY - drag[1]) > 4) drag[4] = true; if (drag[4]) { S.x = drag[2] - (e.clientX - drag[0]) / v.px; S.y = drag[3] - (e.clientY - drag[1]) / v.px; drawMatrix(); } return; }
    const [q, j] = cellAt(e), m = map(); if (q < 0 || j < 0 || q >= m.n_queries || j >= m.n_keys) return tip(e);
    const w = weight(S.layer, S.head, q, j), [tq, tk] = tokensOf(), norm = m.value_norms ? m.value_norms[(S.layer * m.n_heads + S.head) * m.n_keys + j] : null;
    tip(e, bdi(tq[q]), ` (${q}) reads `, bdi(tk[j]), ` (${j}): `, w === null ? "row not kept" : !m.encoder && !m.attention && j > q ? "later: not visible" : w === 0 ? `below ${m.least_kept || 1e-5}` : `weight ${num(w)}` + (norm === null ? "" : `, moves ${num(w * norm, 2)}`));
  };
  mx.onpointerup = e => { if (drag && !drag[4]) { const [q] = cellAt(e); if (q >= 0 && q < map().n_queries) set({ at: q }); } drag = null; };
  mx.addEventListener("wheel", e => { e.preventDefault(); const [q, j] = cellAt(e); zoom(e.deltaY < 0 ? 1.25 : .8, q, j); }, { passive: false });
  $("layers").onmousemove = e => { const t = $("layers").at && $("layers").at(e); if (!t) return tip(e); tip(e, `layer ${t[0]}: `, bdi(t[3][t[1]]), ` (${t[1]}), largest weight of any head ${num(t[2], 2)}`); };
  $("layers").onclick = e => { const t = $("layers").at && $("layers").at(e); if (t) { let best = 0, most = -1; for (let h = 0; h < map().n_heads; h++) { const w = weight(t[0], h, S.at, t[1]); if (w > most) { most = w; best = h; } } set({ layer: t[0], head: best }); } };
  for (const id of ["thumbs", "matrix", "layers"]) $(id).onmouseleave = e => tip(e);
  addEventListener("keydown", e => {
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName) || e.ctrlKey || e.metaKey || e.altKey) return;
    const m = map(), go = { ArrowLeft: { at: S.at - 1 }, ArrowRight: { at: S.at + 1 }, ArrowUp: { layer: S.layer - 1 }, ArrowDown: { layer: S.layer + 1 }, "[": { head: S.head - 1 }, "]": { head: S.head + 1 }, h: { head: (S.head + 1) % m.n_heads }, m: { map: (S.map + 1) % D.maps.length } }[e.key];
    if (go) { e.preventDefault(); set(go); } else if (e.key === "+" || e.key === "=") zoom(1.5, S.at); else if (e.key === "-") zoom(1 / 1.5, S.at); else if (e.key === "0") { S.zoom = 1; S.x = S.y = 0; drawMatrix(); } else if (e.key === "d") $("theme").click();
  });
  addEventListener("hashchange", () => { fromLink(); draw(); }); let again = 0; addEventListener("resize", () => { clearTimeout(again); again = setTimeout(draw, 80); });
  fromLink(); draw(); document.body.dataset.ready = "1";
}
start();
})();
