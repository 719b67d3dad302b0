"""What the proxies of the tests have in common: each is an HTTP server on loopback that passes requests on to etcd, or
answers itself."""
import http.client
import http.server


def ask(server, path, body, headers=None):
    """Returns the status and the text of the server's answer."""
    connection = http.client.HTTPConnection(server)
    connection.request("POST", path, body, headers or {})
    response = connection.getresponse()
    answer = response.read()
    connection.close()
    return response.status, answer


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def read_body(self):
        return self.rfile.read(int(self.headers["Content-Length"]))

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *args):
        """Says nothing: connections end by reset."""


def serve(handler):
    """Prints the port, and serves until the process is ended."""
    server = Server(("127.0.0.1", 0), handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()
