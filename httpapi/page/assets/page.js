// Script of the page: it refreshes lists, updates times and follows a running turn. It inserts
// untrusted text only as text nodes.
"use strict";
(() => {
  const refreshEvery = 3000;
  const freshFor = 5; // seconds for which a page was updated just now: a little more than refreshEvery

  // ---- Text, escaped like Go's words.Plain: control characters and those that change the direction
  // of text.
  const controls = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;
  const hex = (code, digits) => code.toString(16).padStart(digits, "0");
  const escape = (c) => c === "\r" ? "\\r" : c.charCodeAt(0) < 0x80 ? "\\x" + hex(c.charCodeAt(0), 2) : "\\u" + hex(c.charCodeAt(0), 4);
  const plain = (text) => String(text ?? "").replace(controls, escape);

  const element = (name, classes, text) => {
    const e = document.createElement(name);
    if (classes) e.className = classes;
    if (text !== undefined) e.textContent = plain(text);
    return e;
  };

  // ---- Times
  const coarse = (s) => s < 60 ? `${Math.floor(s)} s` : s < 3600 ? `${Math.floor(s / 60)} min` : s < 172800 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} days`;
  const exact = (ms) => ms < 1000 ? `${Math.round(ms)} ms` : ms < 10000 ? `${(ms / 1000).toFixed(2)} s` : `${(ms / 1000).toFixed(1)} s`;
  // skew is the server's clock minus the browser's. The footer has the server's time of the page.
  let skew = 0;
  const readClock = () => {
    const shown = document.querySelector("footer time");
    if (shown) skew = Date.parse(shown.dateTime) - Date.now();
  };
  const updateTimes = () => {
    for (const t of document.querySelectorAll("main time, footer time")) {
      const s = (Date.now() + skew - Date.parse(t.dateTime)) / 1000;
      const recent = t.closest("footer") && s < freshFor;
      const text = recent ? "just now" : Math.abs(s) < 1 ? "now" : s < 0 ? `in ${coarse(-s)}` : `${coarse(s)} ago`;
      if (t.textContent !== text) t.textContent = text;
    }
  };

  // ---- Refresh: changes the page in place, which keeps focus, scroll position, selection and input.
  function morph(was, now) {
    if (was.hasAttribute("data-keep")) return;
    for (const { name } of [...was.attributes]) {
      if (!now.hasAttribute(name) && !(name === "open" && was.nodeName === "DETAILS")) was.removeAttribute(name);
    }
    for (const { name, value } of now.attributes) {
      if (was.getAttribute(name) !== value) was.setAttribute(name, value);
    }
    const wanted = new Set([...now.children].map((e) => e.id).filter(Boolean));
    for (const e of [...was.children]) {
      if (e.id && !wanted.has(e.id)) e.remove();
    }
    const known = new Map([...was.children].filter((e) => e.id).map((e) => [e.id, e]));
    let at = was.firstChild;
    for (const next of [...now.childNodes]) {
      const same = next.id ? known.get(next.id) : at && !at.id && at.nodeName === next.nodeName ? at : null;
      if (!same) {
        was.insertBefore(document.importNode(next, true), at);
      } else if (same.nodeType !== Node.ELEMENT_NODE) {
        if (same.data !== next.data) same.data = next.data;
        at = same.nextSibling;
      } else {
        if (same !== at) was.insertBefore(same, at);
        at = same.nextSibling;
        morph(same, next);
      }
    }
    while (at) {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
  }

  const fresh = document.getElementById("fresh");
  const say = (text) => { if (fresh && fresh.textContent !== text) fresh.textContent = text; };
  let asking = false, tag = "";
  async function refresh() {
    if (asking || document.hidden || !document.querySelector("[data-refresh]")) return;
    asking = true;
    try {
      const answer = await fetch(location.pathname + location.search, { headers: { Accept: "text/html" }, redirect: "manual", cache: "no-store" });
      if (answer.type === "opaqueredirect") return say(". Signed out: reload the page to sign in");
      if (!answer.ok) return say(". Refresh failed, retrying");
      const made = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const now of made.querySelectorAll("[data-refresh]")) {
        const was = document.getElementById(now.id);
        if (was) morph(was, now);
      }
      const foot = document.querySelector("footer time"), stamp = made.querySelector("footer time");
      if (foot && stamp) foot.dateTime = stamp.dateTime;
      readClock();
      updateTimes();
      say("");
    } catch {
      say(". The server does not answer, retrying");
    } finally {
      asking = false;
    }
  }

  // ---- Follow a running turn
  function follow(box) {
    const rounds = document.getElementById("live-rounds");
    const status = document.getElementById("live-status");
    let round = null, blocks = new Map(), tools = new Map(), over = false;
    const tell = (text) => { if (status.textContent !== text) status.textContent = text; };
    const line = (into, text, name) => {
      const p = element("p", "live-line");
      if (name) p.append(element("b", "", name), " ");
      p.append(plain(text));
      into.append(p);
      return p;
    };
    const into = () => round || rounds;
    const waitsOn = (data) => {
      const names = [...(data.asks || []), ...(data.calls || []), ...(data.models || [])];
      return names.length ? `: ${names.join(", ")}` : "";
    };
    const handlers = {
      turn_start: () => tell("Running."),
      turn_resumed: (e) => { tell("Resumed."); line(rounds, `The turn resumed: dispatch ${e.data.dispatch}.`); },
      turn_waiting: (e) => { tell(`Waiting for ${e.data.for}.`); line(rounds, `Waits for ${e.data.for}${waitsOn(e.data)}.`); },
      round_start: (e) => {
        tell(`Round ${e.round} of ${e.data.of}${e.data.final ? ", the last: no tools" : ""}.`);
        round = element("article", "live-round");
        round.dataset.round = e.round;
        round.append(element("h3", "", `Round ${e.round}`));
        rounds.append(round);
        if (e.data.epoch) line(round, `New epoch: ${e.data.epoch}. The request does not extend the one before it.`);
      },
      round_rollback: (e) => {
        const void_ = rounds.querySelector(`[data-round="${Number(e.round)}"]:not([data-void])`);
        if (void_) {
          void_.dataset.void = "";
          void_.replaceChildren();
          line(void_, `Round ${e.round} was rolled back: ${e.data.reason}. Its text is void.`);
        }
        round = null;
        blocks.clear();
      },
      block_start: (e) => {
        if (e.data.kind === "tool_use") line(into(), "called with", e.data.tool);
        else if (e.data.kind === "thinking") line(into(), "Thinking:");
        const text = element("div", "live-text");
        text.classList.add(/^[a-z_]+$/.test(e.data.kind) ? e.data.kind : "text");
        text.dataset.kind = e.data.kind;
        text.dir = "auto";
        text.append("");
        into().append(text);
        blocks.set(e.block, text.firstChild);
      },
      block_delta: (e) => { const node = blocks.get(e.block); if (node) node.appendData(plain(e.data.text || e.data.thinking || e.data.arguments || "")); },
      block_stop: (e) => { blocks.delete(e.block); },
      tool_started: (e) => { tools.set(e.data.call, line(into(), "running …", e.data.name)); },
      tool_result: (e) => {
        const took = e.data.duration_ms ? ` after ${exact(e.data.duration_ms)}` : "";
        tools.get(e.data.call)?.remove();
        line(into(), `${e.data.state}${took}${e.data.preview ? ": " + e.data.preview : ""}`, e.data.name);
      },
      notice: (e) => {
        const d = element("details", "live-line"), pre = element("pre", "said-text quiet", e.data.text);
        d.append(element("summary", "", "Notice to the model"), pre);
        into().append(d);
      },
      round_stop: () => { round = null; refresh(); },
    };
    const end = (e) => {
      over = true;
      source.close();
      tell(`Ended: ${e.data.state}${e.data.retry ? "; another turn will retry" : ""}.`);
      box.dataset.over = e.data.state;
      refresh();
    };
    handlers.turn_complete = end;
    handlers.turn_error = end;
    tell("Following the turn.");
    const source = new EventSource(box.dataset.events);
    for (const [type, handle] of Object.entries(handlers)) {
      source.addEventListener(type, (message) => {
        const e = JSON.parse(message.data);
        e.data ||= {};
        handle(e);
        box.dataset.seq = e.seq;
      });
    }
    source.onerror = () => {
      if (over) return;
      tell(source.readyState === EventSource.CLOSED ? "The stream has ended, or this token has too many open. Reload the page to follow the turn." : "Connection lost, reconnecting.");
    };
  }

  readClock();
  updateTimes();
  setInterval(updateTimes, 1000);
  setInterval(refresh, refreshEvery);
  document.addEventListener("visibilitychange", refresh);
  const live = document.getElementById("live");
  if (live && live.dataset.events) follow(live);
})();
