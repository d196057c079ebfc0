"use strict";
(() => {
  const film = JSON.parse(document.getElementById("film").textContent);
  const { frames, marks, groups } = film;
  const at = (id) => document.getElementById(id);
  const MOST_CELLS = 600, MOST_POOL = 1500, MOST_QUEUE = 120, MOST_ROWS = 120, PAGE = 100;

  const make = (tag, { className, text, title, style, ...more } = {}, ...children) => {
    const node = document.createElement(tag);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    if (title) node.title = title;
    if (style) node.style.cssText = style;
    for (const [name, value] of Object.entries(more)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const hue = (request) => `--hue:${Math.round((request * 137.508 + 210) % 360)}`;
  const table = (head, lines, caption) => make("table", {},
    ...(caption ? [make("caption", { className: "hidden", text: caption })] : []),
    make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { text, scope: "col" })))),
    make("tbody", {}, ...lines.map((line) => make("tr", {}, ...line.map((cell, index) =>
      cell instanceof Node ? make("td", {}, cell) : make(index ? "td" : "th", index ? { text: cell } : { text: cell, scope: "row" }))))));

  // ---------------------------------------------------------------------------------------------- state

  /* rows: request -> group -> block ids; queue: the free blocks from the front; touched, freed: by the last step */
  const blank = () => ({ step: -1, rows: new Map(), queue: film.start ? [...film.start] : null, named: new Set(),
    touched: new Map(), freed: new Set() });
  let state = blank();

  const touch = (row, from, count) => {
    for (let column = from; column < from + count; column += 1) row.add(column);
  };

  const changeRows = (changes) => {
    for (const change of changes || []) {
      const [request, group, from, removed, added] = change;
      if (change.length === 1) { state.rows.delete(request); continue; }
      if (!state.rows.has(request)) state.rows.set(request, groups.map(() => []));
      state.rows.get(request)[group].splice(from, removed, ...added);
      const key = `${request}/${group}`;
      if (!state.touched.has(key)) state.touched.set(key, new Set());
      touch(state.touched.get(key), from, added.length);
    }
  };

  const changeQueue = (change) => {
    if (!change || !state.queue) return;
    if (change.all) {
      const before = new Set(state.queue);
      change.all.filter((block) => !before.has(block)).forEach((block) => state.freed.add(block));
      state.queue = [...change.all];
      return;
    }
    if (change.popped) state.queue.splice(0, change.popped);
    if (change.out) { const out = new Set(change.out); state.queue = state.queue.filter((block) => !out.has(block)); }
    if (change.front) state.queue.unshift(...change.front);
    if (change.back) state.queue.push(...change.back);
    for (const block of [...(change.front || []), ...(change.back || [])]) state.freed.add(block);
  };

  const go = (step) => {
    if (step < state.step) state = blank();
    while (state.step < step) {
      state.step += 1;
      state.touched.clear();
      state.freed.clear();
      const frame = frames[state.step];
      changeRows(frame.rows);
      if (film.begun && state.step === 0) state.touched.clear();  // what was held before the film begins
      changeQueue(frame.queue);
      if (frame.named) {
        frame.named[0].forEach((block) => state.named.add(block));
        frame.named[1].forEach((block) => state.named.delete(block));
      }
    }
  };

  const owners = () => {
    const found = new Map();
    for (const [request, held] of state.rows) {
      for (const block of new Set(held.flat())) {
        if (block) { if (!found.has(block)) found.set(block, []); found.get(block).push(request); }
      }
    }
    return found;
  };

  // ------------------------------------------------------------------------------------------ rows, pool

  const cellOf = (block, column, request, group, own, differs) => {
    const size = groups[group].tokens;
    const known = own.get(block) || [];
    const classes = ["cell"], said = [];
    if (block === 0) { classes.push("null"); said.push("null block"); }
    else {
      classes.push("own");
      said.push(`block ${block}`);
      if (known.length > 1) { classes.push("shared"); said.push(`shared by requests ${known.join(", ")}`); }
      if (state.named.has(block)) { classes.push("named"); said.push("cached: it bears a name"); }
    }
    said.push(`column ${column}, tokens ${column * size} to ${(column + 1) * size - 1}`);
    if (differs) { classes.push("differs"); said.push("differs"); }
    return make("span", { className: classes.join(" "), text: block, title: said.join("; "), style: hue(request),
      "data-column": column });
  };

  /* a row as cells; runs of nulls and what is too long are drawn as one */
  const cellsOf = (row, request, group, own, touched, wrong) => {
    const box = make("div", { className: "cells" });
    for (let column = 0; column < row.length; column += 1) {
      let end = column;
      while (end < row.length && row[end] === 0 && !wrong.has(end) && !touched.has(end)) end += 1;
      if (end - column > 4) {
        box.append(make("span", { className: "cell null", text: `0 \u00d7 ${end - column}`,
          title: `${end - column} null columns, from column ${column}` }));
        column = end - 1;
        continue;
      }
      if (box.childElementCount === MOST_CELLS && row.length - column > 40) {
        const skipped = row.length - column - 30;
        box.append(make("span", { className: "cell gap", text: `\u2026 ${skipped} more \u2026` }));
        column += skipped - 1;
        continue;
      }
      const cell = cellOf(row[column], column, request, group, own, wrong.has(column));
      if (touched.has(column)) { cell.classList.add("touched"); cell.title += "; touched by this step"; }
      box.append(cell);
    }
    if (!row.length) box.append(make("span", { className: "dim", text: "no blocks" }));
    for (const column of wrong) {
      if (column >= row.length) {
        box.append(make("span", { className: "cell differs", text: "\u2013", title: `no column ${column}`, "data-column": column }));
      }
    }
    return box;
  };

  const beside = (step) => {
    const found = marks.find((mark) => mark.at === step && mark.beside);
    return found ? found.beside : {};
  };

  const drawRows = (frame, step, picture) => {
    const own = owners();
    const expected = new Map((beside(step).rows || []).map(([request, group, row]) => [`${request}/${group}`, row]));
    const requests = [...new Set([...state.rows.keys(), ...[...expected.keys()].map((key) => Number(key.split("/")[0]))])];
    requests.sort((a, b) => a - b);
    let shown = requests;
    if (requests.length > MOST_ROWS) {
      const kept = new Set([...expected.keys(), ...state.touched.keys()].map((key) => Number(key.split("/")[0])));
      shown = requests.filter((request, index) => kept.has(request) || index < MOST_ROWS);
    }
    picture.append(make("h2", { text: "Rows: what each request holds" }));
    if (!requests.length) picture.append(make("p", { className: "dim", text: "Nobody holds blocks." }));
    for (const request of shown) {
      groups.forEach((group, index) => {
        const key = `${request}/${index}`;
        const row = state.rows.has(request) ? state.rows.get(request)[index] : [];
        const must = expected.get(key);
        const wrong = new Set();
        if (must) for (let c = 0; c < Math.max(row.length, must.length); c += 1) if (row[c] !== must[c]) wrong.add(c);
        const touched = state.touched.get(key) || new Set();
        const label = make("div", { className: "label" });
        if (!index) label.append(make("b", { text: `request ${request}` }), " ");
        label.append(make("span", { className: "dim", text: `${groups.length > 1 ? `${index} ` : ""}${group.kind}` }));
        const asked = frame.request === request || (frame.scheduled || []).some(([name]) => name === request);
        picture.append(make("div", { className: `request${index ? "" : " first"}${asked ? " asked" : ""}`, "data-row": key },
          label, cellsOf(row, request, index, own, touched, wrong)));
        if (must) {
          picture.append(make("div", { className: "request expected", "data-expected": key },
            make("div", { className: "label", text: "\u2003expected" }), cellsOf(must, request, index, own, new Set(), wrong)));
        }
      });
    }
    if (shown.length < requests.length) picture.append(make("p", { className: "dim", text: `${requests.length - shown.length} more requests hold blocks.` }));
    drawPool(own, beside(step).queue, picture);
  };

  const drawPool = (own, expected, picture) => {
    const last = Math.min(film.blocks, MOST_POOL);
    picture.append(make("h2", { text: `Pool: ${film.blocks - 1} blocks` }));
    const strip = make("div", { className: "cells pool" });
    for (let block = 1; block < last; block += 1) {
      const known = own.get(block) || [];
      const classes = ["cell"], said = [`block ${block}`];
      if (known.length) { classes.push("own"); said.push(`request ${known.join(", ")}`); }
      else said.push(state.queue ? "free or held elsewhere" : "no row has it");
      if (known.length > 1) classes.push("shared");
      if (state.named.has(block)) { classes.push("named"); said.push("cached"); }
      if (state.freed.has(block)) { classes.push("freed"); said.push("freed by this step"); }
      strip.append(make("span", { className: classes.join(" "), text: block, title: said.join("; "), style: known.length ? hue(known[0]) : "" }));
    }
    picture.append(strip);
    if (last < film.blocks) picture.append(make("p", { className: "dim", text: `${film.blocks - last} more blocks are not drawn.` }));
    if (!state.queue) return;
    picture.append(make("h2", { text: `Free queue: ${state.queue.length}, the next to be taken first` }));
    const draw = (queue, other) => {
      const box = make("div", { className: "cells pool" });
      const most = other ? Math.min(queue.length, MOST_POOL) : Math.min(queue.length, MOST_QUEUE);
      const there = new Set(other || []);
      const same = other && queue.length === other.length && queue.every((block) => there.has(block));
      for (let place = 0; place < most; place += 1) {
        const block = queue[place];
        const classes = ["cell"];
        if (state.named.has(block)) classes.push("named");
        if (state.freed.has(block)) classes.push("freed");
        if (other && (same ? other[place] !== block : !there.has(block))) classes.push("differs");
        box.append(make("span", { className: classes.join(" "), text: block, title: `block ${block}, place ${place}` }));
      }
      if (most < queue.length) box.append(make("span", { className: "cell gap", text: `\u2026 ${queue.length - most} more` }));
      if (!queue.length) box.append(make("span", { className: "dim", text: "empty" }));
      return box;
    };
    picture.append(draw(state.queue, expected));
    if (expected) picture.append(make("p", { className: "dim", text: "expected" }), draw(expected, state.queue));
  };

  // -------------------------------------------------------------------------------- slots, who is scheduled

  const range = (first, count) => (count === 1 ? `${first}` : `${first}..${first + count - 1}`);

  const drawSlots = (frame, picture) => {
    groups.forEach((group, index) => {
      const parts = frame.parts.filter((part) => part.group === index);
      if (!parts.length) return;
      picture.append(make("h2", { text: `Group ${index}: ${group.kind}, ${group.block} slots a block` }));
      for (const part of parts) {
        const counts = ["expected", "manager"].filter((name) => part[name] !== undefined).map((name) => `${name} ${part[name]}`);
        const held = part.row.filter((block) => block).length;
        const off = ["expected", "manager"].some((name) => part[name] !== undefined && part[name] !== held);
        picture.append(make("p", { className: off ? "none" : "" }, make("b", { text: `request ${part.request}` }),
          ` computed ${part.computed}, scheduled ${part.new}; row [${part.row.join(" ")}]${counts.length ? `; blocks held ${held}, ${counts.join(", ")}` : ""}`));
        for (const [what, runs] of [["scheduled", part.slots], ["draft", part.drafts]]) {
          for (const [slot, count, position] of runs || []) {
            if (slot === null) picture.append(make("p", { className: "none", text: `${count} ${what} position(s) from ${position} on have no block: the null block` }));
          }
        }
      }
      const blocks = [...new Set(parts.flatMap((part) => part.row))].filter((block) => block).sort((a, b) => a - b);
      for (const block of blocks) {
        const bar = make("div", { className: "bar", "data-block": block });
        for (const part of parts) {
          for (const [what, runs] of [["scheduled", part.slots], ["draft", part.drafts]]) {
            for (const [slot, count, position] of runs || []) {
              if (slot === null) continue;
              const from = Math.max(slot, block * group.block), end = Math.min(slot + count, (block + 1) * group.block);
              if (from >= end) continue;
              const left = (100 * (from - block * group.block)) / group.block, width = (100 * (end - from)) / group.block;
              bar.append(make("i", { className: what, text: range(from, end - from), style: `left:${left}%;width:${width}%;${hue(part.request)}`,
                title: `slots ${range(from, end - from)}: request ${part.request}, ${what === "draft" ? "drafts may be written" : "scheduled"}, positions ${range(position + from - slot, end - from)}` }));
            }
          }
        }
        picture.append(make("div", { className: "slot" }, make("span", { className: "mono", text: `block ${block}` }), bar));
      }
    });
  };

  const drawScheduled = (frame, picture) => {
    picture.append(make("h2", { text: "Scheduled" }));
    const { tokens, rows, requests } = film.budget;
    const [left, rowsLeft] = frame.left;
    picture.append(make("p", { text: `${tokens - left} of ${tokens} tokens, ${rows - rowsLeft} of ${rows} rows of the batch, ${frame.scheduled.length} of ${requests} requests` }));
    const bar = make("div", { className: "bar" });
    let from = 0;
    for (const [request, count, drafts] of frame.scheduled) {
      for (const [what, much] of [["scheduled", count - drafts], ["draft", drafts]]) {
        if (much) bar.append(make("i", { className: what, text: `${request}`, title: `request ${request}: ${much} ${what === "draft" ? "drafts" : "tokens"}`,
          style: `left:${(100 * from) / tokens}%;width:${(100 * much) / tokens}%;${hue(request)}` }));
        from += much;
      }
    }
    picture.append(bar);
    if (frame.scheduled.length) picture.append(make("div", { className: "scroll" }, table(["request", "tokens", "drafts", "asked: computed + new + lookahead"], frame.scheduled, "Who is scheduled")));
    for (const text of frame.then) picture.append(make("p", { text }));
  };

  // ----------------------------------------------------------------------------------------------- a step

  const drawTerms = (frame, box) => {
    box.replaceChildren();
    if (!frame.terms || !frame.terms.length) return;
    box.append(make("h2", { text: "Numbers of this step" }));
    const lines = frame.terms.map(([number, what, value, values]) => {
      const formula = film.formulas[number];
      const said = formula.terms.map(([name], index) => `${name} ${values[index]}`).join(", ");
      return [what, `${value}`, formula.name, formula.text, said];
    });
    box.append(make("div", { className: "scroll" }, table(["of", "value", "rule", "formula", "terms"], lines, "Numbers of this step")));
  };

  const drawMarks = (step) => {
    at("marks").replaceChildren(...marks.filter((mark) => mark.at === step).map((mark) => make("section",
      { className: `mark${mark.declared ? " declared" : ""}` },
      make("h2", { text: `${mark.declared ? `Declared difference (${mark.declared})` : "Difference"}: ${mark.title}` }),
      make("dl", { className: "answers" }, make("dt", { text: "expected" }), make("dd", { className: "mono", text: mark.expected }),
        make("dt", { text: "observed" }), make("dd", { className: "mono", text: mark.observed }),
        make("dt", { text: "rule" }), make("dd", { text: mark.rule })),
      ...mark.detail.map((text) => make("p", { className: "mono", text })))));
  };

  const plainLines = (frame) => {
    if (film.kind === "slots") {
      return [["request", "group", "computed", "scheduled", "row"],
        (frame.parts || []).map((part) => [`${part.request}`, `${part.group}`, `${part.computed}`, `${part.new}`, part.row.join(" ")])];
    }
    const lines = [...state.rows.keys()].sort((a, b) => a - b).flatMap((request) =>
      groups.map((group, index) => [`${request}`, `${index} ${group.kind}`, state.rows.get(request)[index].join(" ") || "no blocks"]));
    if (state.queue) lines.push(["free queue", "", state.queue.join(" ") || "empty"]);
    return [["request", "group", "blocks in order, 0 is null"], lines];
  };

  const drawSteps = () => {
    if (!at("steps").open) return;
    const first = Math.floor(state.step / PAGE) * PAGE;
    const lines = frames.slice(first, first + PAGE).map((frame, index) => {
      const link = make("a", { href: `#step=${first + index}`, text: first + index });
      if (first + index === state.step) link.setAttribute("aria-current", "step");
      const bad = marks.some((mark) => mark.at === first + index);
      return [link, frame.words || "", frame.expected || "", frame.observed || "", frame.free || "", bad ? "differs" : ""];
    });
    at("steps").querySelector("div").replaceChildren(
      make("p", { className: "dim", text: `Steps ${first} to ${first + lines.length - 1} of ${frames.length}; more come as the film goes on.` }),
      table(["step", "operation", "expected", "observed", "free", ""], lines, "Steps"));
  };

  const show = (step) => {
    if (!frames.length) { at("words").textContent = "No operation was run."; drawMarks(0); return; }
    step = Math.min(Math.max(step, 0), frames.length - 1);
    go(step);
    const frame = frames[step];
    slider.value = step;
    slider.setAttribute("aria-valuetext", `step ${step}: ${frame.words || ""}`);
    at("where").textContent = `step ${step} of ${frames.length - 1}`;
    at("words").textContent = frame.words || "";
    const answers = [["expected", frame.expected], ["observed", frame.observed], ["free blocks", frame.free]];
    at("answers").replaceChildren(...answers.filter(([, text]) => text).flatMap(([name, text]) => [make("dt", { text: name }), make("dd", { text })]));
    drawMarks(step);
    const picture = at("picture");
    picture.replaceChildren();
    if (frame.scheduled) drawScheduled(frame, picture);
    if (frame.table) picture.append(make("div", { className: "scroll" }, table(frame.table.head, frame.table.lines, "Draft step")));
    if (frame.parts) drawSlots(frame, picture);
    if (film.kind === "rows") drawRows(frame, step, picture);
    drawTerms(frame, at("terms"));
    if (at("plain").open) at("plain").querySelector("div").replaceChildren(table(...plainLines(frame), "This step"));
    drawSteps();
    at("first").disabled = at("back").disabled = step === 0;
    at("last").disabled = at("on").disabled = step === frames.length - 1;
  };

  // ------------------------------------------------------------------------------------------------ moving

  const slider = at("slider");
  let timer = 0;
  const stop = () => { clearInterval(timer); timer = 0; at("play").textContent = "Play"; at("now").setAttribute("aria-live", "polite"); };
  const play = () => {
    if (timer) { stop(); return; }
    if (state.step >= frames.length - 1) show(0);
    at("play").textContent = "Stop";
    at("now").setAttribute("aria-live", "off");
    timer = setInterval(() => { if (state.step >= frames.length - 1) stop(); else show(state.step + 1); }, 1000 / Number(at("speed").value));
  };
  const nextDifference = () => {
    const steps = [...new Set(marks.map((mark) => mark.at))].sort((a, b) => a - b);
    if (steps.length) show(steps.find((step) => step > state.step) ?? steps[0]);
  };
  const step = (by) => { stop(); show(state.step + by); };

  slider.max = Math.max(frames.length - 1, 0);
  slider.addEventListener("input", () => { stop(); show(Number(slider.value)); });
  at("first").addEventListener("click", () => step(-frames.length));
  at("back").addEventListener("click", () => step(-1));
  at("on").addEventListener("click", () => step(1));
  at("last").addEventListener("click", () => step(frames.length));
  at("play").addEventListener("click", play);
  at("differ").addEventListener("click", () => { stop(); nextDifference(); });
  at("differ").disabled = !marks.length;
  at("speed").addEventListener("change", () => { if (timer) { stop(); play(); } });
  for (const id of ["plain", "steps"]) at(id).addEventListener("toggle", () => show(state.step));
  const keys = { ArrowLeft: () => step(-1), ArrowRight: () => step(1), PageUp: () => step(-10), PageDown: () => step(10),
    Home: () => step(-frames.length), End: () => step(frames.length), d: () => { stop(); nextDifference(); } };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("select")) return;
    const space = event.key === " " && !event.target.matches("button, summary, a");
    const act = space ? play : keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  for (const mark of marks) {
    at("ticks").append(make("i", { className: mark.declared ? "declared" : "", style: `left:${(100 * mark.at) / Math.max(frames.length - 1, 1)}%` }));
  }
  const fromHash = () => { const found = /^#step=(\d+)$/.exec(location.hash); return found ? Number(found[1]) : null; };
  window.addEventListener("hashchange", () => { const wanted = fromHash(); if (wanted !== null) show(wanted); });

  const legend = [["own", "5", "held; the colour is the request"], ["null", "0", "null: nobody reads this column"], ["own shared", "5", "shared by several requests"],
    ["own named", "5", "cached: a lookup can find it"], ["own touched", "5", "touched by this step"], ["freed", "5", "freed by this step"], ["own differs", "5", "differs from what is expected"]];
  const slots = [["own", "", "scheduled positions"], ["drafted", "", "where drafts may be written"]];
  at("legend").append(...(film.kind === "slots" ? slots : legend).map(([name, sample, text]) =>
    make("span", {}, make("i", { className: `cell ${name}`, text: sample, style: hue(0) }), text)));
  const firstBad = marks.filter((mark) => !mark.declared).concat(marks)[0];
  show(fromHash() ?? (firstBad ? firstBad.at : 0));
})();
