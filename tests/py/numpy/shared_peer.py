"""A process that has nothing to do with the one that shares: it gets handles over a socket, whose path is its argument, and does what it is told."""

import socket
import sys
import time

import tack_memory.numpy as tn

with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
    connection.connect(sys.argv[1])
    attached = []
    while command := connection.recv(1):
        if command == b"a":
            with tn.Handle.receive(connection) as handle:
                attached.append(handle.attach())
        elif command == b"w":
            attached[-1][...] += 1
        elif command == b"d":
            attached.clear()
        elif command == b"s":
            time.sleep(600)  # to be killed
        connection.sendall(b"k")
