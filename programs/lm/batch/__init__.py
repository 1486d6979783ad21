"""OpenAI's Batch API behind the same interface as direct calls: jobs made, followed, resumed and read."""
