import contextlib
import hashlib
import http.server
import threading
from functools import partial

import pytest

from lowvar_studies.datasets import readers
from lowvar_studies.datasets.catalogue import Dataset, RawFile

CONTENT = b"".join(b"%d.5,%d,%s\n" % (i, i % 7, b"yes" if i % 3 else b"no") for i in range(4000))


class Server:
    """A real HTTP server on a free port; each request takes the next of `answers`, the last one repeats."""

    def __init__(self):
        self.answers, self.requests, self.sent = [], [], 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.requests.append(self.path)
                status, body, length = outer.answers[min(len(outer.requests), len(outer.answers)) - 1]
                if status == "reset":
                    self.connection.close()
                    return
                self.send_response(status)
                self.send_header("Content-Length", str(length))
                self.end_headers()
                with contextlib.suppress(OSError):  # the client may hang up
                    for part in [body] if isinstance(body, bytes) else body:
                        self.wfile.write(part)
                        outer.sent += len(part)

            def log_message(self, format, *args):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def says(self, *answers):
        """Each answer: (status, body) or (status, body, the length that its header claims).

        A body is bytes, or an iterator of their parts; the status "reset" closes the connection.
        """
        self.answers = [(a[0], a[1], a[2] if len(a) > 2 else len(a[1])) for a in answers]

    def stop(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = Server()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def no_mirror(request, monkeypatch):
    """Only tests that are marked `mirror` see the machine's own mirror."""
    if request.node.get_closest_marker("mirror") is None:
        monkeypatch.delenv("LOWVAR_DATA_MIRROR", raising=False)


@pytest.fixture
def body():
    """What the file of `make` holds."""
    return CONTENT


@pytest.fixture
def make():
    """A catalogue entry of one small file."""

    def build(url="http://127.0.0.1:9/none"):
        content, name = CONTENT, "uci/tiny.csv"
        sha256 = hashlib.sha256(content).hexdigest()
        file = RawFile(name, f"{url}/{name}", sha256, len(content), "CC0", "Nobody (2000).")
        layout = {"separator": ",", "inputs": ("u", "v"), "labels": {"no": 0, "yes": 1}, "rows": content.count(b"\n")}
        read = partial(readers.table, name=name, **layout)
        return Dataset("tiny", "A tiny table", (file,), read, "CC0", "Nobody (2000).")

    return build
