"use strict";
// data.js - the inspection: its JSON, and the packed arrays (see inspect_page.c), read when a view needs them.

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const FOCUS = 3; // the number of the map that holds every row of one head

// The bytes of a block; null where the page has none. Its text goes, so that memory holds it once.
function takeBlock(id) {
  const element = $(id);
  if (!element) return null;
  const text = atob(element.textContent), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  element.remove();
  return bytes;
}

class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer);
    this.at = 0;
  }
  number() { // LEB128
    let value = 0, shift = 1, byte;
    do {
      byte = this.bytes[this.at++];
      value += (byte & 127) * shift;
      shift *= 128;
    } while (byte > 127);
    return value;
  }
  byte() { return this.bytes[this.at++]; }
  signed() { return this.view.getInt8(this.at++); }
  word() { this.at += 2; return this.view.getUint16(this.at - 2, true); }
  f32() { this.at += 4; return this.view.getFloat32(this.at - 4, true); }
}

const halvings = Float32Array.from({ length: 256 }, (_, code) => 2 ** (-code / 24));

// The attention of one stack.
class HeadMap {
  constructor(id, fields) {
    Object.assign(this, fields);
    this.id = id;
    this.causal = !this.encoder && !this.attention;
    this.layers = new Array(this.n_layers).fill(null);
    const gaps = takeBlock("q" + id);
    if (!gaps) return;
    const reader = new Reader(gaps);
    this.queries = new Int32Array(this.n_rows);
    for (let r = 0, next = 0; r < this.n_rows; r++) next = (this.queries[r] = next + reader.number()) + 1;
  }

  queryOf(row) { return this.queries ? this.queries[row] : row; }

  rowOf(query) { // -1: not kept
    if (!this.queries) return query;
    let low = 0, high = this.n_rows - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.queries[middle] < query) low = middle + 1; else high = middle;
    }
    return this.queries[low] === query ? low : -1;
  }

  // { starts, keys, weights } of a layer's heads, row after row
  rows(layer) {
    if (this.layers[layer]) return this.layers[layer];
    const bytes = takeBlock(`r${this.id}.${layer}`), reader = new Reader(bytes);
    const n = this.n_heads * this.n_rows, starts = new Uint32Array(n + 1);
    const keys = new Uint32Array(bytes.length), weights = new Float32Array(bytes.length);
    let kept = 0;
    for (let row = 0; row < n; row++) {
      const head = reader.number(); // see put_row in inspect_page.c
      let count = head % 8, key = Math.floor(head / 8);
      if (count === 7) count += reader.number();
      for (let i = 0; i < count; i++) {
        if (i > 0) key += reader.number();
        keys[kept] = key++;
        weights[kept++] = this.exact ? reader.word() / 65535 : halvings[reader.byte()];
      }
      starts[row + 1] = kept;
    }
    this.layers[layer] = { starts, keys: keys.slice(0, kept), weights: weights.slice(0, kept) };
    return this.layers[layer];
  }

  // What the position asked for reads: complete for short texts.
  atRow(layer, head) {
    if (this.atRows === undefined) {
      const bytes = takeBlock("a" + this.id), reader = bytes && new Reader(bytes);
      this.atRows = reader && Array.from({ length: this.n_layers * this.n_heads }, () => {
        const size = reader.f32(), direct = reader.f32(), n = reader.number(), keys = new Uint32Array(n);
        const weights = new Float32Array(n), sizes = new Float32Array(n), directs = new Float32Array(n);
        for (let i = 0, next = 0; i < n; i++) {
          keys[i] = next + reader.number();
          next = keys[i] + 1;
          weights[i] = reader.word() / 65535;
          sizes[i] = reader.byte() * size / 255;
          directs[i] = reader.signed() * direct / 127;
        }
        return { keys, weights, sizes, directs: direct ? directs : null };
      });
    }
    return this.atRows && this.atRows[layer * this.n_heads + head];
  }

  // Of a key: [size of its value through W_O, its direct effect per weight, or null]; null: unknown.
  value(layer, head, key) {
    if (this.sizeBytes === undefined) this.sizeBytes = takeBlock("n" + this.id);
    if (this.sizeBytes) {
      const heads = this.n_layers * this.n_heads, each = this.sizeBytes.length / heads, directs = each > 8 + this.n_keys;
      const at = (layer * this.n_heads + head) * each, view = new DataView(this.sizeBytes.buffer);
      const direct = view.getFloat32(at + 4, true);
      return [view.getFloat32(at, true) * this.sizeBytes[at + 8 + key] / 255,
        directs && direct ? direct * view.getInt8(at + 8 + this.n_keys + key) / 127 : null];
    }
    const row = this.atRow(layer, head), i = row ? row.keys.indexOf(key) : -1;
    return i < 0 ? null : [row.sizes[i], row.directs ? row.directs[i] : null];
  }

  thumbs() { // thumb x thumb numbers for each head, 255 times the root of the weight
    if (!this.thumbBytes) this.thumbBytes = takeBlock("t" + this.id);
    return this.thumbBytes;
  }
}

const maps = data.maps.map((fields, id) => new HeadMap(id, fields));
const focus = data.focus && new HeadMap(FOCUS, data.focus);
const mainMap = maps[maps.length > 1 ? 1 : 0]; // the decoder's own attention where there are three

// The rows of one head: f(row index) must not be asked for more than `n`.
function headRows(map, layer, head) {
  const own = focus && map === mainMap && layer === data.focus.layer && head === data.focus.head;
  const from = own ? focus : map, rows = own ? focus.rows(0) : map.rows(layer);
  return { map: from, rows, first: own ? 0 : head * from.n_rows };
}

// What a position reads in a head: { keys, weights }, ascending keys; null: its row was not kept.
function readRow(map, layer, head, query) {
  if (query === data.at && (map !== maps[0] || maps.length === 1) && map.atRow(layer, head)) return map.atRow(layer, head);
  const { map: from, rows, first } = headRows(map, layer, head), row = from.rowOf(query);
  if (row < 0) return null;
  const begin = rows.starts[first + row], end = rows.starts[first + row + 1];
  return { keys: rows.keys.subarray(begin, end), weights: rows.weights.subarray(begin, end) };
}

function weightOf(map, layer, head, query, key) { // null: the row was not kept; 0: below what is kept
  const row = readRow(map, layer, head, query), i = row ? row.keys.indexOf(key) : -1;
  return row ? i < 0 ? 0 : row.weights[i] : null;
}

// Every kept weight of a head: each(query, key, weight), for queries between low and high.
function eachWeight(map, layer, head, low, high, each) {
  const { map: from, rows, first } = headRows(map, layer, head);
  for (let r = 0; r < from.n_rows; r++) {
    const query = from.queryOf(r);
    if (query < low || query > high) continue;
    if (query === data.at) {
      const row = readRow(map, layer, head, query);
      for (let i = 0; i < row.keys.length; i++) each(query, row.keys[i], row.weights[i]);
      continue;
    }
    for (let i = rows.starts[first + r]; i < rows.starts[first + r + 1]; i++) each(query, rows.keys[i], rows.weights[i]);
  }
}

// Who reads a key in a head: [query, weight], the largest first.
function readersOf(map, layer, head, key) {
  const found = [];
  eachWeight(map, layer, head, 0, map.n_queries, (query, k, weight) => { if (k === key) found.push([query, weight]); });
  return found.sort((a, b) => b[1] - a[1]);
}

// Layers that no view has asked for yet are read while nothing happens; done() is called at the end.
function readAhead(map, done) {
  const layer = map.layers.indexOf(null);
  if (layer < 0) return done();
  map.rows(layer);
  setTimeout(() => readAhead(map, done), 0);
}
