"use strict";
// Lists and shows the debates. Rows are drawn when they scroll into view; texts are inserted as text, never as markup.
(() => {
  const page = JSON.parse(document.getElementById("data").textContent);
  const { judges, aspects, items } = page.debates;
  const texts = page.texts;
  const form = document.querySelector(".filters");
  if (!form || !items.length) return;

  const ROW = 60;
  const SHORT = 4000;
  const scale = new Map(aspects.map((aspect) => [aspect.name, aspect]));
  const browser = document.querySelector(".browser");
  const list = document.querySelector(".list");
  const space = document.querySelector(".space");
  const article = document.querySelector(".debate");
  const countLine = document.querySelector(".count");
  let currentJudge = 0;
  let matches = [];
  let current = -1;
  let disagreements = [];

  const make = (name, className, text) => {
    const element = document.createElement(name);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const makeBidi = (name, className, text) => {
    const element = make(name, className, text);
    element.dir = "auto";
    return element;
  };
  const number = (value) => (value === null ? "–" : String(Math.round(value * 100) / 100));
  const signed = (value) => (value > 0 ? "+" : value < 0 ? "−" : "±") + number(Math.abs(value));
  const mean = (item) => (item.ratings.length ? item.ratings.reduce((a, b) => a + b, 0) / item.ratings.length : null);
  const means = items.map(mean);

  // --- disagreement ---

  function ranks(values) {
    const known = values.filter((value) => value !== null).sort((a, b) => a - b);
    const last = Math.max(1, known.length - 1);
    const first = new Map();
    const end = new Map();
    known.forEach((value, rank) => { if (!first.has(value)) first.set(value, rank); end.set(value, rank); });
    return values.map((value) => (value === null ? null : (first.get(value) + end.get(value)) / 2 / last));
  }

  function measureDisagreements() {
    const scores = items.map((item) => item.outcomes[currentJudge].score);
    disagreements = items.map((item, i) => {
      if (scores[i] === null || means[i] === null) return null;
      const { low, high } = scale.get(item.aspect);
      return (scores[i] - means[i]) / (high - low);
    });
    if (judges[currentJudge].on_scale) return;
    for (const aspect of aspects) {
      const scored = items.map((_, i) => i).filter((i) => items[i].aspect === aspect.name && disagreements[i] !== null);
      const scoreRanks = ranks(scored.map((i) => scores[i]));
      const ratingRanks = ranks(scored.map((i) => means[i]));
      scored.forEach((i, n) => { disagreements[i] = scoreRanks[n] - ratingRanks[n]; });
    }
  }

  // --- filters ---

  const fields = {};
  function choice(name, label, options) {
    const field = make("select");
    field.name = name;
    for (const [value, text] of options) {
      const option = make("option", "", text);
      option.value = value;
      field.append(option);
    }
    add(name, label, field);
  }
  function add(name, label, field) {
    const box = make("label", name, label);
    box.append(field);
    form.append(box);
    fields[name] = field;
    field.addEventListener("change", onFilterChange);
    if (name === "search") field.addEventListener("input", onFilterChange);
  }

  const distinct = (values) => [...new Set(values)].sort((a, b) => (a > b ? 1 : a < b ? -1 : 0));
  function stopOptions() {
    const reasons = distinct(items.filter((i) => i.outcomes[currentJudge].score === null).map((i) => i.outcomes[currentJudge].stop));
    const stops = distinct(items.filter((i) => i.outcomes[currentJudge].score !== null).map((i) => i.outcomes[currentJudge].stop));
    return [
      ["", "all"],
      ...stops.filter(Boolean).map((stop) => ["stop:" + stop, stop]),
      ...(reasons.length > 1 ? [["none", "unscored"]] : []),
      ...reasons.map((reason) => ["none:" + reason, "unscored: " + reason]),
    ];
  }

  if (judges.length > 1) choice("judge", "judge", judges.map((entry, i) => [String(i), entry.name]));
  choice("aspect", "aspect", [["", "all"], ...aspects.map((aspect) => [aspect.name, aspect.name])]);
  choice("rounds", "rounds", [["", "all"]]);
  choice("state", "ended by", [["", "all"]]);
  choice("order", "order", [
    ["gap", "largest disagreement"],
    ["high", "score above the raters"],
    ["low", "score below the raters"],
    ["worse", "moved away from the raters"],
    ["better", "moved towards the raters"],
    ["calls", "most LM calls"],
    ["file", "as in the data"],
  ]);
  const search = make("input");
  search.type = "search";
  search.placeholder = texts ? "in texts and names" : "in names";
  add("search", "search", search);

  function refill(name, options) {
    const field = fields[name];
    const before = field.value;
    field.replaceChildren(...options.map(([value, text]) => {
      const option = make("option", "", text);
      option.value = value;
      return option;
    }));
    field.value = options.some(([value]) => value === before) ? before : "";
  }

  // By how much the final score is nearer to the mean rating than the first score; null where one of them is missing.
  function moved(i) {
    const { score, path } = items[i].outcomes[currentJudge];
    const first = path.find((step) => step.score !== null);
    if (!first || score === null || means[i] === null || !judges[currentJudge].on_scale) return null;
    return Math.abs(first.score - means[i]) - Math.abs(score - means[i]);
  }

  const keys = {
    gap: (i) => (disagreements[i] === null ? null : Math.abs(disagreements[i])),
    high: (i) => disagreements[i],
    low: (i) => (disagreements[i] === null ? null : -disagreements[i]),
    worse: (i) => { const change = moved(i); return change === null ? null : -change; },
    better: moved,
    calls: (i) => items[i].outcomes[currentJudge].calls,
    file: (i) => -i,
  };

  function inTexts(i, wanted, sources) {
    const item = items[i];
    if ([item.group, item.candidate].some((text) => text.toLowerCase().includes(wanted))) return true;
    if (!texts) return false;
    if (!sources.has(item.group)) {
      sources.set(item.group, texts.sources[item.group].some((text) => text.toLowerCase().includes(wanted)));
    }
    if (sources.get(item.group)) return true;
    const { comments, turns } = texts.items[i];
    return [texts.candidates[item.group][item.candidate], ...comments, ...turns.flat()]
      .some((text) => text.toLowerCase().includes(wanted));
  }

  function apply() {
    const wanted = search.value.trim().toLowerCase();
    const sources = new Map();
    const { aspect, rounds, state, order } = fields;
    const key = keys[order.value];
    const keep = (i) => {
      const item = items[i];
      const outcome = item.outcomes[currentJudge];
      if (aspect.value && item.aspect !== aspect.value) return false;
      if (rounds.value && String(outcome.rounds) !== rounds.value) return false;
      if (state.value) {
        const [kind, ...rest] = state.value.split(":");
        if ((kind === "none") !== (outcome.score === null)) return false;
        if (rest.length && outcome.stop !== rest.join(":")) return false;
      }
      return !wanted || inTexts(i, wanted, sources);
    };
    const sorted = items.map((_, i) => i).filter(keep).map((i) => [i, key(i)]);
    sorted.sort((a, b) => {
      if (a[1] === null || b[1] === null) return (a[1] === null) - (b[1] === null) || a[0] - b[0];
      return b[1] - a[1] || a[0] - b[0];
    });
    matches = sorted.map(([i]) => i);
    countLine.textContent = matches.length.toLocaleString("en") + " of " + items.length.toLocaleString("en");
    space.style.height = matches.length * ROW + "px";
    list.scrollTop = 0;
    select(matches.length ? 0 : -1);
    draw();
  }

  let filterTimer = 0;
  function onFilterChange(event) {
    clearTimeout(filterTimer);
    if (event.type === "input") { filterTimer = setTimeout(apply, 150); return; }
    if (fields.judge && Number(fields.judge.value) !== currentJudge) { currentJudge = Number(fields.judge.value); changeJudge(); }
    apply();
  }
  function changeJudge() {
    measureDisagreements();
    const rounds = distinct(items.map((item) => item.outcomes[currentJudge].rounds));
    refill("rounds", [["", "all"], ...rounds.map((n) => [String(n), String(n)])]);
    refill("state", stopOptions());
  }

  // --- the list ---

  function draw() {
    const first = Math.max(0, Math.floor(list.scrollTop / ROW) - 4);
    const last = Math.min(matches.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW) + 4);
    const rows = [];
    for (let position = first; position < last; position += 1) rows.push(row(position));
    space.replaceChildren(...rows);
  }

  function row(position) {
    const i = matches[position];
    const item = items[i];
    const outcome = item.outcomes[currentJudge];
    const element = make("div", "row");
    element.id = "row-" + position;
    element.setAttribute("role", "option");
    element.setAttribute("aria-selected", String(position === current));
    element.style.top = position * ROW + "px";
    element.dataset.position = String(position);
    const name = makeBidi("div", "name");
    name.append(make("span", "gap", disagreements[i] === null ? "–" : signed(100 * disagreements[i]) + " %"));
    name.append(makeBidi("bdi", "", item.group + " · " + item.candidate));
    element.append(name);
    const score = outcome.score === null ? "unscored: " + outcome.stop : "judge " + number(outcome.score);
    element.append(makeBidi("div", "numbers", item.aspect + ": raters " + number(means[i]) + ", " + score));
    return element;
  }

  function select(position) {
    current = position;
    for (const element of space.children) {
      element.setAttribute("aria-selected", String(Number(element.dataset.position) === current));
    }
    if (position < 0) { article.replaceChildren(make("p", "small", "No debate meets these filters.")); return; }
    list.setAttribute("aria-activedescendant", "row-" + position);
    const top = position * ROW;
    if (top < list.scrollTop) list.scrollTop = top;
    if (top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW - list.clientHeight;
    show(matches[position]);
  }

  list.addEventListener("scroll", () => requestAnimationFrame(draw), { passive: true });
  list.addEventListener("click", (event) => {
    const element = event.target.closest(".row");
    if (element) select(Number(element.dataset.position));
  });
  list.addEventListener("keydown", (event) => {
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -matches.length, End: matches.length };
    const step = steps[event.key];
    if (!step || !matches.length) return;
    event.preventDefault();
    select(Math.min(matches.length - 1, Math.max(0, current + step)));
    draw();
  });
  addEventListener("resize", draw);

  // --- one debate ---

  function longText(text, className) {
    const block = makeBidi("div", "text " + (className || ""), text.length > SHORT ? text.slice(0, SHORT) + " …" : text);
    if (text.length <= SHORT) return block;
    const box = make("div");
    const more = make("button", "more", "show all " + text.length.toLocaleString("en") + " characters");
    more.type = "button";
    more.addEventListener("click", () => { block.textContent = text; more.remove(); });
    box.append(block, more);
    return box;
  }

  function folded(title, ...content) {
    const details = make("details");
    details.append(make("summary", "", title), ...content);
    return details;
  }

  function path(i, judgeIndex) {
    const outcome = items[i].outcomes[judgeIndex];
    const line = make("ol", "path");
    let before = null;
    for (const step of outcome.path) {
      const speaker = step.role + (step.round ? " " + step.round : "");
      let label = speaker + (step.no_issue ? ": no issue" : "");
      const chip = make("span", "chip");
      if (step.score !== null) {
        label = speaker + ": " + number(step.score);
        if (before !== null && means[i] !== null && judges[judgeIndex].on_scale && step.score !== before) {
          const nearer = Math.abs(step.score - means[i]) < Math.abs(before - means[i]);
          chip.classList.add(nearer ? "nearer" : "farther");
          label += nearer ? " (nearer)" : " (farther)";
        }
        before = step.score;
      }
      chip.textContent = label;
      const entry = make("li");
      entry.append(chip);
      line.append(entry);
    }
    const end = make("li");
    end.append(make("span", "chip", outcome.score === null ? "unscored: " + outcome.stop : "score " + number(outcome.score)));
    line.append(end);
    return line;
  }

  function conversation(i, judgeIndex) {
    const outcome = items[i].outcomes[judgeIndex];
    const box = make("div");
    box.append(path(i, judgeIndex));
    if (!texts) return box;
    texts.items[i].turns[judgeIndex].forEach((text, index) => {
      const step = outcome.path[index];
      const turn = make("div", "turn");
      turn.classList.add(step.role.replace(/[^\w-]/g, "-") || "role");
      const score = step.score === null ? "" : ", score " + number(step.score);
      const rest = step.no_issue ? ", no issue" : "";
      turn.append(makeBidi("p", "speaker", step.role + ", round " + step.round + score + rest), longText(text));
      box.append(turn);
    });
    const detail = texts.items[i].details[judgeIndex];
    if (detail) box.append(make("p", "speaker", "no score"), longText(detail));
    return box;
  }

  function outcomes(i) {
    const table = make("table");
    const head = make("tr");
    for (const name of ["judge", "score", "minus raters", "rounds", "ended by", "LM calls"]) head.append(make("th", "", name));
    const body = make("tbody");
    items[i].outcomes.forEach((outcome, judgeIndex) => {
      const comparable = outcome.score !== null && means[i] !== null && judges[judgeIndex].on_scale;
      const line = make("tr");
      line.append(makeBidi("th", "", judges[judgeIndex].name));
      for (const cell of [
        number(outcome.score), comparable ? signed(outcome.score - means[i]) : "–", String(outcome.rounds),
        (outcome.score === null ? "unscored: " : "") + outcome.stop, number(outcome.calls),
      ]) line.append(make("td", "", cell));
      body.append(line);
    });
    const top = make("thead");
    top.append(head);
    table.append(top, body);
    const box = make("div", "scroll");
    box.tabIndex = 0;
    box.append(table);
    return box;
  }

  function ratings(i) {
    const item = items[i];
    const comments = texts ? texts.items[i].comments : [];
    const { low, high } = scale.get(item.aspect);
    const values = item.ratings.length ? item.ratings.map(number).join(", ") : "none";
    const several = item.ratings.length > 1 ? "; mean " + number(means[i]) : "";
    const box = make("div");
    box.append(make("p", "", "Ratings: " + values + several + " (scale " + low + " to " + high + ")"));
    // Comments are not matched with ratings, because a rater may have given only one of the two.
    for (const comment of comments) box.append(make("p", "speaker", "comment of a rater"), longText(comment));
    return box;
  }

  function show(i) {
    const item = items[i];
    const parts = [makeBidi("h3", "", item.group + " · " + item.candidate + " · " + item.aspect), ratings(i), outcomes(i)];
    if (texts) {
      const [source, context] = texts.sources[item.group];
      const labels = page.labels;
      parts.push(make("h3", "", labels.candidate || "candidate"), longText(texts.candidates[item.group][item.candidate]));
      if (context) parts.push(folded(labels.context || "context", longText(context)));
      if (source) parts.push(folded(labels.source || "source", longText(source)));
    }
    const order = [currentJudge, ...judges.map((_, judgeIndex) => judgeIndex).filter((judgeIndex) => judgeIndex !== currentJudge)];
    for (const judgeIndex of order) {
      if (!item.outcomes[judgeIndex].path.length) continue;
      const content = conversation(i, judgeIndex);
      if (judgeIndex === currentJudge) parts.push(makeBidi("h3", "", judges[judgeIndex].name), content);
      else parts.push(folded(judges[judgeIndex].name, content));
    }
    article.replaceChildren(...parts);
  }

  addEventListener("beforeprint", () => {
    for (const element of document.querySelectorAll("details:not([open])")) {
      element.open = true;
      element.dataset.closed = "yes";
    }
  });
  addEventListener("afterprint", () => {
    for (const element of document.querySelectorAll("details[data-closed]")) {
      element.open = false;
      delete element.dataset.closed;
    }
  });

  changeJudge();
  form.hidden = false;
  browser.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  apply();
})();
