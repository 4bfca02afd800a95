// The search of the site runs in a worker. Browsers refuse workers to a page that was opened from a folder, so there a
// hidden frame does the worker's part. (The offline plugin of mkdocs-material would load such a script from the network.)
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      // What the worker's code calls, and a frame does not have, or has with another meaning.
      const words = `
        postMessage = (data) => parent.postMessage(data, "*");
        importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done) => {
          const script = document.createElement("script");
          script.src = url;
          script.onload = done;
          document.body.appendChild(script);
        })), Promise.resolve());`;
      inside.document.open();
      inside.document.write(`<body><script>${words}</${"script"}><script src="${url}"></${"script"}></body>`);
      inside.document.close();
      this.ready = new Promise((done) => { inside.onload = done; });
      window.addEventListener("message", (event) => {
        if (event.source !== inside) return;
        this.dispatchEvent(new MessageEvent("message", { data: event.data }));
        if (this.onmessage) this.onmessage(event);
      });
    }

    postMessage(data) {
      const send = () => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
      this.ready.then(send);
    }

    terminate() {
      this.frame.remove();
    }
  };
}
