"""A model on a server: onnxquant is killed while it reads, and the same command goes on."""
import http.server
import os
import re
import signal
import subprocess
import threading
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from command import BINARY

SIZE = 2600  # 27 MB
BLOCK = 256 << 10  # of which onnxquant notes that they are on the disk, by a number of 4 bytes


class Server(http.server.ThreadingHTTPServer):
    """Serves bytes by ranges. After `most` of them, answers stop and wait."""

    daemon_threads = True

    def __init__(self, content):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.served, self.most, self.stuck = content, 0, None, threading.Event()
        self.lock, self.go = threading.Lock(), threading.Event()

    def handle_error(self, request, client_address):
        pass  # the client was killed


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def answer(self, body):
        s, wanted = self.server, re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        first, last = (int(wanted[1]), min(int(wanted[2] or len(s.content)), len(s.content) - 1)) if wanted else (0, len(s.content) - 1)
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(s.content)}")
        for name, value in (("Content-Length", str(last + 1 - first)), ("ETag", '"one"'), ("Accept-Ranges", "bytes")):
            self.send_header(name, value)
        self.end_headers()
        for at in range(first, last + 1 if body else first, 1 << 16):
            block = s.content[at : min(at + (1 << 16), last + 1)]
            with s.lock:
                s.served += len(block)
                stop = s.most is not None and s.served > s.most
            if stop:
                s.stuck.set()
                s.go.wait()
                return
            self.wfile.write(block)

    def log_message(self, *args):
        pass


def test_killed_while_it_reads(tmp_path):
    weight = numpy_helper.from_array(np.random.default_rng(7).standard_normal((SIZE, SIZE), np.float32), "w")
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", SIZE]) for n in "xy")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], "m")], "g", [x], [y], [weight])
    local = tmp_path / "local.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), local)
    server = Server(local.read_bytes())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    command = [BINARY, "--quiet", "--no-provenance", "--block", "32", f"http://127.0.0.1:{server.server_port}/local.onnx", tmp_path / "out.onnx"]
    server.most = 22 << 20
    p = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert server.stuck.wait(120)
    while not any(f.stat().st_size > 4 * 16 + 100 for f in tmp_path.glob(".*/*.~parts")):
        assert p.poll() is None, p.stderr.read()
        time.sleep(0.01)
    os.kill(p.pid, signal.SIGKILL)
    p.communicate()
    before, server.served, server.most = server.served, 0, None
    server.go.set()
    r = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    print(f"{len(server.content)} bytes: {before} before the kill, {server.served} after it")
    assert server.served <= len(server.content) - 16 * BLOCK
    want = tmp_path / "want.onnx"
    subprocess.run([BINARY, "--quiet", "--no-provenance", "--block", "32", local, want], check=True)
    assert (tmp_path / "out.onnx").read_bytes() == want.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["local.onnx", "out.onnx", "want.onnx"]  # nothing is left of what was read
    server.shutdown()
