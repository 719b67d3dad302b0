#!/usr/bin/env python3
"""A pool of asyncio workers, each job once on all hosts, and a health page over HTTP.

pool.py URI PORT JOB...     PORT 0: any; the first line tells it. SIGTERM: begins no further jobs.
"""
import asyncio
import json
import signal
import sys

import dlock

WORKERS = 4


async def run(client, jobs):
    while not jobs.empty():
        name = jobs.get_nowait()
        try:
            # If the lock is lost the block is cancelled, at its next await, and raises dlock.Lost.
            async with client.lock(name, cancel_on_lost=True) as grant:
                print(name, "has fence", grant.fence, flush=True)
                await asyncio.sleep(1)  # the job
        except dlock.Lost as lost:
            print(name, "was interrupted:", lost.why.name, flush=True)
        except dlock.Canceled:
            print(name, "was called off", flush=True)
        except dlock.Error as error:
            print(name, "failed:", error, flush=True)


def page(client):
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        healthy = await client.healthy(max_age=10)
        held = {grant.name: grant.fence for grant in client.grants()}
        status = "200 OK" if healthy else "503 Service Unavailable"
        writer.write(f"HTTP/1.0 {status}\r\nContent-Type: application/json\r\n\r\n{json.dumps(held)}\n".encode())
        await writer.drain()
        writer.close()

    return answer


async def main(uri, port, *names):
    jobs = asyncio.Queue()
    for name in names:
        jobs.put_nowait(name)
    async with dlock.AsyncClient(uri, label="example pool") as client:
        server = await asyncio.start_server(page(client), "127.0.0.1", int(port))
        print("health: port", server.sockets[0].getsockname()[1], flush=True)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, client.stop)
        await asyncio.gather(*(run(client, jobs) for _ in range(WORKERS)))
        server.close()


if len(sys.argv) < 4:
    sys.exit(__doc__)
asyncio.run(main(*sys.argv[1:]))
