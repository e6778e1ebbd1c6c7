from pathlib import Path

import pytest

from kernelgrad.cache import DiskCache, digest


@pytest.fixture(autouse=True)
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KERNELGRAD_CACHE_DIR", str(tmp_path))
    return tmp_path


def entry(cache_dir: Path) -> Path:
    (path,) = (p for p in cache_dir.rglob("*") if p.is_file())
    return path


def test_round_trip() -> None:
    cache, key = DiskCache("cpu"), digest("a", b"b")
    assert cache.get(key) is None
    cache.put(key, b"payload")
    assert cache.get(key) == b"payload"
    assert DiskCache("cuda").get(key) is None


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 64])
def test_a_damaged_entry_counts_as_absent_and_is_replaced(cache_dir: Path, damage: bytes) -> None:
    cache, key = DiskCache("cpu"), digest("a")
    cache.put(key, b"payload")
    entry(cache_dir).write_bytes(damage)
    assert cache.get(key) is None
    cache.put(key, b"payload")
    assert cache.get(key) == b"payload"


def test_an_unwritable_cache_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocker = tmp_path / "file"
    blocker.write_bytes(b"")
    monkeypatch.setenv("KERNELGRAD_CACHE_DIR", str(blocker))
    DiskCache("cpu").put(digest("a"), b"payload")
    assert DiskCache("cpu").get(digest("a")) is None


def test_digest_keeps_boundaries() -> None:
    assert digest("ab", "c") != digest("a", "bc")
