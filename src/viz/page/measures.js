// measures.js - what stands beside a weight: readings and heads that were cut in the model.

const effectOf = (effect) => effect ? signed(effect[0]) : "–";
const sorting = { by: -1, up: false };

const sidesOf = (map) => { // the texts of a map: who reads, what is read
  const decoder = data.target && !map.encoder;
  return { readers: decoder ? data.target : data.tokens, read: decoder && !map.attention ? data.target : data.tokens };
};
const mapName = (map) => map.attention ? "decoder reads encoder (cross)" : map.encoder ? "encoder (both directions)" : "decoder (backwards only)";
const shortMapName = (map) => map.attention ? "cross" : map.encoder ? "encoder" : "decoder";

// A column: name, value to sort by, what is shown, is it text.
function edgeColumns() {
  const first = (name) => (e) => e[name] && e[name][0];
  const columns = [
    ["layer.head", (e) => e.map * 1e8 + e.layer * 1e4 + e.head, (e) => `${e.layer}.${e.head}`],
    ["reader", (e) => e.query, (e) => tokenElement(sidesOf(maps[e.map]).readers[e.query]), true],
    ["reads", (e) => e.key, (e) => tokenElement(sidesOf(maps[e.map]).read[e.key]), true],
    ["weight", (e) => e.weight, (e) => number(e.weight)],
    ["|moved|", (e) => e.moved, (e) => number(e.moved, 2)],
    ["direct", (e) => e.direct, (e) => e.direct === null ? "–" : signed(e.direct)],
    ["estimate", (e) => e.estimate, (e) => e.estimate === null ? "–" : signed(e.estimate)],
    ["knockout", first("knockout"), (e) => effectOf(e.knockout)],
    ["removal", first("removal"), (e) => effectOf(e.removal)],
    ["mean value", first("mean"), (e) => effectOf(e.mean)],
  ];
  if (data.measures.outcome_kind !== 2)
    columns.push(["KL (knockout)", (e) => e.knockout && e.knockout[1], (e) => e.knockout ? number(e.knockout[1], 4) : "–"]);
  if (data.pair) columns.push(["pair's value", first("pair"), (e) => effectOf(e.pair)]);
  if (maps.length > 1) columns.splice(0, 0, ["attention", (e) => e.map, (e) => shortMapName(maps[e.map]), true]);
  return columns.map(([name, value, show, text]) => ({ name, value, show, text }));
}

const whyCut = (why) => [why & 1 && "one of the largest estimates", why & 2 && "drawn at random", why & 4 && "read by the position",
  why & 8 && "too early in a long text to be cut: its estimate alone"]
  .filter(Boolean).join(", ");

function edgeTable() {
  const columns = edgeColumns(), edges = data.measures.edges.slice(), head = element("tr"), body = element("tbody");
  if (sorting.by >= 0) {
    const value = (e) => columns[sorting.by].value(e) ?? -1e9;
    edges.sort((x, y) => (sorting.up ? 1 : -1) * (value(x) - value(y)));
  }
  columns.forEach((column, i) => {
    const arrow = i === sorting.by ? sorting.up ? " ▲" : " ▼" : "";
    const cell = element("th", { textContent: column.name + arrow, className: column.text ? "l" : "", title: "sort" });
    cell.onclick = () => {
      sorting.up = sorting.by === i && !sorting.up;
      sorting.by = i;
      drawMeasures();
    };
    head.append(cell);
  });
  for (const e of edges) {
    const row = element("tr", { className: "pick", title: (e.why & 8 ? "" : "run again because: ") + whyCut(e.why) });
    for (const column of columns) {
      const cell = element("td", { className: column.text ? "l" : "" });
      cell.append(column.show(e));
      row.append(cell);
    }
    row.onclick = () => change({ map: e.map, layer: e.layer, head: e.head, at: e.query, key: e.key });
    body.append(row);
  }
  return element("div", { className: "scroll" }, element("table", { id: "edges" }, element("thead", {}, head), body));
}

function saveMeasures() {
  const m = data.measures, both = (effect) => effect || [null, null], rows = [["attention", "layer", "head", "query", "query_token", "key", "key_token", "why",
    "weight", "moved", "direct", "estimate", "knockout", "knockout_kl", "removal", "removal_kl", "mean", "mean_kl", "pair", "pair_kl"]];
  for (const e of m.edges) {
    const { readers, read } = sidesOf(maps[e.map]);
    rows.push([shortMapName(maps[e.map]), e.layer, e.head, e.query, readers[e.query], e.key, read[e.key], whyCut(e.why), e.weight, e.moved, e.direct, e.estimate,
      ...both(e.knockout), ...both(e.removal), ...both(e.mean), ...both(e.pair)]);
  }
  saveCsv("measures", rows);
}

function windowChart() {
  const m = data.measures, width = Math.max(240, Math.min(620, $("measures").clientWidth - 20)), values = m.windows.map((w) => w[0]);
  const most = Math.max(...values.map(Math.abs), 1e-6), svg = svgElement("svg", { width, height: 140 }), step = (width - 60) / values.length;
  svg.append(svgElement("line", { x1: 52, x2: width, y1: 64, y2: 64, stroke: "currentColor", "stroke-opacity": 0.4 }),
    svgElement("text", { x: 46, y: 18, "text-anchor": "end" }, "+" + number(most, 2)), svgElement("text", { x: 46, y: 68, "text-anchor": "end" }, "0"),
    svgElement("text", { x: 46, y: 120, "text-anchor": "end" }, "−" + number(most, 2)));
  values.forEach((value, layer) => {
    const height = 50 * Math.abs(value) / most, bar = svgElement("rect", { x: 56 + layer * step, y: value > 0 ? 64 - height : 64,
      width: Math.max(1, Math.min(40, step - 2)), height: Math.max(1, height), fill: css(ramp[isDark() ? 170 : 130]) });
    bar.append(svgElement("title", {}, `around layer ${layer}: ${signed(value)}`));
    svg.append(bar);
    if (layer % Math.ceil(values.length / 12) === 0) svg.append(svgElement("text", { x: 56 + layer * step, y: 136 }, layer));
  });
  const { readers, read } = sidesOf(maps[m.window_map]);
  return [element("p", {}, "The reading ", tokenElement(readers[m.window_query]), " ← ", tokenElement(read[m.window_key]),
    ` cut in every head of ${m.window} layer${m.window === 1 ? "" : "s"} at once, by the middle layer: later layers often repair a single cut.`), svg];
}

function headTable() {
  const body = element("tbody"), head = element("tr"), names = ["layer.head", "direct", "mean", "resample", "zero"].concat(data.pair ? ["activation patch", "path patch"] : []);
  if (maps.length > 1) names.unshift("attention");
  for (const name of names) head.append(element("th", { textContent: name }));
  const most = data.measures.heads.slice().sort((a, b) => Math.abs(b.mean[0]) - Math.abs(a.mean[0])).slice(0, 30);
  for (const h of most) {
    const row = element("tr", { className: "pick" }), cells = [`${h.layer}.${h.head}`, h.direct === null ? "–" : signed(h.direct), effectOf(h.mean), effectOf(h.resample), effectOf(h.zero)];
    if (data.pair) cells.push(effectOf(h.patch), effectOf(h.path));
    if (maps.length > 1) cells.unshift(shortMapName(maps[h.map]));
    for (const text of cells) row.append(element("td", { textContent: text }));
    row.onclick = () => change({ map: h.map, layer: h.layer, head: h.head });
    body.append(row);
  }
  return [element("h2", { textContent: "Whole heads replaced at every position (the 30 that move most by their mean)" }),
    element("div", { className: "scroll" }, element("table", { id: "heads" }, element("thead", {}, head), body)),
    element("p", { className: "small soft", textContent: "mean: the head's output replaced by its mean over the text. resample: by its outputs at other positions, drawn with the seed. " +
      "zero: by nothing, far from anything the model knows, for comparison only." + (data.pair ? " activation patch: by its outputs in the paired prompt. " +
      "path patch: the same, all other heads held at what they were." : "") })];
}

// The paired prompt, what differs in bold, and its own outcome.
function pairText() {
  const tokens = data.pair.map((token, i) => token === data.tokens[i] ? tokenElement(token) : element("b", {}, tokenElement(token)));
  const shown = tokens.slice(0, 200), m = data.measures;
  return ["Paired prompt: ", ...shown, tokens.length > shown.length ? " …" : "",
    m.pair_outcome === null ? "" : m.outcome_kind === 2 ? `; its embedding is ${number(m.pair_outcome)} away.` : `; there the outcome is ${signed(m.pair_outcome)}.`];
}

// What the effects are changes of, and how readings were screened, in words.
function outcomeText() {
  const m = data.measures;
  if (m.outcome_kind === 2)
    return ["Outcome: the text's embedding. Effects are how far it moves: the distance between the unit-length vectors with and without the cut (0 to 2)."];
  const [a, b] = data.answers, bold = (token) => element("b", {}, tokenElement(token));
  return ["Outcome: logit(", bold(a), ") − logit(", bold(b), m.outcome_kind === 1 ? `) at position ${m.outcome_position}` : ") after the last token",
    `, ${signed(m.outcome)} as it stands. Effects are changes of that difference; KL in nats.`];
}
const TOO_LONG = "the gradient behind them takes more than 2 GB or 20 billion readings here";
const ESTIMATES = [`their direct effect (of the last position only: for all, ${TOO_LONG})`, "a gradient (first-order effect of the knockout)",
  "gradients along random directions (first-order distance that the knockout moves the embedding)"];

function screenedText(m) {
  if (m.n_screened === 0) return `No reading was screened (${TOO_LONG.replace("behind them ", "")}): what is below was read by the position or drawn at random.`;
  return `${m.estimate === 0 ? "" : "All "}${grouped(m.n_screened)} readings were screened by ${ESTIMATES[m.estimate]}: an estimate.`;
}

function drawMeasures() {
  const box = $("measures"), m = data.measures;
  box.replaceChildren();
  if (data.note) box.append(element("p", { textContent: data.note }));
  $("measuresbox").hidden = !m && !data.note;
  $("measuresnote").hidden = $("measurescsv").hidden = !m;
  if (!m) return;
  const estimated = m.estimated, sampled = m.sampled, exact = m.edges.filter((e) => !(e.why & 8)).length, early = m.edges.length - exact;
  box.append(element("p", {}, ...outcomeText()));
  if (data.pair) box.append(element("p", { id: "pair" }, ...pairText()));
  box.append(
    element("p", { textContent: `${screenedText(m)} ${exact} of those below were run again in the model: exact.${early ? ` ${early} are too early in a long text for that: estimates alone.` : ""}` }),
    element("p", { textContent: `Rank correlation (Spearman) of weight and |effect|: over ${grouped(estimated.n)} screened readings, estimated ${number(estimated.all, 2)}, ` +
      `without the first token ${number(estimated.without_first, 2)} (n ${grouped(estimated.n_without_first)}); over ${sampled.n} readings drawn at random, ` +
      `exact knockouts ${number(sampled.all, 2)}, without the first token ${number(sampled.without_first, 2)} (n ${sampled.n_without_first}).` }));
  box.append(edgeTable());
  if (m.windows) box.append(...windowChart());
  if (m.heads) box.append(...headTable());
}
