"""Which socket a descriptor was, by the ring, against the program's own getsockname and getpeername."""
from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
import unittest
from typing import Any, Iterator

from tailspan import _context as ctx

REPORT = ctx.install_loop()

from ring import Recording  # noqa: E402


def text(address: Any) -> str:
    host, port = address[0].removeprefix("::ffff:"), address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Log:
    """What the program itself knows of a descriptor at a moment."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def note(self, end: Any) -> None:
        fd = end.fileno()
        self.seen.append({"at": time.monotonic_ns(), "fd": fd, "inode": os.fstat(fd).st_ino,
                          "local": text(end.getsockname()), "remote": text(end.getpeername())})


def at(recording: Recording, fd: int, moment_ns: int) -> dict[str, Any]:
    """The descriptor's socket at a moment, from the records alone."""
    return max((s for s in recording.sockets if s["fd"] == fd and s["from"] <= moment_ns),
               key=lambda s: (s["from"], s["remote"] != ""))


@contextlib.contextmanager
def full_listener() -> Iterator[tuple[socket.socket, list[socket.socket]]]:
    """A listener whose queue is full: connections to it hang until something is accepted."""
    with socket.socket() as listener, contextlib.ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        held = []
        for _ in range(2):
            end = stack.enter_context(socket.socket())
            end.setblocking(False)
            end.connect_ex(listener.getsockname())
            held.append(end)
        time.sleep(0.01)
        yield listener, held


class SocketsTest(unittest.TestCase):
    def check(self, recording: Recording, log: Log) -> None:
        self.assertEqual(recording.loss, {})
        self.assertTrue(all(s["registered"] for s in recording.sockets))
        for seen in log.seen:
            told = at(recording, seen["fd"], seen["at"])
            self.assertEqual({key: told[key] for key in ("inode", "local", "remote")},
                             {key: seen[key] for key in ("inode", "local", "remote")}, seen)

    def test_short_connections_at_both_ends(self) -> None:
        log = Log()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            log.note(writer.get_extra_info("socket"))
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
            await writer.drain()
            log.note(writer.get_extra_info("socket"))
            writer.close()

        async def ask(port: int) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            log.note(writer.get_extra_info("socket"))
            writer.write(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
            self.assertTrue((await reader.read()).endswith(b"ok"))
            log.note(writer.get_extra_info("socket"))
            writer.close()

        async def main() -> None:
            server = await asyncio.start_server(answer, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            log_server.append((server.sockets[0].fileno(), f"127.0.0.1:{port}"))
            for _ in range(50):
                await asyncio.gather(*(ask(port) for _ in range(4)))
            server.close()
            await server.wait_closed()

        log_server: list[tuple[int, str]] = []
        with Recording() as recording:
            asyncio.run(main())
        self.assertEqual(len(log.seen), 800)
        self.assertLess(len({seen["fd"] for seen in log.seen}), 20)  # numbers came back, many times
        self.check(recording, log)
        connected = [s for s in recording.sockets if s["remote"]]
        self.assertEqual({(s["fd"], s["inode"]) for s in connected}, {(s["fd"], s["inode"]) for s in log.seen})
        self.assertEqual(len({s["inode"] for s in connected}), 400)
        self.assertEqual(len(connected), 400)  # each once
        fd, address = log_server[0]
        self.assertIn((fd, address, ""), [(s["fd"], s["local"], s["remote"]) for s in recording.sockets])

    def test_each_moment_is_before_the_sockets_first_step(self) -> None:
        log = Log()

        async def main() -> None:
            async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await reader.read()
                writer.close()

            server = await asyncio.start_server(answer, "127.0.0.1", 0)
            for _ in range(20):
                _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
                log.note(writer.get_extra_info("socket"))
                writer.close()
                await writer.wait_closed()
            await asyncio.sleep(0.01)
            server.close()

        with Recording() as recording:
            asyncio.run(main())
        reads = [s for s in recording.steps if s["kind"] in ("io_read", "io_write")]
        self.assertGreaterEqual(len(reads), 60)
        for step in reads:
            self.assertLess(at(recording, step["fd"], step["ready"])["from"], step["ready"])
        for seen in log.seen:  # the steps that connected and read it are of this socket, not of the number's next
            end = min((s["from"] for s in recording.sockets if s["fd"] == seen["fd"] and s["from"] > seen["at"]),
                      default=1 << 63)
            begin = at(recording, seen["fd"], seen["at"])["from"]
            own = [s for s in reads if s["fd"] == seen["fd"] and begin < s["ready"] < end]
            self.assertEqual([s["site_name"].endswith("sock_connect") for s in own], [True] + [False] * (len(own) - 1))
            self.assertEqual(own[0]["kind"], "io_write")

    def test_ipv4_in_ipv6_is_ipv4_and_ipv6_is_itself(self) -> None:
        if not socket.has_dualstack_ipv6():
            self.skipTest("no IPv6 on this host")
        log = Log()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            log.note(writer.get_extra_info("socket"))
            writer.close()

        async def main() -> None:
            both = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
            server = await asyncio.start_server(answer, sock=both)
            for host in ("127.0.0.1", "::1"):
                reader, writer = await asyncio.open_connection(host, both.getsockname()[1])
                log.note(writer.get_extra_info("socket"))
                await reader.read()
                writer.close()
            server.close()

        with Recording() as recording:
            asyncio.run(main())
        self.assertEqual(len(log.seen), 4)
        self.check(recording, log)
        texts = [s["remote"] for s in recording.sockets if s["remote"]]
        self.assertEqual([t.startswith("127.0.0.1:") for t in texts].count(True), 2)
        self.assertEqual([t.startswith("[::1]:") for t in texts].count(True), 2)

    def test_a_number_that_comes_back_as_no_ip_socket(self) -> None:
        async def main() -> None:
            server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            fd = writer.get_extra_info("socket").fileno()
            await reader.read()
            writer.close()
            await writer.wait_closed()
            loop = asyncio.get_running_loop()
            for kind in ("local socket", "pipe"):
                a, b = (end.detach() for end in socket.socketpair()) if kind == "local socket" else os.pipe()
                os.dup2(a, fd)
                loop.add_reader(fd, lambda: None)
                kinds.append((kind, fd, time.monotonic_ns(), os.fstat(fd).st_ino))
                loop.remove_reader(fd)
                for number in {a, b, fd}:
                    os.close(number)
            server.close()

        kinds: list[tuple[str, int, int, int]] = []
        with Recording() as recording:
            asyncio.run(main())
        for kind, fd, moment, inode in kinds:
            told = at(recording, fd, moment)
            self.assertEqual((told["local"], told["remote"]), ("", ""))
            self.assertEqual(told["inode"], inode if kind == "local socket" else 0)

    def test_whom_it_connects_to_before_there_is_a_connection(self) -> None:
        async def main() -> None:
            with full_listener() as (listener, _), socket.socket() as end:
                end.setblocking(False)
                log["fd"], log["remote"] = end.fileno(), text(listener.getsockname())
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(asyncio.get_running_loop().sock_connect(end, listener.getsockname()), 0.05)
                log["at"], log["local"] = time.monotonic_ns(), text(end.getsockname())
                with self.assertRaises(OSError):
                    end.getpeername()

        log: dict[str, Any] = {}
        with Recording() as recording:
            asyncio.run(main())
        told = at(recording, log["fd"], log["at"])
        self.assertEqual((told["local"], told["remote"]), (log["local"], log["remote"]))

    def test_told_again_when_the_peer_is_known(self) -> None:
        """A library that connects by itself and lets the loop wait for it: no address in any callback."""
        async def main() -> None:
            loop = asyncio.get_running_loop()
            with full_listener() as (listener, _), socket.socket() as end:
                end.setblocking(False)
                end.connect_ex(listener.getsockname())
                connected = loop.create_future()
                loop.add_writer(end, lambda: connected.done() or connected.set_result(None))
                log["first"] = time.monotonic_ns()
                await asyncio.sleep(0.01)
                listener.setblocking(False)
                deadline = loop.time() + 10  # the request to connect is sent again after a second
                while not connected.done() and loop.time() < deadline:
                    with contextlib.suppress(BlockingIOError):
                        accepted.append(listener.accept()[0])
                    await asyncio.sleep(0.01)
                for _ in range(3):
                    loop.add_reader(end, lambda: None)
                    loop.remove_reader(end)
                log["fd"], log["remote"] = end.fileno(), text(end.getpeername())
                loop.remove_writer(end)
            for end in accepted:
                end.close()

        accepted: list[socket.socket] = []
        log: dict[str, Any] = {}
        with Recording() as recording:
            asyncio.run(main())
        own = [s for s in recording.sockets if s["fd"] == log["fd"]]
        self.assertEqual([s["remote"] for s in own], ["", log["remote"]])
        self.assertEqual(own[0]["from"], own[1]["from"])
        self.assertLess(own[0]["from"], log["first"])

    def test_once_a_socket_not_once_a_step(self) -> None:
        async def main() -> None:
            loop = asyncio.get_running_loop()
            listener = socket.create_server(("127.0.0.1", 0))
            ends = [socket.create_connection(listener.getsockname()), listener.accept()[0]]
            for end in ends:
                end.setblocking(False)
            for i in range(100):  # each registers and unregisters
                receive = asyncio.create_task(loop.sock_recv(ends[i % 2], 10))
                await asyncio.sleep(0)
                await loop.sock_sendall(ends[1 - i % 2], b"x")
                await receive
            numbers.extend(end.fileno() for end in ends)
            for end in (*ends, listener):
                end.close()

        numbers: list[int] = []
        with Recording() as recording:
            asyncio.run(main())
        self.assertGreaterEqual(len([s for s in recording.steps if s["fd"] in numbers]), 100)
        self.assertEqual(sorted(s["fd"] for s in recording.sockets if s["remote"]), sorted(numbers))

    def test_a_forked_child_tells_what_it_inherits(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))

        async def wait() -> None:
            loop = asyncio.get_running_loop()
            loop.add_reader(listener, lambda: None)
            await asyncio.sleep(0.01)
            loop.remove_reader(listener)

        asyncio.run(wait())
        go_read, go_write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(go_write)
            os.read(go_read, 1)
            asyncio.run(wait())
            os._exit(0)
        os.close(go_read)
        with Recording(child) as recording:
            os.close(go_write)
            os.waitpid(child, 0)
        told = [s["local"] for s in recording.sockets if s["fd"] == listener.fileno()]
        self.assertEqual(told, [text(listener.getsockname())])
        listener.close()


if __name__ == "__main__":
    unittest.main(verbosity=1)
