(function () {
  "use strict";

  // A link may lead to something that is folded away: open whatever it is in.
  function reveal() {
    var target = document.getElementById(location.hash.slice(1));
    for (var one = target; one; one = one.parentElement) {
      if (one.tagName === "DETAILS") { one.open = true; }
    }
    if (target) { target.scrollIntoView(); }
  }
  addEventListener("hashchange", reveal);
  if (location.hash) { reveal(); }

  var button = document.getElementById("copy");
  var text = document.getElementById("markdown");
  var status = document.getElementById("copied");
  if (!button || !text || !status) { return; }
  button.hidden = false;
  // Where the browser does not allow a page to write to the clipboard, the text is left selected.
  function select() {
    document.getElementById("as-markdown").open = true;
    text.focus();
    text.select();
    var copied = false;
    try { copied = document.execCommand("copy"); } catch (error) { copied = false; }
    status.textContent = copied ? "Copied." : "The text is selected: copy it with Ctrl+C.";
  }
  button.addEventListener("click", function () {
    status.textContent = "";
    if (!navigator.clipboard) { select(); return; }
    navigator.clipboard.writeText(text.value).then(function () { status.textContent = "Copied."; }, select);
  });
})();
