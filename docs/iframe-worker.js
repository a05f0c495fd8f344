// Browsers start no worker from a disk. There, the worker of the search runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      const load = src => new Promise((loaded, failed) => {
        const script = inside.document.createElement("script")
        Object.assign(script, { src, onload: loaded, onerror: failed })
        inside.document.body.append(script)
      })
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      inside.importScripts = (...urls) => urls.reduce((last, src) => last.then(() => load(src)), Promise.resolve())
      this.ready = load(url)
    }

    postMessage(data) {
      const inside = this.frame.contentWindow
      this.ready.then(() => inside.dispatchEvent(new inside.MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
