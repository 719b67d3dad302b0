"""A program that mypy --strict takes as it stands: types_test.py. It is not run."""
from __future__ import annotations

from typing import Callable, Optional

import dlock
from dlock.prometheus import Collector

client = dlock.Client("mem:")


@client.locked("nightly", timeout=0)
def nightly(number: int) -> int:
    return number


@client.locked(lambda customer: f"invoice-{customer}", pass_grant=True)
def write_invoice(customer: int, grant: dlock.Grant) -> int:
    return grant.fence


number: int = nightly(1) + write_invoice(7)
same: Callable[[int], int] = nightly
nightly("1")  # type: ignore[arg-type]
text: str = write_invoice(7)  # type: ignore[assignment]


def told(lost: dlock.Lost) -> None:
    why: Optional[dlock.Loss] = lost.why
    print(lost.name, lost.fence, why)


def work() -> Optional[float]:
    lock: dlock.Lock = client.lock("a", timeout=5, lease=10, on_lost=told)
    try:
        with lock as grant, dlock.acquire_all(client.lock("b"), client.lock("c")) as (second, third):
            fences: list[int] = [grant.fence, second.fence, third.fence]
            with dlock.acquire_any(client.lock("d"), timeout=1) as any_of_them:
                fences.append(any_of_them.fence)
            print(fences, grant.held)
            return grant.remaining
    except dlock.NotAcquired as error:
        print(error.code)
    taken: Optional[dlock.Grant] = lock.try_acquire()
    taken.release()  # type: ignore[union-attr]
    tried: Optional[dlock.Grant] = lock.acquire(blocking=False)
    waited: dlock.Grant = lock.acquire(timeout=-1)
    lock.release()
    print(tried, waited, lock.owned(), Collector(client))
    return None


async def main() -> None:
    async with dlock.AsyncClient("mem:") as tasks:

        @tasks.locked("report", timeout=5)
        async def report(day: str) -> str:
            return day

        @tasks.locked(lambda day: f"report-{day}", pass_grant=True)
        async def write_report(day: str, grant: dlock.AsyncGrant) -> int:
            return grant.fence

        fence: int = await write_report("today")
        day: str = await report("today")
        await report(1)  # type: ignore[arg-type]
        async with tasks.lock("a", cancel_on_lost=True) as grant, dlock.acquire_all(tasks.lock("b")) as grants:
            print(fence, day, grant.fence, [other.fence for other in grants])
        async with dlock.acquire_any(tasks.lock("a"), tasks.lock("b")) as any_of_them:
            print(any_of_them.fence)
