"""The disk cache: what it gives back, whose entries it takes, and that nothing but time depends on it."""

import os
import resource
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad import cache as cache_module
from kernelgrad.cache import DiskCache, Recent, digest
from kernelgrad.frontend import precompiled


@pytest.fixture(autouse=True)
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KERNELGRAD_CACHE_DIR", str(tmp_path / "cache"))
    cache_module._warn_once.cache_clear()
    return tmp_path / "cache"


def entry(cache_dir: Path) -> Path:
    (path,) = (p for p in cache_dir.rglob("*") if p.is_file())
    return path


def test_round_trip() -> None:
    cache, key = DiskCache("cpu"), digest("a", b"b")
    assert cache.get(key) is None
    cache.put(key, b"payload")
    assert cache.get(key) == b"payload"
    assert DiskCache("cuda").get(key) is None


def test_memory_holds_what_came_last() -> None:
    recent = Recent[int](2)
    for number, key in enumerate("abac"):
        recent[key] = number
    assert recent == {"b": 1, "c": 3}


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 64])
def test_a_damaged_entry_is_removed_and_replaced(cache_dir: Path, damage: bytes) -> None:
    cache, key = DiskCache("cpu"), digest("a")
    cache.put(key, b"payload")
    path = entry(cache_dir)
    path.write_bytes(damage)
    assert cache.get(key) is None
    assert not path.exists()
    cache.put(key, b"payload")
    assert cache.get(key) == b"payload"


def test_an_entry_is_good_under_its_own_name_only(cache_dir: Path) -> None:
    cache, key, other = DiskCache("cpu"), digest("a"), digest("b")
    cache.put(key, b"payload")
    path = cache_dir / "cpu" / other[:2] / other[2:]
    path.parent.mkdir(mode=0o700)
    shutil.copy(entry(cache_dir), path)
    assert cache.get(other) is None
    assert cache.get(key) == b"payload"


def test_digest_keeps_boundaries() -> None:
    assert digest("ab", "c") != digest("a", "bc")


def test_the_digest_of_a_folder_covers_its_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "__file__", str(tmp_path / "cache.py"))
    inner = tmp_path / "part" / "inner" / "file.py"
    inner.parent.mkdir(parents=True)
    found = set()
    for text in ("one", "two"):
        inner.write_text(text)
        cache_module.source_digest.cache_clear()
        found.add(cache_module.source_digest("part"))
    cache_module.source_digest.cache_clear()
    assert len(found) == 2


# ---- whose entries --------------------------------------------------------------------------------------------------


def open_to_others(path: Path) -> None:
    path.chmod(0o777 if path.is_dir() else 0o666)


def open_to_the_group(path: Path) -> None:
    path.chmod(0o770 if path.is_dir() else 0o660)


def given_away(path: Path) -> None:
    os.chown(path, 54321, -1)


@pytest.mark.parametrize("which", ["root", "kind", "prefix", "file"])
@pytest.mark.parametrize("change", [open_to_others, open_to_the_group, given_away])
def test_what_others_can_write_is_not_read(
    cache_dir: Path, which: str, change: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, key = DiskCache("cpu"), digest("a")
    cache.put(key, b"payload")
    path = entry(cache_dir)
    target = {"root": cache_dir, "kind": cache_dir / "cpu", "prefix": path.parent, "file": path}[which]
    if change is given_away and os.geteuid() != 0:  # only root can: look at it as somebody else
        monkeypatch.setattr(cache_module.os, "geteuid", lambda: 54321)
    else:
        change(target)  # type: ignore[operator]
    with pytest.warns(RuntimeWarning, match="does not use its cache"):
        assert cache.get(key) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it says so once
        assert cache.get(key) is None


def test_nothing_is_written_where_others_can_write(cache_dir: Path) -> None:
    cache_dir.mkdir()
    open_to_others(cache_dir)
    with pytest.warns(RuntimeWarning, match="chmod"):
        DiskCache("cpu").put(digest("a"), b"payload")
    assert list(cache_dir.rglob("*/*")) == []


def test_links_and_pipes_are_not_followed(cache_dir: Path, tmp_path: Path) -> None:
    cache, key = DiskCache("cpu"), digest("a")
    cache.put(key, b"payload")
    path = entry(cache_dir)
    moved = path.rename(tmp_path / "moved")
    path.symlink_to(moved)
    assert cache.get(key) is None
    path.unlink()
    os.mkfifo(path, 0o600)
    assert cache.get(key) is None


def test_what_is_made_is_closed_to_others(cache_dir: Path) -> None:
    before = os.umask(0)
    try:
        DiskCache("cpu").put(digest("a"), b"payload")
    finally:
        os.umask(before)
    made = [cache_dir, *cache_dir.rglob("*")]
    assert len(made) == 4
    assert [path for path in made if path.stat().st_mode & 0o077] == []


def test_no_entry_is_a_pickle() -> None:
    package = Path(cache_module.__file__).parent
    assert [f for f in package.rglob("*.py") if "import pickle" in f.read_text() or "marshal" in f.read_text()] == []


# ---- without a cache ------------------------------------------------------------------------------------------------

USE = """
import numpy as np, kernelgrad as kg
text = "__global__ void k(float *y, const float *x) { y[threadIdx.x] = x[threadIdx.x] * x[threadIdx.x]; }"
kernel = kg.compile(text)["k"]
x, y, d_x, d_y = (np.full(8, v, np.float32) for v in (3, 0, 0, 1))
kg.gradient(kernel, "y, x")[1, 8](y, x, d_y, d_x)
print(y[0], d_x[0])
"""


def use(environment: dict[str, str], **options: object) -> str:
    """In a process of its own."""
    command = [sys.executable, "-c", USE]
    environment = {k: v for k, v in {**os.environ, **environment}.items() if v}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=200, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr == ""
    return str(done.stdout)


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert use({"KERNELGRAD_CACHE_DIR": str(tmp_path / "file")}) == "9.0 6.0\n"


def test_no_home_and_a_folder_that_cannot_be_made() -> None:
    nowhere = {"KERNELGRAD_CACHE_DIR": "", "XDG_CACHE_HOME": "/proc/none", "HOME": ""}
    assert use(nowhere) == "9.0 6.0\n"


def test_a_disk_with_no_room(tmp_path: Path) -> None:
    """No file may grow past 4 KB here, memory files included: what LLVM would write ends the process that tries."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    shown = use({"KERNELGRAD_CACHE_DIR": str(tmp_path / "small")}, preexec_fn=limit)
    assert shown == "9.0 6.0\n"
    assert list((tmp_path / "small").rglob(".new-*")) == []


def test_writes_that_fail_leave_nothing(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache_module.os, "replace", full)
    DiskCache("cpu").put(digest("a"), b"payload")
    assert [path for path in cache_dir.rglob("*") if path.is_file()] == []
    assert DiskCache("cpu").get(digest("a")) is None


# ---- the precompiled header -----------------------------------------------------------------------------------------


@pytest.fixture
def fresh_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precompiled, "_headers", {})
    monkeypatch.setattr(precompiled, "_refused", set())


def is_usable() -> bool:
    kernel = kg.compile("__global__ void k(float *y) { y[0] = sinf(0.0f) + 2; }")["k"]
    y = np.zeros(1, np.float32)
    kernel[1, 1](y)
    return bool(y[0] == 2)


@pytest.mark.usefixtures("fresh_headers")
def test_a_damaged_header_is_made_again(cache_dir: Path) -> None:
    good = precompiled._header("c++17")
    (path,) = (p for p in (cache_dir / "prelude").rglob("*") if p.is_file())
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[: size // 2])
    assert is_usable()
    assert path.stat().st_size == size
    assert good is not None and good.is_there()


@pytest.mark.usefixtures("fresh_headers")
@pytest.mark.parametrize("content", [b"no header at all", b"CPCH" + bytes(1000)])
def test_a_header_that_clang_refuses_is_made_again(content: bytes) -> None:
    disk, key = DiskCache("prelude"), precompiled._key("c++17")
    disk.put(key, content)
    assert is_usable()
    assert len(disk.get(key) or b"") > 100_000


@pytest.mark.usefixtures("fresh_headers")
def test_without_a_way_to_make_one_the_prelude_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precompiled, "_make", lambda std: None)
    assert precompiled.prelude_arguments("c++17")[0] == "-include"
    assert is_usable()
    module = kg.compile(
        "#include <cooperative_groups.h>\n__device__ float c[3]; __global__ void k(float *y) { y[0] = c[1]; }"
    )
    assert module.functions == ["__global__ void k(float * y)"]


@pytest.mark.usefixtures("fresh_headers")
def test_a_header_that_went_away_is_put_back(cache_dir: Path) -> None:
    assert is_usable()
    shutil.rmtree(cache_dir)
    assert is_usable()
    header = precompiled._headers["c++17"]
    assert header is not None
    os.close(int(header.path.rpartition("/")[2]))  # as daemons do with all they find open
    assert not header.is_there()
    assert is_usable()


@pytest.mark.usefixtures("fresh_headers")
def test_a_header_in_a_file_where_memory_has_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    assert is_usable()
    header = precompiled._headers["c++17"]
    assert header is not None and header.path.endswith("prelude.pch")
    assert Path(header.path).parent.stat().st_mode & 0o077 == 0
