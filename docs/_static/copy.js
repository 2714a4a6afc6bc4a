// A button that copies a block of code. Of a block that shows a change, what it looks like afterwards is copied.
document.addEventListener("DOMContentLoaded", () => {
  if (!navigator.clipboard) return;
  for (const block of document.querySelectorAll("div.highlight")) {
    const code = block.querySelector("pre");
    const isChange = block.parentElement.classList.contains("highlight-diff");
    const button = document.createElement("button");
    button.className = "copy";
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      let text = code.innerText;
      if (isChange) {
        const lines = text.split("\n").filter((line) => !line.startsWith("-"));
        text = lines.map((line) => line.replace(/^[+ ]/, "")).join("\n");
      }
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
    block.appendChild(button);
  }
});
