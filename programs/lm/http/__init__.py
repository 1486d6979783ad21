"""One attempt at a call over HTTP: OpenAI's protocol by aiohttp, every other provider by LiteLLM.

Retries and limits are `programs.lm.limits`.
"""
