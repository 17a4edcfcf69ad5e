"""gunicorn's worker class on asyncio's own loop, where its steps are recorded; the stock one takes uvloop if it can."""

from typing import Any

from uvicorn.workers import UvicornWorker


class AsyncioWorker(UvicornWorker):
    CONFIG_KWARGS: dict[str, Any] = {"loop": "asyncio", "http": "h11"}
