// What the page for those who try a change of the rules does beside its forms: numbers beside lines, mistakes while
// somebody types, and the progress of a replay. Without it the forms work, and take their time.
(() => {
  "use strict";
  const form = document.querySelector("[data-try]");
  if (!form) return;
  const checked = document.getElementById("try-check");
  const result = document.getElementById("try-result");
  const rules = document.getElementById("f-rules");
  const address = form.getAttribute("action"); // form.action is the buttons of that name
  const body = (action) => { const b = new URLSearchParams(new FormData(form)); b.set("action", action); return b; };

  // Numbers beside lines.
  for (const gutter of form.querySelectorAll("[data-gutter]")) {
    const area = document.getElementById(gutter.dataset.gutter);
    let shown = 0;
    const show = () => {
      const n = area.value.split("\n").length;
      if (n !== shown) gutter.textContent = Array.from({ length: n }, (_, i) => i + 1).join("\n");
      shown = n;
      gutter.scrollTop = area.scrollTop;
    };
    area.addEventListener("input", show);
    area.addEventListener("scroll", show);
    show();
  }
  const goTo = (area, line, column) => {
    const lines = area.value.split("\n");
    const from = lines.slice(0, line - 1).reduce((sum, l) => sum + l.length + 1, 0);
    area.closest("details")?.setAttribute("open", "");
    area.focus();
    area.setSelectionRange(from + Math.max(0, column - 1), from + (lines[line - 1] ?? "").length);
    area.scrollTop = Math.max(0, (line - 4) * parseFloat(getComputedStyle(area).lineHeight));
    area.scrollIntoView({ block: "nearest" });
  };
  document.addEventListener("click", (e) => {
    const a = e.target.closest?.("a.place");
    if (!a) return;
    e.preventDefault();
    goTo(document.getElementById(a.dataset.file === "rules_test.yaml" ? "f-tests" : "f-rules"), Number(a.dataset.line), Number(a.dataset.column ?? 1));
  });
  if (rules.dataset.line) rules.scrollTop = (Number(rules.dataset.line) - 1) * parseFloat(getComputedStyle(rules).lineHeight);

  // Mistakes while somebody types.
  const calm = 600;
  let waiting, asked;
  const check = async () => {
    asked?.abort();
    const mine = asked = new AbortController();
    try {
      const answer = await fetch(address, { method: "POST", body: body("check-part"), signal: mine.signal });
      const text = await answer.text();
      if (answer.ok) checked.innerHTML = text;
      else checked.textContent = text;
    } catch (e) {
      if (e.name !== "AbortError") checked.textContent = "The console does not answer: " + e.message;
    }
  };
  rules.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(check, calm); });

  // A replay, and a search for numbers, tells how far it is; who stops or leaves ends it.
  const progress = form.querySelector("[data-progress]");
  const stop = form.querySelector("[data-stop]");
  const bar = progress?.querySelector("progress");
  const said = progress?.querySelector("[data-progress-text]");
  const number = new Intl.NumberFormat();
  const handle = {
    progress: (text) => {
      const p = JSON.parse(text);
      bar.value = p.of > 0 ? p.done / p.of : 1;
      said.textContent = `${number.format(p.done)} of ${number.format(p.of)} records, ${number.format(p.events)} events counted, ${Math.round(p.seconds)} s`;
    },
    result: (text) => { result.innerHTML = text; result.querySelector("#replayed, #suggested")?.focus(); },
    trouble: (text) => { const p = document.createElement("p"); p.className = "notice bad"; p.setAttribute("role", "alert"); p.textContent = text; result.replaceChildren(p); },
  };
  const live = async (button) => {
    const leave = new AbortController();
    stop.onclick = () => leave.abort();
    button.disabled = true;
    stop.hidden = progress.hidden = false;
    bar.removeAttribute("value");
    said.textContent = "Kafka is asked for the events…";
    result.replaceChildren();
    try {
      const answer = await fetch(address, { method: "POST", body: body(button.value + "-live"), signal: leave.signal });
      if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ""; ;) {
        const { value, done } = await reader.read();
        if (done) break;
        rest += value;
        for (let at; (at = rest.indexOf("\n\n")) >= 0; rest = rest.slice(at + 2)) {
          const lines = rest.slice(0, at).split("\n");
          const text = lines.filter((l) => l.startsWith("data: ")).map((l) => l.slice(6)).join("\n");
          handle[lines[0].replace("event: ", "")]?.(text);
        }
      }
    } catch (e) {
      if (e.name === "AbortError") said.textContent = "It was stopped.";
      else handle.trouble("It ended: " + e.message);
    }
    button.disabled = false;
    stop.hidden = true;
    progress.hidden = said.textContent !== "It was stopped.";
  };
  form.addEventListener("submit", (e) => {
    if (!["replay", "suggest"].includes(e.submitter?.value)) return;
    e.preventDefault();
    live(e.submitter);
  });
})();
