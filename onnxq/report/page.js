'use strict';
(function () {
  var data = JSON.parse(document.getElementById('data').textContent);
  var list = document.getElementById('rows');
  if (!list) return;
  var rows = Array.prototype.slice.call(list.children);
  var filter = document.getElementById('filter');
  var count = document.getElementById('count');
  var detail = document.getElementById('detail');
  var others = document.getElementById('choices');
  var labels = ['Shape', 'Stored as', 'Size', 'Error', 'Largest error', 'Worst block'];
  var selected = 0;

  // el makes an element. Text is set as text: names come from models.
  function el(parent, tag, attributes, text) {
    var svg = /^(svg|rect|line|circle|text|title|g)$/.test(tag);
    var e = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
    for (var k in attributes) e.setAttribute(k, attributes[k]);
    if (text !== undefined) e.textContent = text;
    parent.appendChild(e);
    return e;
  }

  function number(x) { return String(+x.toPrecision(3)); }
  function percent(x) {
    var p = 100 * x;
    return (p === 0 ? '0' : p >= 99.95 ? p.toFixed(0) : p >= 9.995 ? p.toFixed(1) : p >= 0.9995 ? p.toFixed(2) : p >= 0.001 ? p.toFixed(3) : p.toExponential(1)) + ' %';
  }
  function bytes(n) {
    var units = ['KiB', 'MiB', 'GiB', 'TiB'], i = -1;
    if (n < 1024) return n + ' B';
    for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
    return (n < 999.5 ? n.toPrecision(3) : n.toFixed(0)) + ' ' + units[i];
  }

  function heading(text, right) {
    var h = el(detail, 'h4');
    el(h, 'span', {}, text);
    if (right) el(h, 'span', {}, right);
  }

  function histogram(h) {
    var W = 480, H = 170, base = 150, top = 6;
    var grid = h.grid < 0 ? [] : data.grids[h.grid];
    heading(grid.length ? 'Values in units of the codes, and the codes' : 'Values', h.beyond > 0 ? percent(h.beyond) + ' beyond the codes' : '');
    var svg = el(detail, 'svg', {viewBox: '0 0 ' + W + ' ' + H, role: 'img', 'aria-label': 'Histogram of the values' + (grid.length ? ' with ' + grid.length + ' codes' : '')});
    function x(v) { return (v - h.from) / (h.to - h.from) * W; }
    var width = W / h.bins.length;
    h.bins.forEach(function (n, i) {
      if (n) el(svg, 'rect', {class: 'bins', x: (i * width).toFixed(1), width: Math.max(width - 0.6, 0.6).toFixed(1), y: (base - n / 1000 * (base - top)).toFixed(1), height: (n / 1000 * (base - top)).toFixed(1)});
    });
    grid.forEach(function (v, i) {
      var at = x(v).toFixed(1);
      el(svg, 'line', {class: 'code', x1: at, x2: at, y1: base, y2: base + 5, 'stroke-width': grid.length > 64 ? 0.5 : 1});
      if (!h.counts) return;
      var y = (base - h.counts[i] / 1000 * (base - top)).toFixed(1);
      el(svg, 'line', {class: 'stem', x1: at, x2: at, y1: base, y2: y});
      el(svg, 'circle', {class: 'knob', cx: at, cy: y, r: 2.5});
    });
    el(svg, 'line', {class: 'axis', x1: 0, x2: W, y1: base, y2: base});
    var ticks = grid.length ? (grid.length <= 17 ? grid : [grid[0], grid[grid.length - 1], 0]) : [h.from, h.to];
    var free = 0; // where the last text ends
    ticks.slice().sort(function (a, b) { return a - b; }).forEach(function (v) {
      var text = number(v), half = 3.5 * text.length, at = Math.min(Math.max(x(v), half), W - half);
      if (at - half < free) return;
      free = at + half + 4;
      el(svg, 'text', {class: 'tick', x: at.toFixed(1), y: H - 3, 'text-anchor': 'middle'}, text);
    });
    el(detail, 'p', {class: 'small'}, !grid.length ? 'Bars: values of the weight. No single scale turns its codes into values.' : 'Bars: values of the weight, each divided by the scale of its block. ' + (h.counts ? 'Pins: the codes, as high as they are often used.' : 'Ticks below: the codes.'));
  }

  function strip(title, s) {
    if (!s) return;
    heading(title, percent(s.least) + ' to ' + percent(s.most));
    var W = 480, H = 26, n = s.parts.length, width = W / n;
    var svg = el(detail, 'svg', {viewBox: '0 0 ' + W + ' ' + H, role: 'img', 'aria-label': title + ': from ' + percent(s.least) + ' to ' + percent(s.most)});
    s.parts.forEach(function (v, i) {
      var high = Math.max(v / 1000 * H, 0.5);
      var cell = el(svg, 'rect', {class: 'cell', x: (i * width).toFixed(2), width: (width + 0.05).toFixed(2), y: (H - high).toFixed(1), height: high.toFixed(1), 'fill-opacity': (0.15 + 0.85 * Math.pow(v / 1000, 3)).toFixed(2)});
      el(cell, 'title', {}, percent(s.most * v / 1000));
    });
    el(svg, 'line', {class: 'axis', x1: 0, x2: W, y1: H, y2: H});
  }

  function choices(name, list) {
    others.textContent = '';
    if (!list) return;
    el(others, 'h4', {}, name + ' in other formats');
    var table = el(others, 'table'), head = el(el(table, 'thead'), 'tr'), body = el(table, 'tbody');
    el(head, 'th', {scope: 'col'}, 'Format');
    el(head, 'th', {scope: 'col', class: 'n'}, 'Size');
    el(head, 'th', {scope: 'col', class: 'n'}, 'Error');
    list.slice().sort(function (a, b) { return a[1] - b[1]; }).forEach(function (c) {
      var row = el(body, 'tr');
      el(row, 'th', {scope: 'row'}, data.formats[c[0]]);
      el(row, 'td', {class: 'n'}, bytes(c[1]));
      el(row, 'td', {class: 'n'}, percent(c[2]));
    });
  }

  function show(i) {
    rows[selected].setAttribute('aria-selected', 'false');
    selected = i;
    rows[i].setAttribute('aria-selected', 'true');
    list.setAttribute('aria-activedescendant', rows[i].id);
    var w = data.weights[i];
    detail.textContent = '';
    el(detail, 'h3', {}, rows[i].firstElementChild.title);
    var facts = el(detail, 'dl');
    w.facts.forEach(function (text, k) {
      if (!text) return;
      el(facts, 'dt', {}, labels[k]);
      el(facts, 'dd', {}, text);
    });
    if (w.hist) histogram(w.hist);
    strip('Error by channel', w.channels);
    strip('Error along each channel', w.positions);
    choices(rows[i].firstElementChild.title, w.choices);
  }

  function shown() { return rows.filter(function (r) { return !r.hidden; }); }

  function move(by, all) {
    var visible = shown();
    if (!visible.length) return;
    var at = visible.indexOf(rows[selected]);
    at = all ? (by < 0 ? 0 : visible.length - 1) : Math.min(Math.max(at + by, 0), visible.length - 1);
    show(rows.indexOf(visible[at]));
    visible[at].scrollIntoView({block: 'nearest'});
  }

  list.addEventListener('click', function (e) {
    var row = e.target.closest('li');
    if (row) show(rows.indexOf(row));
  });

  function arrows(e) {
    var step = {ArrowDown: 1, ArrowUp: -1, PageDown: 12, PageUp: -12}[e.key];
    if (step) move(step);
    else if (e.target === list && (e.key === 'Home' || e.key === 'End')) move(e.key === 'Home' ? -1 : 1, true);
    else return;
    e.preventDefault();
  }
  list.addEventListener('keydown', arrows);
  filter.addEventListener('keydown', function (e) {
    if (e.key === 'Escape') { filter.value = ''; apply(); } else arrows(e);
  });
  document.addEventListener('keydown', function (e) {
    if (e.key === '/' && e.target !== filter) { e.preventDefault(); filter.focus(); }
  });

  // apply hides the weights that do not have all the words of the filter.
  function apply() {
    var words = filter.value.toLowerCase().split(/\s+/);
    rows.forEach(function (r) {
      var text = (r.children[0].title + ' ' + r.children[1].textContent).toLowerCase();
      r.hidden = !words.every(function (word) { return text.indexOf(word) >= 0; });
    });
    var visible = shown();
    count.textContent = visible.length + ' of ' + rows.length;
    if (visible.length && rows[selected].hidden) show(rows.indexOf(visible[0]));
  }
  filter.addEventListener('input', apply);

  show(0);
})();
(function () {
  var button = document.getElementById('copy');
  if (!button) return;
  button.addEventListener('click', function () {
    var pre = document.getElementById('precision'), said = document.getElementById('copied');
    getSelection().selectAllChildren(pre);
    said.textContent = document.execCommand('copy') ? 'copied' : 'selected; press Ctrl+C';
  });
})();
