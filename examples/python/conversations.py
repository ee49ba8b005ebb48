"""A webhook that answers conversations: one message of a conversation at a time, in order of arrival.

    scripts/clients/python run examples/python/conversations.py [redis://127.0.0.1:6379] [PORT]

Start as many as you like, on several machines. Messages of different conversations are answered side by side. All that wait in a
process share one connection, so there may be thousands of them. A message is answered by 200 when its handler is done; by 503
if it was not, and the sender sends it again.

    curl -d "hello" http://127.0.0.1:8000/ann
"""

import asyncio
import sys

import redis.asyncio

import fairlock
import fairlock.aio


class Conversations:
    def __init__(self, url):
        # After a crash, the next message of a conversation is answered when the lease is over.
        self.locks = fairlock.aio.Locks(redis.asyncio.Redis.from_url(url), lease=9, wait=300)

    async def on_message(self, conversation, text):
        """Waits until all earlier messages of the conversation are answered."""
        async with self.locks(f"conversation:{conversation}") as held:
            return await unless_lost(held, answer(text, held.token))


async def answer(text, token):
    """What takes its time: a model is asked, an order is placed, ... The token goes with all that is written."""
    await asyncio.sleep(60 if text == "a hard question" else 0.02)
    return f"{text}? (token {token})"


async def unless_lost(held, work):
    """The handler's result; a handler whose lock is lost is cancelled."""
    handler, lost = asyncio.ensure_future(work), asyncio.ensure_future(held.lost.wait())
    try:
        await asyncio.wait([handler, lost], return_when=asyncio.FIRST_COMPLETED)
        return await handler if handler.done() else None  # The end of the `async with` says that it was lost.
    finally:
        handler.cancel()
        lost.cancel()
        await asyncio.gather(handler, lost, return_exceptions=True)  # It has ended when the lock is released.


async def serve(conversations, port):
    """Just enough HTTP."""

    async def connected(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split()
        text = await reader.readexactly(int(head[head.index("content-length:") + 1]))
        conversation = head[1].strip("/")
        try:
            status, said = "200 OK", await conversations.on_message(conversation, text.decode())
        except fairlock.FairlockError as error:
            status, said = "503 Service Unavailable", str(error)
            print(f"{conversation}: {error}", flush=True)
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(said) + 1}\r\nConnection: close\r\n\r\n{said}\n".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", port, backlog=1000)
    print("listening on", server.sockets[0].getsockname()[1], flush=True)
    async with conversations.locks, server:
        await server.serve_forever()


async def main(url="redis://127.0.0.1:6379", port=8000):
    await serve(Conversations(url), int(port))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
