"""The C library as host programs use it: text, numbers, files, clocks, random numbers. None of it has a derivative.

Addresses are addresses: what only reads numbers and text is the C library's own.
"""

from __future__ import annotations

import ctypes
import re
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Any

from ..errors import ProgramError
from ..ir.ops import HostCall
from .memory import read_bytes

Handler = Callable[..., Any]
_CONVERSION = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?(?:hh|h|ll|l|z|j|t|L)?([a-zA-Z%])")
STDIN, STDOUT, STDERR = 1, 2, 3
STANDARD = {"stdin": STDIN, "stdout": STDOUT, "stderr": STDERR}
_OUT = {STDOUT: lambda: sys.stdout, STDERR: lambda: sys.stderr}


class Exit(Exception):
    """The program called `exit`."""

    def __init__(self, code: int):
        self.code = code


# ---- text ---------------------------------------------------------------------------------------------------------


def text_at(run: Any, address: int, op: HostCall) -> str:
    """A string, which ends in its allocation."""
    found = run.memory.at(address, op.span, "reads")
    data = read_bytes(address, found.end - address)
    end = data.find(b"\0")
    if end < 0:
        raise ProgramError(f"reads text without an end in {found.shown}", op.span)
    return data[:end].decode(errors="replace")


def formatted(run: Any, format: str, args: list[Any], op: Any = None) -> str:
    rest = iter(args)

    def conversion(match: re.Match[str]) -> str:
        flags, width, precision, kind = match.groups()
        if kind == "%":
            return "%"
        width = str(next(rest)) if width == "*" else width or ""
        precision = str(next(rest)) if precision == "*" else precision
        value = next(rest, 0)
        shown = f"%{flags}{width}" + (f".{precision}" if precision is not None else "")
        return _convert(run, shown, kind, value, op)

    return _CONVERSION.sub(conversion, format)


def _convert(run: Any, shown: str, kind: str, value: Any, op: Any) -> str:
    if kind == "s":
        return (shown + "s") % (text_at(run, value, op) if value else "(null)")
    if kind == "p":
        return hex(value) if value else "(nil)"
    if kind in "uxXo" and value < 0:
        value += 1 << (32 if value >= -(1 << 31) else 64)
    return (shown + {"u": "d", "i": "d"}.get(kind, kind)) % (chr(value & 255) if kind == "c" else value)


def _put(run: Any, file: int, text: str) -> int:
    if file in _OUT:
        run.state.write(text, _OUT[file]())
    else:
        data = text.encode()
        _libc().fwrite(data, 1, len(data), file)
    return len(text)


def _printf(run: Any, op: HostCall, format: int, *args: Any) -> int:
    return _put(run, STDOUT, formatted(run, text_at(run, format, op), list(args), op))


def _fprintf(run: Any, op: HostCall, file: int, format: int, *args: Any) -> int:
    return _put(run, file, formatted(run, text_at(run, format, op), list(args), op))


def _sprintf(run: Any, op: HostCall, to: int, format: int, *args: Any) -> int:
    return _snprintf(run, op, to, 1 << 62, format, *args)


def _snprintf(run: Any, op: HostCall, to: int, nbytes: int, format: int, *args: Any) -> int:
    data = formatted(run, text_at(run, format, op), list(args), op).encode()
    if nbytes:
        _write(run, op, to, data[: nbytes - 1] + b"\0")
    return len(data)


def _write(run: Any, op: HostCall, to: int, data: bytes) -> None:
    run.memory.check_host(to, len(data), op.span, "writes")
    run.machine.write(to, data, op.span)


def _puts(run: Any, op: HostCall, text: int) -> int:
    return _put(run, STDOUT, text_at(run, text, op) + "\n")


def _fputs(run: Any, op: HostCall, text: int, file: int) -> int:
    return _put(run, file, text_at(run, text, op))


def _putchar(run: Any, op: HostCall, c: int, file: int = STDOUT) -> int:
    _put(run, file, chr(c & 255))
    return c


def _strcpy(run: Any, op: HostCall, to: int, of: int, most: int | None = None) -> int:
    data = text_at(run, of, op).encode()
    _write(run, op, to, data + b"\0" if most is None else data[:most].ljust(most, b"\0"))
    return to


def _strcat(run: Any, op: HostCall, to: int, of: int) -> int:
    _strcpy(run, op, to + len(text_at(run, to, op).encode()), of)
    return to


# ---- streams of C++ -----------------------------------------------------------------------------------------------


def _stream_out(run: Any, op: HostCall, stream: int, value: Any) -> int:
    type = op.args[1].type
    if hasattr(type, "pointee"):
        text = text_at(run, value, op) if str(type.pointee) == "i8" else hex(value)
    else:
        text = f"{value:g}" if isinstance(value, float) else str(int(value))
        if isinstance(value, float) and run.state.precision is not None:
            text = run.state.shown_float(value)
    return _stream_put(run, stream, text)


def _stream_put(run: Any, stream: int, text: str) -> int:
    text, run.state.columns = text.rjust(run.state.columns, run.state.filler), 0
    file = int.from_bytes(read_bytes(stream, 8), "little")
    if file:
        _put(run, file, text)
        return stream
    _put(run, STDERR if run.state.name_at(stream) in ("std::cerr", "std::clog") else STDOUT, text)
    return stream


def _stream_char(run: Any, op: HostCall, stream: int, value: int) -> int:
    return _stream_put(run, stream, chr(value & 255))


def _stream_struct(run: Any, op: HostCall, stream: int, value: int) -> int:
    name = run.state.name_at(value)
    if name in ("std::endl", "std::ends"):
        return _stream_put(run, stream, "\n" if name == "std::endl" else "")
    if name:
        run.state.manipulate(name)
        return stream
    data = read_bytes(value, 8)
    run.state.set_format(int.from_bytes(data[:4], "little"), int.from_bytes(data[4:], "little"))
    return stream


def _stream_write(run: Any, op: HostCall, stream: int, of: int, count: int) -> int:
    run.memory.check_host(of, count, op.span, "reads")
    return _stream_put(run, stream, read_bytes(of, count).decode(errors="replace"))


# ---- files --------------------------------------------------------------------------------------------------------


@cache
def _libc() -> Any:
    library = ctypes.CDLL(None)
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    library.fopen.restype = pointer
    library.fwrite.argtypes = [pointer, size, size, pointer]
    library.fread.argtypes = [pointer, size, size, pointer]
    library.fread.restype = library.fwrite.restype = size
    library.fgets.argtypes = [pointer, ctypes.c_int, pointer]
    library.fgets.restype = pointer
    return library


def _fopen(run: Any, op: HostCall, name: int, mode: int) -> int:
    found = _libc().fopen(text_at(run, name, op).encode(), text_at(run, mode, op).encode())
    return int(found or 0)


def _fread(run: Any, op: HostCall, to: int, nbytes: int, count: int, file: int) -> int:
    data = ctypes.create_string_buffer(max(1, nbytes * count))
    found = int(_libc().fread(data, nbytes, count, file))
    _write(run, op, to, data.raw[: found * nbytes])
    return found


def _fwrite(run: Any, op: HostCall, of: int, nbytes: int, count: int, file: int) -> int:
    run.memory.check_host(of, nbytes * count, op.span, "reads")
    return int(_libc().fwrite(of, nbytes, count, file))


def _fgets(run: Any, op: HostCall, to: int, nbytes: int, file: int) -> int:
    data = ctypes.create_string_buffer(max(1, nbytes))
    if not _libc().fgets(data, nbytes, file):
        return 0
    _write(run, op, to, data.value + b"\0")
    return to


_SCANNED = re.compile(r"%(\*?)(\d*)(hh|h|ll|l|z)?(\[\^?\]?[^\]]*\]|[a-zA-Z%])")
_SIZES = {"hh": 1, "h": 2, "": 4, "l": 8, "ll": 8, "z": 8}


def _scan(run: Any, op: HostCall, name: str, source: Any, format: int, places: tuple[int, ...]) -> int:
    """Reads into memory of our own, and writes what was read as the program would."""
    text = text_at(run, format, op)
    wanted = [m.groups()[2:] for m in _SCANNED.finditer(text) if not m[1] and m[4] != "%"]
    buffers = [ctypes.create_string_buffer(1 << 14) for _ in wanted]
    found = int(getattr(_libc(), name)(source, text.encode(), *buffers))
    for k, ((length, kind), buffer) in enumerate(zip(wanted, buffers, strict=True)):
        if k < found or kind == "n":
            is_text = kind == "s" or kind.startswith("[")
            size = 1 if kind == "c" else _SIZES[length or ""]
            _write(run, op, places[k], buffer.value + b"\0" if is_text else buffer.raw[:size])
    return found


def _fscanf(run: Any, op: HostCall, file: int, format: int, *places: int) -> int:
    if file in STANDARD.values():
        raise ProgramError("reads what is typed, which no program can here", op.span)
    return _scan(run, op, "fscanf", ctypes.c_void_p(file), format, places)


def _sscanf(run: Any, op: HostCall, text: int, format: int, *places: int) -> int:
    return _scan(run, op, "sscanf", text_at(run, text, op).encode(), format, places)


def _open_text(run: Any, op: HostCall) -> int:
    _libc().tmpfile.restype = ctypes.c_void_p
    return int(_libc().tmpfile() or 0)


def _text_of(run: Any, op: HostCall, file: int) -> int:
    library = _libc()
    size = int(_own("ftell", _LONG, _AT)(run, op, file))
    data = ctypes.create_string_buffer(max(1, size))
    _own("rewind", None, _AT)(run, op, file)
    library.fread(data, 1, size, file)
    return _new_text(run, op, data.raw[:size])


def _new_text(run: Any, op: HostCall, data: bytes) -> int:
    made = run.memory.allocate(len(data) + 1, "host", op.span)
    _write(run, op, made.start, data + b"\0")
    return int(made.start)


def _strtok(run: Any, op: HostCall, text: int, separators: int) -> int:
    """The place where it goes on is the library's own variable."""
    between = text_at(run, separators, op).encode()
    at = text or run.state.token
    data = text_at(run, at, op).encode() if at else b""
    start = next((k for k, c in enumerate(data) if c not in between), None)
    if start is None:
        run.state.token = 0
        return 0
    end = next((k for k in range(start, len(data)) if data[k] in between), None)
    run.state.token = 0 if end is None else at + end + 1
    if end is not None:
        _write(run, op, at + end, b"\0")
    return int(at + start)


def _rand_r(run: Any, op: HostCall, seed: int) -> int:
    own = ctypes.c_uint(int.from_bytes(read_bytes(seed, 4), "little"))
    found = ctypes.CDLL(None).rand_r(ctypes.byref(own))
    _write(run, op, seed, int(own.value).to_bytes(4, "little"))
    return int(found)


# ---- time, numbers, the end ---------------------------------------------------------------------------------------


def _time(run: Any, op: HostCall, to: int) -> int:
    now = int(time.time())
    if to:
        _write(run, op, to, now.to_bytes(8, "little"))
    return now


def _clock_of_day(run: Any, op: HostCall, to: int, scale: int) -> int:
    now = time.time_ns()
    seconds, rest = divmod(now, 10**9)
    _write(run, op, to, seconds.to_bytes(8, "little") + (rest // scale).to_bytes(8, "little"))
    return 0


def _exit(run: Any, op: HostCall, code: int) -> None:
    run.machine.synchronize()
    if code:
        raise ProgramError(f"the program called exit({code})", op.span)
    raise Exit(code)


def _abort(run: Any, op: HostCall) -> None:
    raise ProgramError("the program called abort()", op.span)


def _throw(run: Any, op: HostCall, text: int = 0) -> None:
    told = f": {text_at(run, text, op)}" if text else ""
    hint = "what catches exceptions is not run: they end the program"
    raise ProgramError(f"the program throws an exception{told}", op.span, hint)


def _own(name: str, result: Any, *types: Any, texts: tuple[int, ...] = ()) -> Handler:
    """The C library's own function. `texts`: arguments that are read as text."""

    def call(run: Any, op: HostCall, *args: Any) -> Any:
        for k in texts:
            text_at(run, args[k], op)
        function = getattr(ctypes.CDLL(None), name)
        function.restype, function.argtypes = result, list(types)
        found = function(*args)
        return 0 if found is None and result is ctypes.c_void_p else found

    return call


_INT, _LONG, _DOUBLE, _AT = ctypes.c_int, ctypes.c_long, ctypes.c_double, ctypes.c_void_p

LIBC: dict[str, Handler] = {
    "printf": _printf,
    "fprintf": _fprintf,
    "sprintf": _sprintf,
    "snprintf": _snprintf,
    "puts": _puts,
    "fputs": _fputs,
    "putchar": _putchar,
    "fputc": _putchar,
    "putc": _putchar,
    "strcpy": _strcpy,
    "strncpy": _strcpy,
    "strcat": _strcat,
    "perror": lambda run, op, text: _put(run, STDERR, text_at(run, text, op) + "\n") and None,
    "strlen": lambda run, op, text: len(text_at(run, text, op).encode()),
    "strcmp": _own("strcmp", _INT, _AT, _AT, texts=(0, 1)),
    "strncmp": _own("strncmp", _INT, _AT, _AT, ctypes.c_size_t),
    "strchr": _own("strchr", _AT, _AT, _INT, texts=(0,)),
    "memcmp": _own("memcmp", _INT, _AT, _AT, ctypes.c_size_t),
    "atoi": _own("atoi", _INT, _AT, texts=(0,)),
    "atol": _own("atol", _LONG, _AT, texts=(0,)),
    "atoll": _own("atoll", _LONG, _AT, texts=(0,)),
    "atof": _own("atof", _DOUBLE, _AT, texts=(0,)),
    "strtol": _own("strtol", _LONG, _AT, _AT, _INT, texts=(0,)),
    "strtoll": _own("strtoll", _LONG, _AT, _AT, _INT, texts=(0,)),
    "strtoul": _own("strtoul", ctypes.c_ulong, _AT, _AT, _INT, texts=(0,)),
    "strtoull": _own("strtoull", ctypes.c_ulong, _AT, _AT, _INT, texts=(0,)),
    "strtod": _own("strtod", _DOUBLE, _AT, _AT, texts=(0,)),
    "strtof": _own("strtof", ctypes.c_float, _AT, _AT, texts=(0,)),
    "getenv": lambda run, op, name: 0,
    "rand": _own("rand", _INT),
    "srand": _own("srand", None, ctypes.c_uint),
    "random": _own("random", _LONG),
    "srandom": _own("srandom", None, ctypes.c_uint),
    "drand48": _own("drand48", _DOUBLE),
    "srand48": _own("srand48", None, _LONG),
    "lrand48": _own("lrand48", _LONG),
    **{name: _own(name, _INT, _INT) for name in ("isdigit", "isspace", "isalpha", "tolower", "toupper")},
    "time": _time,
    "clock": lambda run, op: time.process_time_ns() // 1000,
    "gettimeofday": lambda run, op, to, zone: _clock_of_day(run, op, to, 1000),
    "clock_gettime": lambda run, op, which, to: _clock_of_day(run, op, to, 1),
    "__kg_nanoseconds": lambda run, op: time.perf_counter_ns(),
    "getpid": _own("getpid", _INT),
    "exit": _exit,
    "abort": _abort,
    "throw": _throw,
    "fopen": _fopen,
    "fclose": _own("fclose", _INT, _AT),
    "feof": _own("feof", _INT, _AT),
    "fseek": _own("fseek", _INT, _AT, _LONG, _INT),
    "ftell": _own("ftell", _LONG, _AT),
    "rewind": _own("rewind", None, _AT),
    **dict.fromkeys(("fgetc", "getc"), _own("fgetc", _INT, _AT)),
    "ungetc": _own("ungetc", _INT, _INT, _AT),
    "fscanf": _fscanf,
    "sscanf": _sscanf,
    "strdup": lambda run, op, text: _new_text(run, op, text_at(run, text, op).encode()),
    "strstr": _own("strstr", _AT, _AT, _AT, texts=(0, 1)),
    "strrchr": _own("strrchr", _AT, _AT, _INT, texts=(0,)),
    "strcasecmp": _own("strcasecmp", _INT, _AT, _AT, texts=(0, 1)),
    "strtok": _strtok,
    "rand_r": _rand_r,
    "__kg_open_text": _open_text,
    "__kg_text_of": _text_of,
    "remove": _own("remove", _INT, _AT, texts=(0,)),
    "fread": _fread,
    "fwrite": _fwrite,
    "fgets": _fgets,
    "<<": _stream_out,
    "<<char": _stream_char,
    "<<struct": _stream_struct,
    "ostream::flush": lambda run, op, stream: stream,
    "ostream::precision": lambda run, op, stream, digits: run.state.set_precision(digits),
    "ostream::put": _stream_char,
    "ostream::write": _stream_write,
    "ostream::width": lambda run, op, stream, columns: run.state.set_columns(columns),
}
