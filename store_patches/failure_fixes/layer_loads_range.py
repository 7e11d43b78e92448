"""Where layers are ranges of one object, an error of any kind counts as a failed load."""

from __future__ import annotations

import functools
from collections.abc import Callable


def _fails_as_exception(handle_range_request: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(handle_range_request)
    def failing(self, *arguments, **named) -> None:
        try:
            handle_range_request(self, *arguments, **named)
        except Exception:
            raise
        except BaseException as error:
            # The caller releases the layer in any case, but marks it for an Exception only.
            raise RuntimeError(f"{self.name} was told to end during a transfer") from error

    return failing
