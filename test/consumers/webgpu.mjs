// Runs the models of webgpu_models.py by WebGPU in Chromium, without a GPU, and prints the errors of their outputs:
//
//	node webgpu.mjs CHROMIUM FOLDER native|jsep
//
// FOLDER has the models, and node_modules with onnxruntime-web. The exit status is 1 if a model is wrong or refused.
import fs from "fs";
import http from "http";
import path from "path";
import { chromium } from "playwright-core";

const [executablePath, folder, kernels] = process.argv.slice(2);
const bundle = { native: "ort.webgpu.min.mjs", jsep: "ort.all.min.mjs" }[kernels];
const page = `<script type=module>import * as ort from "/node_modules/onnxruntime-web/dist/${bundle}"; window.ort = ort;</script>`;
const types = { ".mjs": "text/javascript", ".wasm": "application/wasm" };
const server = http.createServer((request, response) => {
  const file = path.join(folder, path.normalize("/" + request.url.split("?")[0]));
  if (request.url === "/") response.writeHead(200, { "content-type": "text/html" }).end(page);
  else if (!fs.existsSync(file)) response.writeHead(404).end();
  else {
    response.writeHead(200, { "content-type": types[path.extname(file)] ?? "application/octet-stream" });
    fs.createReadStream(file).pipe(response);
  }
}).listen(0, "127.0.0.1");
await new Promise((done) => server.once("listening", done));

const args = ["--no-sandbox", "--headless=new", "--enable-unsafe-webgpu", "--enable-features=Vulkan", "--use-webgpu-adapter=swiftshader", "--use-vulkan=swiftshader", "--disable-vulkan-surface", "--ignore-gpu-blocklist"];
const run = async ({ name, rows, length, want }) => {
  try {
    const bytes = new Uint8Array(await (await fetch(`/${name}.onnx`)).arrayBuffer());
    const session = await ort.InferenceSession.create(bytes, { executionProviders: ["webgpu"] });
    const x = Float32Array.from({ length: rows * length }, (_, i) => Math.sin(i));
    const y = (await session.run({ x: new ort.Tensor("float32", x, [rows, length]) })).y.data;
    await session.release();
    let error = 0, norm = 0;
    want.forEach((v, i) => { error += (y[i] - v) ** 2; norm += v ** 2; });
    return Math.sqrt(error / norm);
  } catch (e) {
    return String(e.message ?? e).slice(0, 150);
  }
};

const rounded = 0.01; // of activations of 8 bits
let bad = 0, browser;
const open = async () => {
  browser = await chromium.launch({ executablePath, args });
  const tab = await browser.newPage();
  await tab.goto(`http://127.0.0.1:${server.address().port}/`);
  await tab.waitForFunction("window.ort", null, { timeout: 60000 });
  return tab;
};
let tab = await open(), runs = 0;
for (const [name, c] of Object.entries(JSON.parse(fs.readFileSync(path.join(folder, "cases.json"))))) {
  if (++runs % 15 === 0) { // memory of a page is bounded
    await browser.close();
    tab = await open();
  }
  const error = await tab.evaluate(run, { name, ...c });
  const right = typeof error === "number" && error <= rounded;
  bad += !right;
  console.log(right ? "right" : typeof error === "number" ? "WRONG" : "refused", name, typeof error === "number" ? error.toExponential(1) : error);
}
await browser.close();
server.close();
console.log(`${kernels}: ${bad} of ${runs} are wrong or refused`);
process.exitCode = bad ? 1 : 0;
