"""A server of tools on the Python package mcp: over pipes, or with a port over HTTP."""

import sys

from mcp.server.mcpserver import Context, MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("peer")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
async def grow(ctx: Context) -> str:
    """Brings one more tool."""

    @server.tool()
    def late() -> str:
        """Is there late."""
        return "late answers"

    await ctx.notify_tools_changed()
    return "grown"


if len(sys.argv) > 1:
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
else:
    server.run("stdio")
