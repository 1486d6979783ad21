"""What the stand-in of the Files and Batch endpoints finds wrong, and how it shows jobs and errors."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/moderations")
ERRORS = {
    "400": (400, "Unsupported value", "invalid_value"),
    "401": (401, "Incorrect API key provided: sk-secret", "invalid_api_key"),
    "404": (404, "The model does not exist", "model_not_found"),
    "429": (429, "Rate limit reached", "rate_limit_exceeded"),
    "500": (500, "The server had an error", "server_error"),
    "filter": (400, "The response was filtered", "content_filter"),
    "long": (400, "This model's maximum context length is 10 tokens", "context_length_exceeded"),
}


def wrong_line(raw: bytes, endpoint: str, seen: set[str], models: set[str]) -> str | None:
    try:
        entry = json.loads(raw)
    except ValueError:
        return "invalid_json_line"
    if set(entry) != {"custom_id", "method", "url", "body"} or entry["method"] != "POST":
        return "missing_required_parameter"
    if not isinstance(entry["custom_id"], str) or len(entry["custom_id"]) > 64 or "messages" not in entry["body"]:
        return "invalid_request"
    if entry["url"] != endpoint:
        return "url_mismatch"
    if entry["custom_id"] in seen:
        return "duplicate_custom_id"
    seen.add(entry["custom_id"])
    models.add(entry["body"]["model"])
    return "model_mismatch" if len(models) > 1 else None


def fits(key: str, value: object) -> bool:
    """Whether a pair of metadata is taken."""
    return len(key) <= 64 and isinstance(value, str) and len(value) <= 512


def shown(job: dict[str, Any]) -> dict[str, Any]:
    shown = {name: value for name, value in job.items() if name not in ("number", "lines", "size")}
    return {**shown, "request_counts": dict(job["request_counts"])}


def error_response(
    status: int, message: str, code: str | None = None, headers: dict[str, str] | None = None
) -> web.Response:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return web.json_response({"error": error}, status=status, headers=headers)
