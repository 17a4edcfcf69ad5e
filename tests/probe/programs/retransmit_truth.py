"""Drops packets of a connection in a network namespace of its own: retransmit_truth.py TRIPS OUT.

Run it under `unshare --net`. Writes two numbers to OUT: the segments sent again at both ends, as TCP_INFO counts them, and
the median of the sender's timeout in microseconds, which it tells in whole ticks.
"""

import socket
import statistics
import struct
import subprocess
import sys
import threading

RTO_US_AT, TOTAL_RETRANS_AT = 8, 100  # of struct tcp_info


def tcp_info(sock: socket.socket, at: int) -> int:
    return struct.unpack_from("I", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192), at)[0]


def echo(sock: socket.socket, trips: int) -> None:
    for _ in range(trips):
        sock.sendall(sock.recv(100))


def main() -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    listener = socket.create_server(("127.0.0.1", 0))
    port = str(listener.getsockname()[1])
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    for direction in ("--dport", "--sport"):
        subprocess.run(["iptables", "-A", "INPUT", "-p", "tcp", direction, port, "-m", "statistic", "--mode", "nth",
                        "--every", "9", "--packet", "0", "-j", "DROP"], check=True)  # fmt: skip
    trips = int(sys.argv[1])
    thread = threading.Thread(target=echo, args=(server, trips))
    thread.start()
    timeouts_us = []
    for _ in range(trips):
        client.sendall(b"x" * 100)
        client.recv(100)
        timeouts_us.append(tcp_info(client, RTO_US_AT))
    thread.join()
    with open(sys.argv[2], "w", encoding="ascii") as out:
        total = sum(tcp_info(end, TOTAL_RETRANS_AT) for end in (client, server))
        out.write(f"{total} {int(statistics.median(timeouts_us))}\n")


main()
