"use strict";
// Every few seconds: the page again for its words, and the history for its charts.
(() => {
  const every = 5000, span = 15 * 60 * 1000, limit = 10000;
  const served = new Map(); // what the server last said, by the element's id
  let samples = [], now = Date.now(), answered = Date.now();

  document.documentElement.classList.add("js");

  const local = (root) => {
    for (const t of root.querySelectorAll("time")) {
      const at = new Date(t.dateTime), today = at.toDateString() === new Date().toDateString();
      t.textContent = at.toLocaleString([], { hourCycle: "h23", ...(today ? { timeStyle: "medium" } : { dateStyle: "medium", timeStyle: "short" }) });
    }
  };

  const clock = (at) => new Date(at).toLocaleTimeString([], { hourCycle: "h23" });

  const words = (count, unit) => {
    if (unit === "seconds") {
      if (count === 0) return "0 s";
      if (count < 1) return (count * 1000).toFixed(count < 0.01 ? 1 : 0) + " ms";
      if (count < 120) return count.toFixed(count < 10 ? 1 : 0) + " s";
      if (count < 7200) return Math.floor(count / 60) + " m" + (count % 60 < 1 ? "" : " " + Math.floor(count % 60) + " s");
      return (count / 3600).toFixed(1) + " h";
    }
    return count > 0 && count < 10 && count % 1 ? count.toFixed(1) : Math.round(count).toLocaleString("en").replaceAll(",", "\u202f");
  };

  // The smallest round number that is not below n.
  const roundUp = (n, unit) => {
    if (n <= 0) return unit === "seconds" ? 0.01 : 10;
    if (unit === "seconds" && n > 50) return [60, 120, 300, 600, 1200, 3600, 7200].find((m) => m >= n) ?? Math.ceil(n / 18000) * 18000;
    const power = 10 ** Math.floor(Math.log10(n));
    return [1, 2, 5, 10].map((m) => m * power).find((m) => m >= n);
  };

  const make = (name, attributes, parent, text) => {
    const e = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
    if (text !== undefined) e.textContent = text;
    if (parent) parent.append(e);
    return e;
  };

  const draw = (plot) => {
    const keys = plot.dataset.series.split(" "), unit = plot.dataset.unit;
    const width = plot.clientWidth, height = plot.clientHeight, top = 8, bottom = 18;
    if (!width) return;
    const known = samples.flatMap((s) => keys.map((k) => s[k])).filter((v) => v !== null);
    const high = roundUp(Math.max(0, ...known), unit);
    const x = (at) => width * (1 - (now - at) / span), y = (v) => top + (height - top - bottom) * (1 - v / high);
    const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });

    let away = null; // where it waited for something, from the first such sample to the next good one
    for (const [i, s] of samples.entries()) {
      if (s.paused && away === null) away = s.at;
      if (away !== null && (!s.paused || i === samples.length - 1)) {
        make("rect", { x: x(away), y: top, width: Math.max(1, x(s.at) - x(away)), height: height - top - bottom, class: "away" }, svg);
        away = null;
      }
    }
    for (const v of [0, high / 2, high]) make("line", { x1: 0, x2: width, y1: y(v), y2: y(v), class: "grid" }, svg);

    for (const [i, key] of keys.entries()) {
      let run = [];
      const flush = () => {
        if (run.length === 1) make("circle", { cx: run[0][0], cy: run[0][1], r: 1.5, class: "dot" }, svg);
        if (run.length > 1) {
          const path = run.map((p) => p.map((n) => n.toFixed(1)).join(" ")).join("L");
          if (i === 0) make("path", { d: `M${run[0][0].toFixed(1)} ${y(0)}L${path}L${run.at(-1)[0].toFixed(1)} ${y(0)}z`, class: "area" }, svg);
          make("path", { d: "M" + path, class: i === 0 ? "line" : "thin" }, svg);
        }
        run = [];
      };
      for (const s of samples) {
        if (s[key] === null) flush();
        else run.push([x(s.at), y(s[key])]);
      }
      flush();
    }
    make("text", { x: 2, y: y(high) + 12 }, svg, words(high, unit));
    make("text", { x: 0, y: height - 3 }, svg, "15 min ago");
    make("text", { x: width, y: height - 3, "text-anchor": "end" }, svg, "now");
    if (!known.length) make("text", { x: width / 2, y: (top + height - bottom) / 2 + 4, "text-anchor": "middle" }, svg, "not known");
    const most = known.length ? "highest " + words(Math.max(...known), unit) : "not known";
    plot.setAttribute("aria-label", document.getElementById(plot.getAttribute("aria-labelledby"))?.textContent + ", the last 15 minutes: " + most);
    plot.replaceChildren(svg);

    plot.onpointermove = (event) => {
      const at = now - span * (1 - (event.clientX - plot.getBoundingClientRect().left) / width);
      const near = samples.reduce((a, b) => (Math.abs(b.at - at) < Math.abs(a.at - at) ? b : a), samples[0]);
      svg.querySelector(".hover")?.remove();
      if (!near || Math.abs(near.at - at) > 30000) return;
      const g = make("g", { class: "hover" }, svg), left = x(near.at), right = left > width / 2;
      const said = keys.map((k) => (near[k] === null ? "not known" : words(near[k], unit))).join(" / ");
      make("line", { x1: left, x2: left, y1: top, y2: height - bottom, class: "cursor" }, g);
      make("text", { x: left + (right ? -6 : 6), y: top + 26, class: "said", "text-anchor": right ? "end" : "start" }, g, said);
      make("text", { x: left + (right ? -6 : 6), y: top + 41, class: "said", "text-anchor": right ? "end" : "start" }, g,
        clock(near.at));
    };
    plot.onpointerleave = () => svg.querySelector(".hover")?.remove();
  };
  const drawAll = () => samples.length && document.querySelectorAll(".plot").forEach(draw);

  const replace = (html) => {
    const next = new DOMParser().parseFromString(html, "text/html");
    for (const element of next.querySelectorAll("[data-live]")) {
      const here = document.getElementById(element.id), text = element.outerHTML;
      if (!here || served.get(element.id) === text) continue;
      served.set(element.id, text);
      local(element);
      // The headline is a live region: it stays as long as it says the same.
      const spoken = here.querySelector("h1"), coming = element.querySelector("h1");
      if (spoken && coming && spoken.innerHTML === coming.innerHTML) coming.replaceWith(spoken);
      here.className = element.className;
      here.replaceChildren(...element.childNodes);
    }
    document.title = next.title;
  };

  const get = async (path) => {
    const answer = await fetch(path, { signal: AbortSignal.timeout(limit), cache: "no-store" });
    if (!answer.ok) throw new Error(answer.statusText);
    return answer;
  };

  const refresh = async () => {
    try {
      const [html, history] = await Promise.all([get("").then((a) => a.text()), get("status/history").then((a) => a.json())]);
      samples = history.samples.map((s) => ({ ...s, at: Date.parse(s.at) }));
      now = Date.parse(history.at);
      answered = Date.now();
      replace(html);
      drawAll();
      stale(false);
    } catch {
      stale(true);
    }
  };

  const stale = (is) => {
    const note = document.getElementById("stale");
    document.documentElement.classList.toggle("stale", is);
    if (is && note.hidden) {
      note.textContent = "This relay has not answered since " + clock(answered) + ". What you see is old.";
    }
    note.hidden = !is;
  };

  const turn = async () => {
    if (document.visibilityState === "visible") await refresh();
    setTimeout(turn, every);
  };

  local(document);
  new ResizeObserver(drawAll).observe(document.querySelector(".figures"));
  document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && refresh());
  turn();
})();
