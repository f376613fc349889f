"""A real HTTP server in a thread that gives prepared answers and keeps what it was asked."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Answering:
    """`answers` maps a path prefix to a list of (status, headers, body); the last one repeats."""

    def __init__(self, answers):
        self.answers = {prefix: list(given) for prefix, given in answers.items()}
        self.asked = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self):
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                outer.asked.append((self.command, self.path, dict(self.headers), body))
                status, headers, answer = outer.next_answer(self.path)
                content = json.dumps(answer).encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 - the names that http.server calls

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def next_answer(self, path):
        for prefix, given in self.answers.items():
            if path.startswith(prefix):
                return given.pop(0) if len(given) > 1 else given[0]
        return 404, {}, {"code": "not_found", "detail": path}

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
