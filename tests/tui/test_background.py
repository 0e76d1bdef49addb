"""Work in a thread that quitting never waits for."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from tui.background import in_background


async def test_results_and_errors_arrive() -> None:
    assert await in_background(lambda: 7) == 7

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await in_background(fail)


async def test_one_that_is_given_up_does_no_harm() -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(in_background(lambda: asyncio.run(asyncio.sleep(0.2))), 0.01)
    await asyncio.sleep(0.3)


def test_a_program_ends_while_it_hangs() -> None:
    program = (
        "import asyncio, time\n"
        "from tui.background import in_background\n"
        "async def main():\n"
        "    task = asyncio.ensure_future(in_background(lambda: time.sleep(600)))\n"
        "    await asyncio.sleep(0.1)\n"
        "    task.cancel()\n"
        "asyncio.run(main())\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
