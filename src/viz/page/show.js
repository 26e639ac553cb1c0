// show.js - tokens, numbers and colours as a reader expects them.

const shownTokens = new Map();

// Spaces, line ends and controls become visible; characters that reorder or hide text are spelled out.
function shown(token) {
  if (shownTokens.has(token)) return shownTokens.get(token);
  let text = "", length = 0;
  for (const c of token) {
    const p = c.codePointAt(0);
    if (++length > 48) { text += "…"; break; }
    if (c === "\n") text += "⏎";
    else if (c === "\t") text += "⇥";
    else if (c === " ") text += "·";
    else if (p < 32) text += String.fromCodePoint(0x2400 + p);
    else if (p === 127) text += "␡";
    else if ((p >= 0x80 && p < 0xa0) || (p >= 0x200b && p <= 0x200f && p !== 0x200d) || (p >= 0x2028 && p <= 0x202e) ||
      (p >= 0x2060 && p <= 0x206f) || p === 0xfeff) text += "\\u" + p.toString(16).padStart(4, "0");
    else text += c;
  }
  if (/^\p{M}/u.test(text)) text = "◌" + text;
  shownTokens.set(token, text || "∅");
  return text || "∅";
}

const isolated = (text) => "\u2068" + text + "\u2069";

function shortened(token, most) {
  const characters = Array.from(shown(token));
  return isolated(characters.length > most ? characters.slice(0, most - 1).join("") + "…" : shown(token));
}

function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  return Math.abs(value) >= 1e-3 || value === 0 ? value.toFixed(digits) : value.toExponential(1);
}
const signed = (value) => (value > 0 ? "+" : "") + number(value);
const grouped = (value) => value.toLocaleString("en");

function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties || {});
  made.append(...children);
  return made;
}
const tokenElement = (token) => element("bdi", { textContent: shown(token), dir: "auto", title: shown(token) });

// ---- colours: even steps of lightness from light yellow over green to dark violet (reversed in the dark), in OKLCH:
// told apart without red and green, and in grey. heat.c has the same formula.

const isDark = () => document.documentElement.classList.contains("dark");

function oklch(lightness, chroma, hue) {
  const a = chroma * Math.cos(hue), b = chroma * Math.sin(hue);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s, -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s];
  return linear.map((v) => Math.round(255 * Math.min(1, Math.max(0, v <= 0.0031308 ? 12.92 * v : 1.055 * v ** (1 / 2.4) - 0.055))));
}

let ramp = [];
function makeRamp() {
  ramp = Array.from({ length: 256 }, (_, i) => {
    const u = isDark() ? i / 255 : 1 - i / 255;
    return oklch(0.24 + 0.73 * u, 0.05 + 0.28 * u * (1 - u) + 0.02 * u, (300 - 195 * u) * Math.PI / 180);
  });
}

const scaled = (weight) => state.root ? Math.sqrt(weight) : weight;
const unscaled = (share) => state.root ? share * share : share;
const colour = (weight) => ramp[Math.min(255, Math.round(255 * scaled(weight)))];
const css = (c) => `rgb(${c[0]},${c[1]},${c[2]})`;
const heat = (weight) => css(colour(weight));
const ink = (c) => 0.299 * c[0] + 0.587 * c[1] + 0.114 * c[2] > 140 ? "#111" : "#fff";
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);

// A canvas of that many CSS pixels, cleared, sharp on any screen.
function canvas(id, width, height) {
  const c = $(id), ratio = window.devicePixelRatio || 1;
  c.width = Math.round(width * ratio);
  c.height = Math.round(height * ratio);
  c.style.width = width + "px";
  c.style.height = height + "px";
  const g = c.getContext("2d");
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  return g;
}

const SVG = "http://www.w3.org/2000/svg";
function svgElement(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const name in attributes) made.setAttribute(name, attributes[name]);
  if (text !== undefined) made.textContent = text;
  return made;
}

function drawLegend() {
  const width = 176, g = canvas("legend", width + 24, 30);
  for (let i = 0; i < width; i++) {
    g.fillStyle = heat(unscaled(i / (width - 1)));
    g.fillRect(12 + i, 0, 1, 12);
  }
  g.fillStyle = g.strokeStyle = style("--soft");
  g.font = "11px sans-serif";
  g.textAlign = "center";
  for (const weight of state.root ? [0, 0.05, 0.25, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]) {
    const x = 12 + Math.round(scaled(weight) * (width - 1)) + 0.5;
    g.beginPath();
    g.moveTo(x, 12);
    g.lineTo(x, 16);
    g.stroke();
    g.fillText(String(weight).replace("0.", "."), x, 27);
  }
}

// ---- what is under the pointer, and files

function tip(event, ...parts) {
  const box = $("tip");
  box.style.display = parts.length ? "block" : "none";
  if (!parts.length) return;
  box.replaceChildren(...parts);
  box.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 8)) + "px";
  box.style.top = Math.min(event.clientY + 14, innerHeight - box.offsetHeight - 8) + "px";
}

function save(name, type, text) {
  const link = element("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
const saveSvg = (name, text) => save(name + ".svg", "image/svg+xml", text);

// Names, then rows of cells; text is quoted, and never taken for a formula.
function saveCsv(name, rows) {
  const cell = (v) => typeof v === "string" ? '"' + (/^[=+\-@\t\r]/.test(v) ? "'" : "") + v.replace(/"/g, '""') + '"' : v ?? "";
  save(name + ".csv", "text/csv", [rows[0].join(","), ...rows.slice(1).map((row) => row.map(cell).join(","))].join("\n") + "\n");
}

const escaped = (text) => text.replace(/[&<>"']/g, (c) => "&#" + c.charCodeAt(0) + ";");
function svgFile(width, height, inside) {
  return `<svg xmlns="${SVG}" width="${width}" height="${height}" font-family="sans-serif" font-size="12" fill="${style("--fg").trim()}">` +
    `<rect width="100%" height="100%" fill="${style("--bg").trim()}"/>${inside}</svg>`;
}
