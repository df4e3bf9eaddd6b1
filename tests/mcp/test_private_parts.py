"""
The private parts of libraries that are replaced or used here are still there, and still what decides.

A name that a library has renamed can be set all the same, and then nothing is replaced: what a server sends is parsed without
bounds, or a connection is made that nobody has judged. So pyproject.toml pins these libraries to a minor version, and this
fails when a newer one is tried.
"""

import inspect
import re
from types import FunctionType, ModuleType

import httpcore2
import httpx2
import pynvim
from mcp.client import _transport, streamable_http
from mcp.client.session import ClientSession


def uses(where: ModuleType | type | FunctionType, name: str) -> bool:
    """Say whether the code there reads the name, beside where it defines or imports it."""
    code = "\n".join(
        line
        for line in inspect.getsource(where).splitlines()
        if not re.match(r"\s*(from|import) ", line)
    )
    return re.search(rf"(?<!def ){re.escape(name)}[.(]", code) is not None


def test_transport_of_mcp_parses_messages_with_what_is_replaced():
    assert hasattr(streamable_http, "jsonrpc_message_adapter")
    assert uses(streamable_http, "jsonrpc_message_adapter")


def test_session_of_mcp_judges_results_with_what_is_replaced():
    assert callable(ClientSession.validate_tool_result)
    assert uses(ClientSession, "validate_tool_result")


def test_transport_of_mcp_has_the_type_of_its_streams():
    assert hasattr(_transport, "TransportStreams")


def test_transport_of_httpx_sends_through_the_pool_that_is_replaced():
    transport = httpx2.AsyncHTTPTransport(trust_env=False)
    assert isinstance(transport._pool, httpcore2.AsyncConnectionPool)
    assert uses(httpx2.AsyncHTTPTransport.handle_async_request, "self._pool")


def test_client_of_pynvim_has_the_session_that_is_run():
    assert uses(pynvim.Nvim, "self._session")
