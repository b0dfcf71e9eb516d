"""A host on the Python package mcp: over HTTP with a URL and a token, or over the pipes of a program.

usage: host.py MODE http URL TOKEN | host.py MODE stdio PROGRAM ARGUMENT...
"""

import asyncio
import json
import os
import sys

import httpx2
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client


async def use(server, mode):
    notes = []

    async def progress(done, total, message):
        notes.append(message)

    async with Client(server, mode=mode) as client:
        tools = await client.list_tools()
        spawned = await client.call_tool("spawn", {"task": "[look]"})
        run = spawned.structured_content["runId"]
        waited = await client.call_tool(
            "wait", {"runIds": [run], "timeout": 240}, progress_callback=progress
        )
        refused = await client.call_tool("status", {"runId": "none"})
        result = await client.read_resource(f"abide://result/{run}")
        told = {
            "tools": [tool.name for tool in tools.tools],
            "version": client.session.protocol_version,
            "result": waited.structured_content["runs"][0]["result"],
            "refused": refused.is_error,
            "resource": result.contents[0].text,
            "progress": len(notes),
        }
    print(json.dumps(told))


async def main():
    mode, transport, *rest = sys.argv[1:]
    if transport == "stdio":
        program, *arguments = rest
        server = StdioServerParameters(command=program, args=arguments, env=dict(os.environ))
        await use(server, mode)
        return
    url, token = rest
    headers = {"Authorization": f"Bearer {token}"}
    timeout = httpx2.Timeout(240)
    async with httpx2.AsyncClient(headers=headers, timeout=timeout) as http:
        await use(streamable_http_client(url, http_client=http), mode)


asyncio.run(main())
