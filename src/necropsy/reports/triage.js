(function () {
  "use strict";

  var form = document.getElementById("filters");
  var list = document.getElementById("list");
  if (!form || !list) { return; }
  var main = document.getElementById("main");
  var more = document.getElementById("f-more");
  var said = document.getElementById("f-said");
  var bugs = Array.prototype.slice.call(list.querySelectorAll(".bug"));
  var marks = Array.prototype.slice.call(document.querySelectorAll("[data-bug]"));
  var texts = bugs.map(function (bug) { return bug.textContent.toLowerCase(); });
  var FIRST = 25;
  var all = false;

  function value(name) {
    var field = document.getElementById(name);
    return field ? field.value : "";
  }

  function update() {
    var words = value("f-text").toLowerCase().split(/\s+/).filter(Boolean);
    var status = value("f-status"), host = value("f-host"), library = value("f-library");
    var filtered = words.length > 0 || status !== "" || host !== "" || library !== "";
    var kept = {}, found = 0, deaths = 0;
    bugs.forEach(function (bug, place) {
      var fits = words.every(function (word) { return texts[place].indexOf(word) >= 0; }) &&
        (!status || bug.dataset.status.split(" ").indexOf(status) >= 0) &&
        (!host || bug.dataset.hosts.indexOf(" " + host + " ") >= 0) &&
        (!library || bug.dataset.library === library);
      if (fits) { kept[bug.id] = true; found += 1; deaths += Number(bug.dataset.count); }
    });
    var shown = 0;
    Array.prototype.forEach.call(list.children, function (bug) {
      if (kept[bug.id]) { shown += 1; }
      bug.hidden = !kept[bug.id] || (!all && shown > FIRST && !bug.open);
    });
    main.classList.toggle("filtered", filtered);
    marks.forEach(function (mark) { mark.classList.toggle("kept", Boolean(kept[mark.dataset.bug])); });
    more.hidden = all || found <= FIRST;
    more.textContent = "Show all " + found + " bugs";
    said.textContent = filtered ? found + " of " + bugs.length + " bugs, " + deaths + " deaths" : "";
  }

  function order() {
    var by = value("f-order");
    var sorted = bugs.slice();
    if (by !== "count") {
      sorted.sort(function (one, other) {
        return one.dataset[by] < other.dataset[by] ? 1 : one.dataset[by] > other.dataset[by] ? -1 : 0;
      });
    }
    sorted.forEach(function (bug) { list.appendChild(bug); });
    update();
  }

  // A link may lead to a bug that the filters or the length of the list hide.
  function show(id) {
    var bug = document.getElementById(id);
    if (bug && bug.classList.contains("bug")) {
      bug.hidden = false;
      bug.open = true;
      bug.scrollIntoView();
    }
  }

  form.hidden = false;
  form.addEventListener("submit", function (event) { event.preventDefault(); });
  form.addEventListener("input", order);
  form.addEventListener("reset", function () { setTimeout(order, 0); });
  more.addEventListener("click", function () { all = true; update(); });
  addEventListener("hashchange", function () { show(location.hash.slice(1)); });
  addEventListener("beforeprint", function () { all = true; update(); });
  marks.forEach(function (mark) {
    if (mark.tagName !== "TR") {
      mark.addEventListener("click", function () { location.hash = mark.dataset.bug; show(mark.dataset.bug); });
    }
  });
  update();
  if (location.hash) { show(location.hash.slice(1)); }
})();
