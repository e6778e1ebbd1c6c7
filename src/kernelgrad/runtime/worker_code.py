"""What threads do while they share a launch's blocks (workers.py, Note [Worker pool]), as LLVM IR."""

from __future__ import annotations

import ctypes
import sys

from .guard import MARKED

_PIECE = 25_000_000  # nanoseconds that a piece of blocks is to take at most
_GROWTH = 4
_ROOM = 128  # bytes for a mutex, a condition variable or a set of signals, whatever the system
_MONOTONIC, _BLOCK_SIGNALS = (6, 1) if sys.platform == "darwin" else (1, 0)


class Job(ctypes.Structure):
    """`chunk`: blocks that a thread takes at once; `first`: of its first piece. `behind`: where in a worker's scratch
    memory the part lies that nobody may write (see `guard`), negative for none; `overrun`: how far somebody did."""

    _fields_ = (
        ("entry", ctypes.c_void_p),
        ("args", ctypes.c_char_p),
        ("launch", ctypes.c_char_p),
        ("status", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("chunk", ctypes.c_int64),
        ("first", ctypes.c_int64),
        ("scratch_bytes", ctypes.c_int64),
        ("behind", ctypes.c_int64),
        ("next", ctypes.c_int64),
        ("active", ctypes.c_int64),
        ("helpers", ctypes.c_int64),
        ("stopped", ctypes.c_int64),
        ("overrun", ctypes.c_int64),
        ("following", ctypes.c_void_p),
    )


_FIELD = {name: k for k, (name, _) in enumerate(Job._fields_)}
_POOL = {"mutex": 0, "work": _ROOM, "done": 2 * _ROOM, "head": 3 * _ROOM, "threads": 3 * _ROOM + 8}
POOL_BYTES = 4 * _ROOM


def _job(name: str, variable: str) -> str:
    return f"  %{variable} = getelementptr i64, ptr %job, i64 {_FIELD[name]}"


def _pool(name: str) -> str:
    return f"  %{name} = getelementptr i8, ptr %pool, i64 {_POOL[name]}"


# state: where the thread's blocks begin and end, and the length of its next piece
SOURCE = f"""
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_timedwait(ptr, ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @clock_gettime(i32, ptr)
declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)

define internal i64 @now(i32 %clock) {{
  %time = alloca [2 x i64]
  %failed = call i32 @clock_gettime(i32 %clock, ptr %time)
  %rest_at = getelementptr i64, ptr %time, i64 1
  %seconds = load i64, ptr %time
  %rest = load i64, ptr %rest_at
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %rest
  ret i64 %now
}}

define internal void @look(ptr %job, ptr %behind) {{
start:
  br label %words
words:
  %k = phi i64 [ 0, %start ], [ %after, %words ]
  %all = phi i64 [ -1, %start ], [ %both, %words ]
  %word_at = getelementptr i64, ptr %behind, i64 %k
  %word = load i64, ptr %word_at, align 1
  %both = and i64 %all, %word
  %after = add i64 %k, 1
  %more = icmp slt i64 %after, {MARKED // 8}
  br i1 %more, label %words, label %ready
ready:
  %unwritten = icmp eq i64 %both, -1
  br i1 %unwritten, label %done, label %bytes
bytes:
  %end = phi i64 [ {MARKED}, %ready ], [ %before, %bytes ]
  %before = sub i64 %end, 1
  %byte_at = getelementptr i8, ptr %behind, i64 %before
  %byte = load i8, ptr %byte_at
  %marked = icmp eq i8 %byte, -1
  br i1 %marked, label %bytes, label %found
found:
{_job("overrun", "overrun")}
  %old = atomicrmw max ptr %overrun, i64 %end monotonic
  br label %done
done:
  ret void
}}

define i64 @"kg.work"(ptr %job, ptr %state, ptr %scratch, i64 %slice) {{
start:
{_job("entry", "entry_at")}
{_job("args", "args_at")}
{_job("launch", "launch_at")}
{_job("status", "status_at")}
{_job("count", "count_at")}
{_job("chunk", "chunk_at")}
{_job("behind", "behind_at")}
{_job("next", "next_at")}
{_job("stopped", "stopped_at")}
  %entry = load ptr, ptr %entry_at
  %args = load ptr, ptr %args_at
  %launch = load ptr, ptr %launch_at
  %status = load ptr, ptr %status_at
  %count = load i64, ptr %count_at
  %chunk = load i64, ptr %chunk_at
  %behind = load i64, ptr %behind_at
  %guarded = icmp sge i64 %behind, 0
  %marked = getelementptr i8, ptr %scratch, i64 %behind
  %end_at = getelementptr i64, ptr %state, i64 1
  %piece_at = getelementptr i64, ptr %state, i64 2
  %began = call i64 @now(i32 {_MONOTONIC})
  %until = add i64 %began, %slice
  br label %loop
loop:
  %time = phi i64 [ %began, %start ], [ %ended, %adapted ]
  %stopped = load atomic i64, ptr %stopped_at monotonic, align 8
  %is_stopped = icmp ne i64 %stopped, 0
  br i1 %is_stopped, label %over, label %go_on
go_on:
  %begin = load i64, ptr %state
  %end = load i64, ptr %end_at
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %run, label %take
take:
  %taken = atomicrmw add ptr %next_at, i64 %chunk monotonic
  %any = icmp slt i64 %taken, %count
  br i1 %any, label %got, label %over
got:
  %far = add i64 %taken, %chunk
  %near = call i64 @llvm.smin.i64(i64 %far, i64 %count)
  store i64 %near, ptr %end_at
  br label %run
run:
  %from = phi i64 [ %begin, %go_on ], [ %taken, %got ]
  %limit = phi i64 [ %end, %go_on ], [ %near, %got ]
  %piece = load i64, ptr %piece_at
  %wanted = add i64 %from, %piece
  %upto = call i64 @llvm.smin.i64(i64 %wanted, i64 %limit)
  br i1 %guarded, label %mark, label %call
mark:
  call void @llvm.memset.p0.i64(ptr %marked, i8 -1, i64 {MARKED}, i1 false)
  br label %call
call:
  call void %entry(ptr %args, ptr %launch, i64 %from, i64 %upto, ptr %scratch, ptr %status)
  br i1 %guarded, label %looked, label %called
looked:
  call void @look(ptr %job, ptr %marked)
  br label %called
called:
  store i64 %upto, ptr %state
  %ended = call i64 @now(i32 {_MONOTONIC})
  %took = sub i64 %ended, %time
  %short = icmp slt i64 %took, {_PIECE // _GROWTH}
  br i1 %short, label %grow, label %not_short
grow:
  %larger = mul i64 %piece, {_GROWTH}
  %bounded = call i64 @llvm.smin.i64(i64 %larger, i64 {1 << 40})
  store i64 %bounded, ptr %piece_at
  br label %adapted
not_short:
  %long = icmp sgt i64 %took, {_PIECE}
  br i1 %long, label %shrink, label %adapted
shrink:
  %smaller = sdiv i64 %piece, {_GROWTH}
  %least = call i64 @llvm.smax.i64(i64 %smaller, i64 1)
  store i64 %least, ptr %piece_at
  br label %adapted
adapted:
  %sliced = icmp ne i64 %slice, 0
  %late = icmp sgt i64 %ended, %until
  %back = and i1 %sliced, %late
  br i1 %back, label %later, label %loop
later:
  ret i64 1
over:
  ret i64 0
}}

define internal ptr @serve(ptr %pool) {{
start:
  %signals = alloca [{_ROOM} x i8], align 16
  %state = alloca [3 x i64]
  %memory = alloca ptr
{_pool("mutex")}
{_pool("work")}
{_pool("done")}
{_pool("head")}
  %filled = call i32 @sigfillset(ptr %signals)
  %blocked = call i32 @pthread_sigmask(i32 {_BLOCK_SIGNALS}, ptr %signals, ptr null)
  %locked = call i32 @pthread_mutex_lock(ptr %mutex)
  br label %look
look:
  %scratch = phi ptr [ null, %start ], [ %scratch, %wait ], [ %mine, %left ]
  %size = phi i64 [ 0, %start ], [ %size, %wait ], [ %room, %left ]
  %job = load ptr, ptr %head
  %idle = icmp eq ptr %job, null
  br i1 %idle, label %wait, label %join
wait:
  %waited = call i32 @pthread_cond_wait(ptr %work, ptr %mutex)
  br label %look
join:
{_job("helpers", "helpers_at")}
{_job("active", "active_at")}
{_job("following", "following_at")}
{_job("scratch_bytes", "needed_at")}
{_job("first", "first_at")}
  %helpers = load i64, ptr %helpers_at
  %left_over = sub i64 %helpers, 1
  store i64 %left_over, ptr %helpers_at
  %active = load i64, ptr %active_at
  %joined = add i64 %active, 1
  store i64 %joined, ptr %active_at
  %enough = icmp sle i64 %left_over, 0
  br i1 %enough, label %unlink, label %begin
unlink:
  %following = load ptr, ptr %following_at
  store ptr %following, ptr %head
  br label %begin
begin:
  %unlocked = call i32 @pthread_mutex_unlock(ptr %mutex)
  %needed = load i64, ptr %needed_at
  %fits = icmp sle i64 %needed, %size
  br i1 %fits, label %ready, label %allocate
allocate:
  call void @free(ptr %scratch)
  %failed = call i32 @posix_memalign(ptr %memory, i64 64, i64 %needed)
  %has_failed = icmp ne i32 %failed, 0
  %new = load ptr, ptr %memory
  br i1 %has_failed, label %leave, label %ready
ready:
  %has = phi ptr [ %scratch, %begin ], [ %new, %allocate ]
  %has_size = phi i64 [ %size, %begin ], [ %needed, %allocate ]
  %first = load i64, ptr %first_at
  store i64 0, ptr %state
  %end_at = getelementptr i64, ptr %state, i64 1
  %piece_at = getelementptr i64, ptr %state, i64 2
  store i64 0, ptr %end_at
  store i64 %first, ptr %piece_at
  %worked = call i64 @"kg.work"(ptr %job, ptr %state, ptr %has, i64 0)
  br label %leave
leave:
  %mine = phi ptr [ %has, %ready ], [ null, %allocate ]
  %room = phi i64 [ %has_size, %ready ], [ 0, %allocate ]
  %again = call i32 @pthread_mutex_lock(ptr %mutex)
  %now_active = load i64, ptr %active_at
  %fewer = sub i64 %now_active, 1
  store i64 %fewer, ptr %active_at
  %last = icmp eq i64 %fewer, 0
  br i1 %last, label %tell, label %left
tell:
  %told = call i32 @pthread_cond_broadcast(ptr %done)
  br label %left
left:
  br label %look
}}

define void @"kg.open"(ptr %pool) {{
{_pool("mutex")}
{_pool("work")}
{_pool("done")}
  call void @llvm.memset.p0.i64(ptr %pool, i8 0, i64 {POOL_BYTES}, i1 false)
  %a = call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  %b = call i32 @pthread_cond_init(ptr %work, ptr null)
  %c = call i32 @pthread_cond_init(ptr %done, ptr null)
  ret void
}}

define void @"kg.share"(ptr %pool, ptr %job, i64 %wanted) {{
start:
  %thread = alloca i64
{_pool("mutex")}
{_pool("work")}
{_pool("head")}
{_pool("threads")}
{_job("helpers", "helpers_at")}
{_job("following", "following_at")}
  %locked = call i32 @pthread_mutex_lock(ptr %mutex)
  br label %more
more:
  %count = load i64, ptr %threads
  %few = icmp slt i64 %count, %wanted
  br i1 %few, label %make, label %enough
make:
  %failed = call i32 @pthread_create(ptr %thread, ptr null, ptr @serve, ptr %pool)
  %has_failed = icmp ne i32 %failed, 0
  br i1 %has_failed, label %enough, label %made
made:
  %id = load i64, ptr %thread
  %detached = call i32 @pthread_detach(i64 %id)
  %one_more = add i64 %count, 1
  store i64 %one_more, ptr %threads
  br label %more
enough:
  store i64 %wanted, ptr %helpers_at
  %first = load ptr, ptr %head
  store ptr %first, ptr %following_at
  store ptr %job, ptr %head
  %woken = call i32 @pthread_cond_broadcast(ptr %work)
  %unlocked = call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}}

define i64 @"kg.finish"(ptr %pool, ptr %job, i64 %slice) {{
start:
  %time = alloca [2 x i64]
{_pool("mutex")}
{_pool("done")}
{_pool("head")}
{_job("active", "active_at")}
{_job("following", "following_at")}
  %locked = call i32 @pthread_mutex_lock(ptr %mutex)
  br label %search
search:
  %at = phi ptr [ %head, %start ], [ %next_at, %on ]
  %one = load ptr, ptr %at
  %end = icmp eq ptr %one, null
  br i1 %end, label %unlisted, label %compare
compare:
  %is_it = icmp eq ptr %one, %job
  br i1 %is_it, label %unlink, label %on
on:
  %next_at = getelementptr i64, ptr %one, i64 {_FIELD["following"]}
  br label %search
unlink:
  %behind = load ptr, ptr %following_at
  store ptr %behind, ptr %at
  br label %unlisted
unlisted:
  %some = load i64, ptr %active_at
  %none = icmp eq i64 %some, 0
  br i1 %none, label %out, label %wait
wait:
  %now = call i64 @now(i32 0)
  %until = add i64 %now, %slice
  %seconds = udiv i64 %until, 1000000000
  %rest = urem i64 %until, 1000000000
  %rest_at = getelementptr i64, ptr %time, i64 1
  store i64 %seconds, ptr %time
  store i64 %rest, ptr %rest_at
  %waited = call i32 @pthread_cond_timedwait(ptr %done, ptr %mutex, ptr %time)
  br label %out
out:
  %left = load i64, ptr %active_at
  %unlocked = call i32 @pthread_mutex_unlock(ptr %mutex)
  ret i64 %left
}}
"""
