"""An HTTP server on loopback that gives one file, or fails in the way that its address names."""

import socket
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class HttpVideos:
    """Answers `/403.mp4` with that status, `/nolength.mp4` without a length, others with a file.

    `/cut.mp4` ends early, and `/twice.mp4` answers the second request only.
    """

    def __init__(self, data):
        self.requests = Counter()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self):
                server.answer(self, b"")

            def do_GET(self):
                server.answer(self, data)

            def log_message(self, *_):
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def answer(self, handler, data):
        name = handler.path.partition("?")[0].strip("/").partition(".")[0]
        self.requests[handler.command, name] += 1
        if name.isdecimal():
            handler.send_error(int(name))
            return
        if name == "twice" and self.requests[handler.command, name] < 2:
            handler.connection.close()
            return
        handler.send_response(200)
        if name != "nolength":
            handler.send_header("Content-Length", str(len(data) + 10 * (name == "cut")))
        handler.end_headers()
        handler.wfile.write(data)


def free_port():
    """A port at which nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()[1]
