// What the console's pages do beside htmx: the reader's own time beside each that is UTC, the choice of colours
// without a button, and the sign that a page is no longer updated.
(() => {
  "use strict";
  const own = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
  const utc = (at) => at.toISOString().slice(11, 19) + " UTC";

  const localise = (root) => {
    for (const t of root.querySelectorAll("time[datetime]")) {
      const at = new Date(t.dateTime);
      if (!Number.isNaN(at.getTime())) t.title = t.dateTime.replace("T", " ").replace("Z", " UTC") + ", " + own.format(at);
    }
  };

  const follow = () => {
    const pulse = document.querySelector("[data-pulse]");
    const lost = document.querySelector("[data-lost]");
    if (!pulse || !lost) return;
    const text = pulse.querySelector("[data-pulse-text]");
    const patience = 6000; // longer than a round, shorter than a reader's trust
    const rest = 30000; // a tab that nobody sees gives its connection back: browsers open six to a server
    let source, resting, timer;
    let last = Date.now();
    let shown = new Date();
    const show = () => {
      const old = Date.now() - last > patience;
      pulse.classList.toggle("old", old);
      lost.hidden = !old;
      document.body.classList.toggle("stale", old);
      text.textContent = (old ? "not live since " : "live, ") + utc(shown);
      lost.querySelector("[data-lost-since]").textContent = utc(shown);
    };
    const heard = new WeakSet();
    const typed = () => [...document.querySelectorAll("main input, main textarea")].some((f) => f.value !== f.defaultValue);
    document.addEventListener("visibilitychange", () => {
      clearTimeout(timer);
      if (document.hidden) {
        timer = setTimeout(() => { resting = true; source?.close(); }, rest);
      } else if (resting && !typed()) {
        location.reload();
      }
    });
    const listen = (opened) => {
      source = opened;
      if (heard.has(source)) return;
      heard.add(source);
      source.addEventListener("beat", (e) => { last = Date.now(); shown = new Date(e.data); show(); });
      source.addEventListener("ended", () => { location.reload(); });
      source.addEventListener("trouble", (e) => { lost.querySelector("p").title = e.data; });
    };
    document.body.addEventListener("htmx:sseOpen", (e) => listen(e.detail.source));
    setInterval(show, 1000);
  };

  const colours = () => {
    const choice = document.getElementById("theme");
    if (!choice) return;
    document.documentElement.classList.add("js");
    choice.addEventListener("change", () => choice.form.requestSubmit());
  };

  // A button in .copied copies the code beside it, where the browser allows that.
  const copies = () => {
    if (!navigator.clipboard) return;
    document.documentElement.classList.add("copies");
    document.addEventListener("click", (e) => {
      const button = e.target.closest?.("[data-copy]");
      const code = button?.closest(".copied")?.querySelector("code");
      if (!code) return;
      navigator.clipboard.writeText(code.textContent).then(() => {
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = "Copy"; }, 2000);
      }, () => { button.textContent = "Select it and copy"; });
    });
  };

  // What a reader has opened stays open when its part is pushed again.
  if (window.Idiomorph) {
    Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, el) => !(el.localName === "details" && name === "open");
  }
  document.addEventListener("htmx:afterSwap", (e) => localise(e.target));
  document.addEventListener("htmx:sseMessage", (e) => {
    localise(e.target);
    const line = document.querySelector(".headline span"); // a tab in the background says it, too
    if (line) document.title = line.textContent + " · Tallygate";
  });
  localise(document);
  follow();
  colours();
  copies();
})();
