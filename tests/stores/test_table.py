"""What an error inside a call of LanceDB becomes."""

from __future__ import annotations

import pyarrow as pa
import pytest

from serve_app.errors import InvalidRequest, StorageFull, StoreUnavailable
from serve_app.stores.table import translated


@pytest.mark.parametrize(
    "error", [RuntimeError("lance error"), ValueError("not found"), OSError("gone"), TimeoutError(), pa.ArrowKeyError()]
)
def test_an_error_of_the_store_is_one_of_this_project_s(error: Exception) -> None:
    with pytest.raises(StoreUnavailable) as raised, translated():
        raise error
    assert raised.value.__cause__ is error


def test_a_disk_without_room_is_told_apart() -> None:
    with pytest.raises(StorageFull), translated():
        raise RuntimeError("lance error: LanceError(IO): No space left on device (os error 28)")


@pytest.mark.parametrize("defect", [TypeError, AttributeError, KeyError, InvalidRequest])
def test_what_is_no_error_of_the_store_stays_what_it_is(defect: type[Exception]) -> None:
    with pytest.raises(defect) as raised, translated():
        raise defect("ours")
    assert type(raised.value) is defect
