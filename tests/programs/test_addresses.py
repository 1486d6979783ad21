"""Where calls go: addresses and proxies that the environment names; a login in them stays with them."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import dspy
import pytest

from debate_judge.programs.lm.replies import SqlStore
from debate_judge.programs.lm.settings import LMOptions
from debate_judge.programs.make_lm import make_lm
from tests.hostile_server import HostileServer, answered, sized
from tests.programs.engines import QUESTION, ask

pytestmark = pytest.mark.integration
LOGIN = "someone:a-long-password"
ONCE = LMOptions(retries=0, first_wait=0.01, max_outage=0.01)


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI", "ANTHROPIC", "DEEPINFRA", "AZURE"):
        monkeypatch.setenv(f"{name}_API_KEY", "sk-of-a-test-of-proxies")
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def call(spec: str, url: str | None, **options: Any) -> str:
    return ask(make_lm(spec, api_base=url, options=ONCE, **options), QUESTION)[0].text


def proxy_address(proxy: HostileServer) -> str:
    return f"http://{LOGIN}@127.0.0.1:{proxy.port}"


@pytest.mark.parametrize("spec", ["openai/m", "anthropic/m", "deepinfra/m"])
def test_calls_go_through_the_proxy_of_the_environment(
    spec: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with HostileServer(answered) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy_address(proxy))
        monkeypatch.setenv("http_proxy", proxy_address(proxy))
        store = SqlStore(tmp_path)
        assert call(spec, "http://model.example/v1", store=store) == "Four."
        store.close()
    head = proxy.requests[-1].partition(b"\r\n\r\n")[0].decode()
    assert head.startswith("POST http://model.example/v1/")
    assert f"Proxy-Authorization: Basic {base64.b64encode(LOGIN.encode()).decode()}".lower() in head.lower()
    # The key is that of the provider, and the login is the proxy's.
    assert "sk-of-a-test-of-proxies" in head
    kept = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert b"a-long-password" not in kept + caplog.text.encode()


@pytest.mark.parametrize("spec", ["openai/m", "anthropic/m", "deepinfra/m"])
def test_no_proxy_is_respected(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with HostileServer(answered) as proxy, HostileServer(answered) as server:
        for name in ("HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, proxy_address(proxy))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,.example")
        monkeypatch.setenv("no_proxy", "127.0.0.1,.example")
        assert call(spec, server.url) == "Four."
        with pytest.raises(dspy.LMError):
            call(spec, "http://model.example/v1")
    assert proxy.requests == []


@pytest.mark.parametrize("spec", ["openai/m", "anthropic/m"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_refuses_ends_the_run_and_its_login_is_not_shown(
    spec: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with HostileServer(lambda _: [sized(b"", status=b"407 Proxy Authentication Required")]) as proxy:
        for name in (f"{scheme.upper()}_PROXY", f"{scheme}_proxy"):
            monkeypatch.setenv(name, proxy_address(proxy))
        with pytest.raises(dspy.LMError) as caught:
            # LiteLLM remembers the proxy of a host.
            call(spec, f"{scheme}://{scheme}.example/v1")
    # LiteLLM calls a tunnel that is refused an error of the connection.
    assert "407" in str(caught.value) or spec == "anthropic/m"
    assert not any(secret in str(caught.value) for secret in LOGIN.split(":"))
    assert (b"CONNECT https.example:443 " in proxy.requests[-1]) == (scheme == "https")


@pytest.mark.parametrize(
    ("spec", "variable", "path"),
    [
        ("openai/m", "OPENAI_BASE_URL", "/v1"),
        ("openai/m", "OPENAI_API_BASE", "/v1"),
        ("openai/m", "OPENAI_API_BASE", "/v1/"),
        ("hosted_vllm/m", "HOSTED_VLLM_API_BASE", "/v1"),
        ("anthropic/m", "ANTHROPIC_BASE_URL", ""),
        ("anthropic/m", "ANTHROPIC_API_BASE", "/v1"),
        ("deepinfra/m", "DEEPINFRA_API_BASE", "/v1"),
        ("azure/m", "AZURE_API_BASE", ""),
    ],
)
def test_the_address_of_the_environment_is_called_and_said(
    spec: str, variable: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with HostileServer(answered) as server:
        login = "me:a-password@" if spec.startswith("openai/") else ""
        monkeypatch.setenv(variable, server.origin.replace("http://", f"http://{login}") + path)
        lm = make_lm(spec, options=ONCE)
        assert lm.destination is not None
        assert f"texts go to {server.origin}{path.rstrip('/')}" in lm.destination
        assert "a-password" not in lm.destination
        assert call(spec, None) == "Four."
    target = server.requests[-1].split()[1].decode().partition("?")[0]
    assert target in ("/v1/chat/completions", "/v1/messages", "/openai/deployments/m/chat/completions")
