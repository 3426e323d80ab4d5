// Asks for the same page every two seconds, and shows what is new. Without scripts, the page reloads itself.
"use strict";
(() => {
  const form = document.forms[0];
  let asked = 0;
  const look = async () => {
    const mine = ++asked;
    const opened = [...document.querySelectorAll("details[open]")].map((d) => d.id);
    try {
      const answer = await fetch(location.href, { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.status);
      const found = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (mine !== asked) return;
      document.getElementById("live").replaceWith(found.getElementById("live"));
      document.title = found.title;
      for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
      document.body.classList.remove("stale");
    } catch {
      document.body.classList.add("stale");
      document.getElementById("state").textContent = "No answer; this is what was seen last.";
    }
  };
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", () => {
    const query = new URLSearchParams(location.search);
    query.set("q", form.q.value);
    history.replaceState(null, "", "?" + query);
    look();
  });
  setInterval(() => document.hidden || getSelection().type === "Range" || look(), 2000);
})();
