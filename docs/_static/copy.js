// A button at each example that copies it, for pages that may use the clipboard.

const SECONDS_SHOWN = 2;

function addButton(example) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(example.querySelector("pre").textContent.trimEnd());
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, SECONDS_SHOWN * 1000);
  });
  example.append(button);
}

if (navigator.clipboard) document.querySelectorAll("div.highlight").forEach(addButton);
