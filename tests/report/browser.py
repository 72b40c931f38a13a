"""A headless Chromium driven through its DevTools protocol over two pipes: nothing to install but the browser."""

import base64
import fcntl
import json
import os
import select
import shutil
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_browser():
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page. ``events`` collects everything the browser reports: console lines, exceptions, requests."""

    def __init__(self, profile):
        to_browser, self._out = _pipe()
        self._in, from_browser = _pipe()
        flags = "--headless=new --no-sandbox --disable-gpu --hide-scrollbars --no-first-run --remote-debugging-pipe"
        program = find_browser()
        silent = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
        pipes = [(os.POSIX_SPAWN_DUP2, to_browser, 3), (os.POSIX_SPAWN_DUP2, from_browser, 4)]
        command = [program, *flags.split(), f"--user-data-dir={profile}", "about:blank"]
        self._process = os.posix_spawn(program, command, os.environ, file_actions=[*silent, *pipes])
        os.close(to_browser)
        os.close(from_browser)
        self._buffer, self._number, self.events = b"", 0, []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        return self._call(method, session=self._session, **parameters)

    def _call(self, method, session=None, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        os.write(self._out, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self.events.append(answer)

    def _next(self, seconds=60):
        end = time.monotonic() + seconds
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0, end - time.monotonic()))
            assert ready, f"the browser said nothing for {seconds} seconds"
            read = os.read(self._in, 1 << 20)
            assert read, "the browser ended"
            self._buffer += read
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def open(self, url, width, scheme):
        """Load a page in a window of this width, ``light`` or ``dark``, and wait until it has loaded."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()
        self.call("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def run(self, expression):
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"]["value"]

    def complaints(self):
        """Errors and warnings of the console, and exceptions."""
        found = [event["params"] for event in self.events if event.get("method") == "Runtime.exceptionThrown"]
        for event in self.events:
            entry = event.get("params", {}).get("entry") if event.get("method") == "Log.entryAdded" else None
            if event.get("method") == "Runtime.consoleAPICalled" or entry:
                found.append(entry or event["params"])
        return found

    def requests(self):
        sent = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def screenshot(self, path, clip=None):
        """The whole page, or a part of it in pixels: (x, y, width, height)."""
        options = {"captureBeyondViewport": True}
        if clip:
            options["clip"] = dict(zip(("x", "y", "width", "height"), clip, strict=True)) | {"scale": 1}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", **options)["data"]))

    def pdf(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"]))

    def close(self):
        self._call("Browser.close")
        os.waitpid(self._process, 0)
        os.close(self._in)
        os.close(self._out)


def _pipe():
    """Both ends above the numbers 3 and 4, which the browser wants for itself."""
    ends = []
    for end in os.pipe():
        ends.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10))
        os.close(end)
    return ends
