// page.js - what is looked at, keys and links, and the start.

const state = { map: maps.indexOf(mainMap), layer: data.layer, head: data.head, at: data.at, key: 0, zoom: 1, x: 0, y: 0, root: true };
const currentMap = () => maps[state.map];
const texts = () => sidesOf(currentMap());
const LINKED = ["map", "layer", "head", "at", "key"];

function clampState() {
  const inside = (v, n) => Math.min(Math.max(v, 0), n - 1);
  state.map = inside(state.map, maps.length);
  const map = currentMap();
  state.layer = inside(state.layer, map.n_layers);
  state.head = inside(state.head, map.n_heads);
  state.at = inside(state.at, map.n_queries);
  state.key = inside(state.key, map.n_keys);
}

function followLink() {
  const link = new URLSearchParams(location.hash.slice(1));
  for (const name of LINKED) if (/^\d{1,9}$/.test(link.get(name) || "")) state[name] = +link.get(name);
  clampState();
  followed = location.hash;
}

let linkTimer = 0, layersTimer = 0, followed = ""; // the address that the state has been taken from, or written to
function change(changes) {
  if (changes.map !== undefined && changes.map !== state.map) Object.assign(state, { zoom: 1, x: 0, y: 0 });
  Object.assign(state, changes);
  clampState();
  draw();
  clearTimeout(linkTimer);
  linkTimer = setTimeout(() => {
    if (location.hash !== followed) return; // a link was followed meanwhile: it counts
    const names = LINKED.filter((name) => (name !== "map" || maps.length > 1) && (name !== "key" || currentMap().attention));
    history.replaceState(null, "", "#" + names.map((name) => `${name}=${state[name]}`).join("&"));
    followed = location.hash;
  }, 60);
}

function describe() {
  const map = currentMap(), s = statOf(map, state.layer, state.head);
  for (const name of ["map", "layer", "head", "at"]) $(name).value = state[name];
  $("layer").max = map.n_layers - 1;
  $("head").max = map.n_heads - 1;
  $("at").max = map.n_queries - 1;
  $("which").replaceChildren(`Layer ${state.layer}, head ${state.head}; position ${state.at} `, tokenElement(texts().readers[state.at]));
  const kept = map.n_rows < map.n_queries ? `; ${grouped(map.n_rows)} of ${grouped(map.n_queries)} rows kept` : "";
  const most = map.most_kept < map.n_keys ? `; of a row the ${map.most_kept} largest weights from ${+map.least_kept.toPrecision(3)} on` : "";
  const rounded = map.exact ? "" : ", to 1.5 % (the JSON has all digits)";
  $("stat").textContent = `means over rows: entropy ${number(s.entropy, 2)} nats, ${map.attention ? "" : `distance ${number(s.distance, 1)} tokens, `}` +
    `first token ${number(s.first, 2)}; largest elsewhere ${number(s.largest, 2)}${kept}${most}${most ? rounded : ""}`;
}

let drawnDark = null;
function draw() {
  if (drawnDark !== isDark()) {
    drawnDark = isDark();
    makeRamp();
    drawMeasures();
  }
  describe();
  drawLegend();
  drawTokens();
  drawThumbs();
  drawMatrix();
  drawLines();
  drawLayers();
  readLayersLater();
}

// The view through all layers needs rows of every head: those not read yet come while nothing happens.
function readLayersLater() {
  const map = currentMap();
  clearTimeout(layersTimer);
  if (!map.layers.includes(null)) return;
  layersTimer = setTimeout(() => readAhead(map, () => { if (map === currentMap()) drawLayers(); }), 30);
}

function useKeys() {
  addEventListener("keydown", (event) => {
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = { ArrowLeft: { at: state.at - 1 }, ArrowRight: { at: state.at + 1 }, ArrowUp: { layer: state.layer - 1 },
      ArrowDown: { layer: state.layer + 1 }, "[": { head: state.head - 1 }, "]": { head: state.head + 1 },
      m: { map: (state.map + 1) % maps.length } };
    const others = { "+": () => zoom(1.5, { query: state.at + 0.5, key: state.at + 0.5 }), "-": () => zoom(1 / 1.5),
      0: () => { Object.assign(state, { zoom: 1, x: 0, y: 0 }); drawMatrix(); }, d: () => $("theme").click(), c: () => $("root").click() };
    others["="] = others["+"];
    if (!moves[event.key] && !others[event.key]) return;
    event.preventDefault();
    if (moves[event.key]) change(moves[event.key]); else others[event.key]();
  });
}

function useButtons() {
  for (const name of ["map", "layer", "head", "at"])
    $(name).addEventListener("change", (event) => change({ [name]: Math.trunc(+event.target.value) || 0 }));
  $("theme").onclick = () => { document.documentElement.classList.toggle("dark"); draw(); };
  $("root").onclick = () => {
    state.root = !state.root;
    $("root").textContent = state.root ? "colour: root" : "colour: linear";
    draw();
  };
  const files = { thumbs: saveThumbs, matrix: saveMatrix, lines: saveLines, layers: saveLayers };
  for (const name in files) {
    $(name + "svg").onclick = () => files[name]("svg");
    $(name + "csv").onclick = () => files[name]("csv");
  }
  $("measurescsv").onclick = saveMeasures;
}

function useViews() {
  const chosen = (event) => { const button = event.target.closest(".tok"); return button ? +button.dataset.i : null; };
  $("tokens").onclick = (event) => { if (chosen(event) !== null) change({ at: chosen(event) }); };
  $("source").onclick = (event) => { if (chosen(event) !== null) change({ key: chosen(event) }); };
  $("thumbs").onclick = (event) => { const at = thumbAt(event); if (at) change(at); };
  $("thumbs").onmousemove = hoverThumbs;
  $("layers").onclick = clickLayers;
  $("layers").onmousemove = hoverLayers;
  for (const name of ["thumbs", "matrix", "layers"]) $(name).onmouseleave = (event) => tip(event);
  useMatrix();
}

function start() {
  document.title = "attn: " + shown(data.title);
  $("title").textContent = data.title;
  $("model").textContent = `${data.model}: ${data.family}, ${grouped(data.n_parameters)} parameters (${data.weights}); libattn ${data.libattn}, ${data.isa}` +
    (data.measures ? `, seed ${data.seed}` : "");
  maps.forEach((map, id) => $("map").append(element("option", { value: id, textContent: mapName(map) })));
  $("maplabel").hidden = maps.length < 2;
  const likely = data.top.slice(0, 6).map(([token, share]) => element("span", {}, element("b", {}, tokenElement(token)), ` ${(100 * share).toFixed(1)} %`));
  if (likely.length) $("top").replaceChildren(data.kind === 1 ? "Likeliest here: " : "Likeliest next: ", ...likely);
  if (matchMedia("(prefers-color-scheme: dark)").matches) document.documentElement.classList.add("dark");
  useButtons();
  useViews();
  useKeys();
  addEventListener("hashchange", () => { followLink(); draw(); });
  let again = 0;
  addEventListener("resize", () => { clearTimeout(again); again = setTimeout(() => { drawMeasures(); draw(); }, 80); });
  followLink();
  draw();
  performance.mark("ready");
  document.body.dataset.ready = "1";
}
start();
