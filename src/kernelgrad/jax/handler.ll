; Note [Handlers] in handler.py tells what this does. `program.x` and `entry.x` are where the word x is in a program and
; in one of its entries; handler.py fills them in. Offsets of frames are those of xla/ffi/api/c_api.h:
;
;   frame   extension 8, api 16, context 24, stage 32, count and list of arguments 56, 72, of results 96, 112
;   api     version 32, functions: error 48, destroy error 64, stream 80, schedule 136
;   buffer  data 24
;   status  which place failed 0, thread 8, block 16; bytes behind dynamic shared memory 24

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare ptr @malloc(i64)
declare void @free(ptr)
declare i32 @sched_yield()
declare i32 @fflush(ptr)
declare i32 @fegetenv(ptr)
declare i32 @fesetenv(ptr)

; An error of XLA's, with this text.
define internal ptr @"kg.error"(ptr %frame, ptr %message) {
  %asked = alloca [32 x i8], align 8
  %api.at = getelementptr i8, ptr %frame, i64 16
  %api = load ptr, ptr %api.at
  %create.at = getelementptr i8, ptr %api, i64 48
  %create = load ptr, ptr %create.at
  %next = getelementptr i8, ptr %asked, i64 8
  %text = getelementptr i8, ptr %asked, i64 16
  %code = getelementptr i8, ptr %asked, i64 24
  store i64 28, ptr %asked
  store ptr null, ptr %next
  store ptr %message, ptr %text
  store i32 13, ptr %code
  %made = call ptr %create(ptr %asked)
  ret ptr %made
}

; The error for an entry that left a status: Python finds the words.
define internal ptr @"kg.failed"(ptr %frame, ptr %p, i64 %which, ptr %status) noinline {
  %message = alloca [4096 x i8], align 8
  store i8 0, ptr %message
  %describe.at = getelementptr i8, ptr %p, i64 program.describe
  %describe = load ptr, ptr %describe.at
  %number.at = getelementptr i8, ptr %p, i64 program.number
  %number = load i64, ptr %number.at
  call void %describe(i64 %number, i64 %which, ptr %status, ptr %message, i64 4096)
  %made = call ptr @"kg.error"(ptr %frame, ptr %message)
  ret ptr %made
}

; A range of blocks. Behind dynamic shared memory, `guard` bytes from the beginning of the scratch memory, a pattern tells
; what was written there (runtime/guard.py).
define internal void @"kg.blocks"(ptr %code, ptr %args, ptr %launch, i64 %begin, i64 %end, ptr %scratch, ptr %status, i64 %guard) {
start:
  %guarded = icmp sge i64 %guard, 0
  br i1 %guarded, label %watched, label %plain
plain:
  call void %code(ptr %args, ptr %launch, i64 %begin, i64 %end, ptr %scratch, ptr %status)
  ret void
watched:
  %behind = getelementptr i8, ptr %scratch, i64 %guard
  call void @llvm.memset.p0.i64(ptr %behind, i8 -1, i64 4096, i1 false)
  call void %code(ptr %args, ptr %launch, i64 %begin, i64 %end, ptr %scratch, ptr %status)
  br label %next
next:
  %left = phi i64 [ 4096, %watched ], [ %before, %same ]
  %any = icmp ne i64 %left, 0
  br i1 %any, label %look, label %done
look:
  %before = sub i64 %left, 1
  %at = getelementptr i8, ptr %behind, i64 %before
  %byte = load i8, ptr %at
  %kept = icmp eq i8 %byte, -1
  br i1 %kept, label %same, label %written
same:
  br label %next
written:
  %overrun.at = getelementptr i8, ptr %status, i64 24
  %known = atomicrmw max ptr %overrun.at, i64 %left seq_cst
  %first = cmpxchg ptr %status, i32 0, i32 -1 seq_cst seq_cst
  ret void
done:
  ret void
}

; A launch that several threads share, in words: the next block, pieces under way, references, code, arguments, launch,
; blocks, blocks in a piece, scratch memory, bytes of that for each thread, status, guard, helpers so far. Who takes a piece
; says so before: whoever finds none left and none under way knows that all are done.

define internal void @"kg.drop"(ptr %s) {
start:
  %refs.at = getelementptr i64, ptr %s, i64 2
  %had = atomicrmw sub ptr %refs.at, i64 1 seq_cst
  %last = icmp eq i64 %had, 1
  br i1 %last, label %end, label %done
end:
  call void @free(ptr %s)
  br label %done
done:
  ret void
}

; Takes pieces while there are any.
define internal void @"kg.work"(ptr %s, ptr %scratch) {
start:
  %active.at = getelementptr i64, ptr %s, i64 1
  %code.at = getelementptr i8, ptr %s, i64 24
  %code = load ptr, ptr %code.at
  %args.at = getelementptr i8, ptr %s, i64 32
  %args = load ptr, ptr %args.at
  %launch.at = getelementptr i8, ptr %s, i64 40
  %launch = load ptr, ptr %launch.at
  %blocks.at = getelementptr i8, ptr %s, i64 48
  %blocks = load i64, ptr %blocks.at
  %chunk.at = getelementptr i8, ptr %s, i64 56
  %chunk = load i64, ptr %chunk.at
  %status.at = getelementptr i8, ptr %s, i64 80
  %status = load ptr, ptr %status.at
  %guard.at = getelementptr i8, ptr %s, i64 88
  %guard = load i64, ptr %guard.at
  br label %next
next:
  %a = atomicrmw add ptr %active.at, i64 1 seq_cst
  %begin = atomicrmw add ptr %s, i64 %chunk seq_cst
  %some = icmp slt i64 %begin, %blocks
  br i1 %some, label %piece, label %done
piece:
  %upto = add i64 %begin, %chunk
  %inside = icmp slt i64 %upto, %blocks
  %end = select i1 %inside, i64 %upto, i64 %blocks
  %failed = load atomic i32, ptr %status seq_cst, align 4
  %goes = icmp eq i32 %failed, 0
  br i1 %goes, label %run, label %ran
run:
  call void @"kg.blocks"(ptr %code, ptr %args, ptr %launch, i64 %begin, i64 %end, ptr %scratch, ptr %status, i64 %guard)
  br label %ran
ran:
  %b = atomicrmw sub ptr %active.at, i64 1 seq_cst
  br label %next
done:
  %c = atomicrmw sub ptr %active.at, i64 1 seq_cst
  ret void
}

; What XLA's threads are asked to do. It may begin when all is done, and then touches nothing but the list itself.
define internal void @"kg.help"(ptr %s) {
  %environment = alloca [64 x i8], align 16
  %kept_environment = call i32 @fegetenv(ptr %environment)
  %set_environment = call i32 @fesetenv(ptr inttoptr (i64 -1 to ptr))
  %count.at = getelementptr i64, ptr %s, i64 12
  %number = atomicrmw add ptr %count.at, i64 1 seq_cst
  %base.at = getelementptr i8, ptr %s, i64 64
  %base = load ptr, ptr %base.at
  %bytes.at = getelementptr i8, ptr %s, i64 72
  %bytes = load i64, ptr %bytes.at
  %offset = mul i64 %number, %bytes
  %scratch = getelementptr i8, ptr %base, i64 %offset
  call void @"kg.work"(ptr %s, ptr %scratch)
  call void @"kg.drop"(ptr %s)
  %reset_environment0 = call i32 @fesetenv(ptr %environment)
  ret void
}

; An entry, with the help of others.
define internal void @"kg.shared"(ptr %frame, ptr %p, ptr %entry, ptr %args, ptr %scratch, ptr %status) {
start:
  %s = call ptr @malloc(i64 104)
  %asked = alloca [40 x i8], align 8
  %dropped = alloca [24 x i8], align 8
  %workers.at = getelementptr i8, ptr %p, i64 program.workers
  %workers = load i64, ptr %workers.at
  %scratch_bytes.at = getelementptr i8, ptr %p, i64 program.scratch_bytes
  %scratch_bytes = load i64, ptr %scratch_bytes.at
  %code.at = getelementptr i8, ptr %entry, i64 entry.code
  %code = load ptr, ptr %code.at
  %launch.at = getelementptr i8, ptr %entry, i64 entry.launch
  %launch = load ptr, ptr %launch.at
  %blocks.at = getelementptr i8, ptr %entry, i64 entry.blocks
  %blocks = load i64, ptr %blocks.at
  %chunk.at = getelementptr i8, ptr %entry, i64 entry.chunk
  %chunk = load i64, ptr %chunk.at
  %guard.at = getelementptr i8, ptr %entry, i64 entry.guard
  %guard = load i64, ptr %guard.at
  %none = icmp eq ptr %s, null
  br i1 %none, label %alone, label %fill
alone:
  call void @"kg.blocks"(ptr %code, ptr %args, ptr %launch, i64 0, i64 %blocks, ptr %scratch, ptr %status, i64 %guard)
  ret void
fill:
  store i64 0, ptr %s
  %s1 = getelementptr i64, ptr %s, i64 1
  store i64 0, ptr %s1
  %s2 = getelementptr i64, ptr %s, i64 2
  store i64 %workers, ptr %s2
  %s3 = getelementptr i64, ptr %s, i64 3
  store ptr %code, ptr %s3
  %s4 = getelementptr i64, ptr %s, i64 4
  store ptr %args, ptr %s4
  %s5 = getelementptr i64, ptr %s, i64 5
  store ptr %launch, ptr %s5
  %s6 = getelementptr i64, ptr %s, i64 6
  store i64 %blocks, ptr %s6
  %s7 = getelementptr i64, ptr %s, i64 7
  store i64 %chunk, ptr %s7
  %s8 = getelementptr i64, ptr %s, i64 8
  store ptr %scratch, ptr %s8
  %s9 = getelementptr i64, ptr %s, i64 9
  store i64 %scratch_bytes, ptr %s9
  %s10 = getelementptr i64, ptr %s, i64 10
  store ptr %status, ptr %s10
  %s11 = getelementptr i64, ptr %s, i64 11
  store i64 %guard, ptr %s11
  %s12 = getelementptr i64, ptr %s, i64 12
  store i64 1, ptr %s12
  %api.at = getelementptr i8, ptr %frame, i64 16
  %api = load ptr, ptr %api.at
  %ctx.at = getelementptr i8, ptr %frame, i64 24
  %ctx = load ptr, ptr %ctx.at
  %schedule.at = getelementptr i8, ptr %api, i64 136
  %schedule = load ptr, ptr %schedule.at
  %destroy.at = getelementptr i8, ptr %api, i64 64
  %destroy = load ptr, ptr %destroy.at
  store i64 40, ptr %asked
  %asked1 = getelementptr i64, ptr %asked, i64 1
  store ptr null, ptr %asked1
  %asked2 = getelementptr i64, ptr %asked, i64 2
  store ptr %ctx, ptr %asked2
  %asked3 = getelementptr i64, ptr %asked, i64 3
  store ptr @"kg.help", ptr %asked3
  %asked4 = getelementptr i64, ptr %asked, i64 4
  store ptr %s, ptr %asked4
  br label %ask
ask:
  %k = phi i64 [ 1, %fill ], [ %after, %asking ], [ %after, %refused ]
  %more = icmp slt i64 %k, %workers
  br i1 %more, label %asking0, label %work
asking0:
  %after = add i64 %k, 1
  %error = call ptr %schedule(ptr %asked)
  %bad = icmp ne ptr %error, null
  br i1 %bad, label %refused, label %asking
asking:
  br label %ask
refused:
  store i64 24, ptr %dropped
  %dropped1 = getelementptr i64, ptr %dropped, i64 1
  store ptr null, ptr %dropped1
  %dropped2 = getelementptr i64, ptr %dropped, i64 2
  store ptr %error, ptr %dropped2
  call void %destroy(ptr %dropped)
  call void @"kg.drop"(ptr %s)
  br label %ask
work:
  call void @"kg.work"(ptr %s, ptr %scratch)
  %active.at = getelementptr i64, ptr %s, i64 1
  br label %wait
wait:
  %active = load atomic i64, ptr %active.at seq_cst, align 8
  %busy = icmp ne i64 %active, 0
  br i1 %busy, label %yield, label %done
yield:
  %y = call i32 @sched_yield()
  br label %wait
done:
  call void @"kg.drop"(ptr %s)
  ret void
}

@"kg.unaligned" = internal constant [59 x i8] c"a kernelgrad operator was given a buffer that is unaligned\00"
@"kg.miscounted" = internal constant [58 x i8] c"a kernelgrad operator was given another number of buffers\00"

; A call: all entries of a program, once for each entry of the batch.
define ptr @"kg.call"(ptr %frame, ptr %p) {
start:
  %status = alloca [32 x i8], align 8
  %asked = alloca [32 x i8], align 8
  %extension.at = getelementptr i8, ptr %frame, i64 8
  %extension = load ptr, ptr %extension.at
  %stage.at = getelementptr i8, ptr %frame, i64 32
  %stage = load i32, ptr %stage.at
  %plain = icmp eq ptr %extension, null
  br i1 %plain, label %staged, label %extended
extended:
  %kind.at = getelementptr i8, ptr %extension, i64 8
  %kind = load i32, ptr %kind.at
  %is_metadata = icmp eq i32 %kind, 1
  br i1 %is_metadata, label %metadata, label %staged
metadata:
  %told.at = getelementptr i8, ptr %extension, i64 24
  %told = load ptr, ptr %told.at
  %of_api.at = getelementptr i8, ptr %frame, i64 16
  %of_api = load ptr, ptr %of_api.at
  %major.at = getelementptr i8, ptr %told, i64 24
  %traits_out = getelementptr i8, ptr %told, i64 32
  %unknown = icmp eq ptr %of_api, null
  br i1 %unknown, label %oldest, label %same_version
same_version:
  %version.at = getelementptr i8, ptr %of_api, i64 32
  %version = load i64, ptr %version.at
  br label %oldest
oldest:
  %answer = phi i64 [ 4294967296, %metadata ], [ %version, %same_version ]
  store i64 %answer, ptr %major.at
  %traits.at = getelementptr i8, ptr %p, i64 program.traits
  %traits = load i64, ptr %traits.at
  %short_traits = trunc i64 %traits to i32
  store i32 %short_traits, ptr %traits_out
  ret ptr null
staged:
  %executes = icmp eq i32 %stage, 3
  br i1 %executes, label %execute, label %nothing
nothing:
  ret ptr null
execute:
  %arg_count.at = getelementptr i8, ptr %frame, i64 56
  %arg_count = load i64, ptr %arg_count.at
  %args.at = getelementptr i8, ptr %frame, i64 72
  %args = load ptr, ptr %args.at
  %ret_count.at = getelementptr i8, ptr %frame, i64 96
  %ret_count = load i64, ptr %ret_count.at
  %rets.at = getelementptr i8, ptr %frame, i64 112
  %rets = load ptr, ptr %rets.at
  %buffers.at = getelementptr i8, ptr %p, i64 program.buffers
  %buffers = load i64, ptr %buffers.at
  %given = add i64 %arg_count, %ret_count
  %right = icmp eq i64 %given, %buffers
  br i1 %right, label %counted, label %miscounted
miscounted:
  %no_call = call ptr @"kg.error"(ptr %frame, ptr @"kg.miscounted")
  ret ptr %no_call
counted:
  %bases = alloca i64, i64 %buffers, align 8
  br label %gather
gather:
  %k = phi i64 [ 0, %counted ], [ %k.after, %gathered ]
  %or = phi i64 [ 0, %counted ], [ %or.after, %gathered ]
  %more_buffers = icmp slt i64 %k, %buffers
  br i1 %more_buffers, label %gathering, label %all
gathering:
  %is_arg = icmp slt i64 %k, %arg_count
  %of_rets = sub i64 %k, %arg_count
  %place = select i1 %is_arg, i64 %k, i64 %of_rets
  %list = select i1 %is_arg, ptr %args, ptr %rets
  %buffer.at = getelementptr ptr, ptr %list, i64 %place
  %buffer = load ptr, ptr %buffer.at
  %data.at = getelementptr i8, ptr %buffer, i64 24
  %data = load i64, ptr %data.at
  %base.at = getelementptr i64, ptr %bases, i64 %k
  store i64 %data, ptr %base.at
  br label %gathered
gathered:
  %or.after = or i64 %or, %data
  %k.after = add i64 %k, 1
  br label %gather
all:
  %alignment.at = getelementptr i8, ptr %p, i64 program.alignment
  %alignment = load i64, ptr %alignment.at
  %odd = and i64 %or, %alignment
  %aligned = icmp eq i64 %odd, 0
  br i1 %aligned, label %begin, label %unaligned
unaligned:
  %no_alignment = call ptr @"kg.error"(ptr %frame, ptr @"kg.unaligned")
  ret ptr %no_alignment
begin:
  %template.at = getelementptr i8, ptr %p, i64 program.template
  %template = load ptr, ptr %template.at
  %template_bytes.at = getelementptr i8, ptr %p, i64 program.template_bytes
  %template_bytes = load i64, ptr %template_bytes.at
  %relocation_count.at = getelementptr i8, ptr %p, i64 program.relocation_count
  %relocation_count = load i64, ptr %relocation_count.at
  %relocations.at = getelementptr i8, ptr %p, i64 program.relocations
  %relocations = load ptr, ptr %relocations.at
  %entry_count.at = getelementptr i8, ptr %p, i64 program.entry_count
  %entry_count = load i64, ptr %entry_count.at
  %entries.at = getelementptr i8, ptr %p, i64 program.entries
  %entries = load ptr, ptr %entries.at
  %memory_buffer.at = getelementptr i8, ptr %p, i64 program.memory_buffer
  %memory_buffer = load i64, ptr %memory_buffer.at
  %memory_offset.at = getelementptr i8, ptr %p, i64 program.memory_offset
  %memory_offset = load i64, ptr %memory_offset.at
  %batch.at = getelementptr i8, ptr %p, i64 program.batch
  %batch = load i64, ptr %batch.at
  %strides.at = getelementptr i8, ptr %p, i64 program.strides
  %strides = load ptr, ptr %strides.at
  %on_gpu.at = getelementptr i8, ptr %p, i64 program.on_gpu
  %on_gpu = load i64, ptr %on_gpu.at
  %scratch_bytes.at = getelementptr i8, ptr %p, i64 program.scratch_bytes
  %scratch_bytes = load i64, ptr %scratch_bytes.at
  %from_xla = icmp sge i64 %memory_buffer, 0
  br i1 %from_xla, label %lent, label %own
lent:
  %lent.at = getelementptr i64, ptr %bases, i64 %memory_buffer
  %lent_base = load i64, ptr %lent.at
  %lent_end = add i64 %lent_base, %memory_offset
  %lent_start = and i64 %lent_end, -64
  %lent_memory = inttoptr i64 %lent_start to ptr
  br label %ready
own:
  %own_bytes = add i64 %template_bytes, %scratch_bytes
  %own_memory = alloca i8, i64 %own_bytes, align 64
  br label %ready
ready:
  %memory = phi ptr [ %lent_memory, %lent ], [ %own_memory, %own ]
  %room = getelementptr i8, ptr %memory, i64 %template_bytes
  %gpu = icmp ne i64 %on_gpu, 0
  br i1 %gpu, label %stream, label %batches0
stream:
  %api.at = getelementptr i8, ptr %frame, i64 16
  %api = load ptr, ptr %api.at
  %ctx.at = getelementptr i8, ptr %frame, i64 24
  %ctx = load ptr, ptr %ctx.at
  %get_stream.at = getelementptr i8, ptr %api, i64 80
  %get_stream = load ptr, ptr %get_stream.at
  store i64 32, ptr %asked
  %asked1 = getelementptr i64, ptr %asked, i64 1
  store ptr null, ptr %asked1
  %asked2 = getelementptr i64, ptr %asked, i64 2
  store ptr %ctx, ptr %asked2
  %asked3 = getelementptr i64, ptr %asked, i64 3
  store ptr null, ptr %asked3
  %no_stream = call ptr %get_stream(ptr %asked)
  %found_stream = load ptr, ptr %asked3
  %has_stream = icmp eq ptr %no_stream, null
  br i1 %has_stream, label %batches0, label %streamless
streamless:
  ret ptr %no_stream
batches0:
  %scratch = phi ptr [ %room, %ready ], [ %found_stream, %stream ]
  %environment = alloca [64 x i8], align 16
  %kept_environment = call i32 @fegetenv(ptr %environment)
  %set_environment = call i32 @fesetenv(ptr inttoptr (i64 -1 to ptr))
  call void @llvm.memset.p0.i64(ptr %status, i8 0, i64 32, i1 false)
  br label %batches
batches:
  %b = phi i64 [ 0, %batches0 ], [ %b.after, %moved ]
  %more_batches = icmp slt i64 %b, %batch
  br i1 %more_batches, label %copy, label %done
copy:
  call void @llvm.memcpy.p0.p0.i64(ptr %memory, ptr %template, i64 %template_bytes, i1 false)
  br label %relocate
relocate:
  %r = phi i64 [ 0, %copy ], [ %r.after, %relocating ]
  %more_relocations = icmp slt i64 %r, %relocation_count
  br i1 %more_relocations, label %relocating, label %steps
relocating:
  %r.at = getelementptr [3 x i64], ptr %relocations, i64 %r
  %r.to = load i64, ptr %r.at
  %r.of.at = getelementptr i8, ptr %r.at, i64 8
  %r.of = load i64, ptr %r.of.at
  %r.plus.at = getelementptr i8, ptr %r.at, i64 16
  %r.plus = load i64, ptr %r.plus.at
  %r.base.at = getelementptr i64, ptr %bases, i64 %r.of
  %r.base = load i64, ptr %r.base.at
  %r.address = add i64 %r.base, %r.plus
  %r.there = getelementptr i8, ptr %memory, i64 %r.to
  store i64 %r.address, ptr %r.there
  %r.after = add i64 %r, 1
  br label %relocate
steps:
  %e = phi i64 [ 0, %relocate ], [ %e.after, %went ]
  %more_entries = icmp slt i64 %e, %entry_count
  br i1 %more_entries, label %step, label %stepped
step:
  %entry = getelementptr [entry.words x i64], ptr %entries, i64 %e
  %code.at = getelementptr i8, ptr %entry, i64 entry.code
  %code = load ptr, ptr %code.at
  %arguments.at = getelementptr i8, ptr %entry, i64 entry.arguments
  %arguments = load i64, ptr %arguments.at
  %launch.at = getelementptr i8, ptr %entry, i64 entry.launch
  %launch = load ptr, ptr %launch.at
  %blocks.at = getelementptr i8, ptr %entry, i64 entry.blocks
  %blocks = load i64, ptr %blocks.at
  %chunk.at = getelementptr i8, ptr %entry, i64 entry.chunk
  %chunk = load i64, ptr %chunk.at
  %guard.at = getelementptr i8, ptr %entry, i64 entry.guard
  %guard = load i64, ptr %guard.at
  %arguments_here = getelementptr i8, ptr %memory, i64 %arguments
  %is_shared = icmp ne i64 %chunk, 0
  br i1 %is_shared, label %shared, label %alone
shared:
  call void @"kg.shared"(ptr %frame, ptr %p, ptr %entry, ptr %arguments_here, ptr %scratch, ptr %status)
  br label %look
alone:
  call void @"kg.blocks"(ptr %code, ptr %arguments_here, ptr %launch, i64 0, i64 %blocks, ptr %scratch, ptr %status, i64 %guard)
  br label %look
look:
  %prints.at = getelementptr i8, ptr %entry, i64 entry.prints
  %prints = load i64, ptr %prints.at
  %is_printing = icmp ne i64 %prints, 0
  br i1 %is_printing, label %flush, label %flushed
flush:
  %f = call i32 @fflush(ptr null)
  br label %flushed
flushed:
  %which = load i32, ptr %status
  %failed = icmp ne i32 %which, 0
  br i1 %failed, label %failure, label %went
went:
  %e.after = add i64 %e, 1
  br label %steps
failure:
  %reset_environment1 = call i32 @fesetenv(ptr %environment)
  %made = call ptr @"kg.failed"(ptr %frame, ptr %p, i64 %e, ptr %status)
  ret ptr %made
stepped:
  %b.after = add i64 %b, 1
  br label %move
move:
  %m = phi i64 [ 0, %stepped ], [ %m.after, %moving ]
  %more_moves = icmp slt i64 %m, %buffers
  br i1 %more_moves, label %moving, label %moved
moving:
  %m.at = getelementptr i64, ptr %bases, i64 %m
  %m.stride.at = getelementptr i64, ptr %strides, i64 %m
  %m.base = load i64, ptr %m.at
  %m.stride = load i64, ptr %m.stride.at
  %m.next = add i64 %m.base, %m.stride
  store i64 %m.next, ptr %m.at
  %m.after = add i64 %m, 1
  br label %move
moved:
  br label %batches
done:
  %reset_environment2 = call i32 @fesetenv(ptr %environment)
  ret ptr null
}

; Operations besides kernels, with a kernel's signature. On a GPU `launch` begins with the driver's functions, and
; `scratch` is the stream.

; Brings a number among the arguments of a launch that follows: its address, its size, how far from here it goes.
define void @"kg.tell"(ptr %args, ptr %launch, i64 %begin, i64 %end, ptr %scratch, ptr %status) {
  %source = load ptr, ptr %args
  %bytes.at = getelementptr i8, ptr %args, i64 8
  %bytes = load i64, ptr %bytes.at
  %offset.at = getelementptr i8, ptr %args, i64 16
  %offset = load i64, ptr %offset.at
  %target = getelementptr i8, ptr %args, i64 %offset
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %source, i64 %bytes, i1 false)
  ret void
}

; In `launch`: cuLaunchKernel, cuCtxGetDevice or null, grid and block and shared memory from 16 on, the bytes of the
; arguments 48, the functions by their devices from 56 on. The driver copies the arguments.
define void @"kg.gpu.launch"(ptr %args, ptr %launch, i64 %begin, i64 %end, ptr %scratch, ptr %status) {
start:
  %ordinal = alloca i32, align 4
  %size = alloca i64, align 8
  %extra = alloca [5 x i64], align 8
  store i32 0, ptr %ordinal
  %launching = load ptr, ptr %launch
  %device_of.at = getelementptr i8, ptr %launch, i64 8
  %device_of = load ptr, ptr %device_of.at
  %several = icmp ne ptr %device_of, null
  br i1 %several, label %ask, label %known
ask:
  %problem = call i32 %device_of(ptr %ordinal)
  %asked = icmp eq i32 %problem, 0
  br i1 %asked, label %known, label %failed
known:
  %device = load i32, ptr %ordinal
  %wide = sext i32 %device to i64
  %functions = getelementptr i8, ptr %launch, i64 56
  %function.at = getelementptr ptr, ptr %functions, i64 %wide
  %function = load ptr, ptr %function.at
  %d0.at = getelementptr i8, ptr %launch, i64 16
  %d0 = load i32, ptr %d0.at
  %d1.at = getelementptr i8, ptr %launch, i64 20
  %d1 = load i32, ptr %d1.at
  %d2.at = getelementptr i8, ptr %launch, i64 24
  %d2 = load i32, ptr %d2.at
  %d3.at = getelementptr i8, ptr %launch, i64 28
  %d3 = load i32, ptr %d3.at
  %d4.at = getelementptr i8, ptr %launch, i64 32
  %d4 = load i32, ptr %d4.at
  %d5.at = getelementptr i8, ptr %launch, i64 36
  %d5 = load i32, ptr %d5.at
  %d6.at = getelementptr i8, ptr %launch, i64 40
  %d6 = load i32, ptr %d6.at
  %bytes.at = getelementptr i8, ptr %launch, i64 48
  %bytes = load i64, ptr %bytes.at
  store i64 %bytes, ptr %size
  store i64 1, ptr %extra
  %extra1 = getelementptr i64, ptr %extra, i64 1
  store ptr %args, ptr %extra1
  %extra2 = getelementptr i64, ptr %extra, i64 2
  store i64 2, ptr %extra2
  %extra3 = getelementptr i64, ptr %extra, i64 3
  store ptr %size, ptr %extra3
  %extra4 = getelementptr i64, ptr %extra, i64 4
  store i64 0, ptr %extra4
  %result = call i32 %launching(ptr %function, i32 %d0, i32 %d1, i32 %d2, i32 %d3, i32 %d4, i32 %d5, i32 %d6, ptr %scratch, ptr null, ptr %extra)
  store i32 %result, ptr %status
  ret void
failed:
  store i32 %problem, ptr %status
  ret void
}

define void @"kg.gpu.move"(ptr %args, ptr %launch, i64 %begin, i64 %end, ptr %scratch, ptr %status) {
  %copy = load ptr, ptr %launch
  %target = load i64, ptr %args
  %source.at = getelementptr i8, ptr %args, i64 8
  %source = load i64, ptr %source.at
  %bytes.at = getelementptr i8, ptr %args, i64 16
  %bytes = load i64, ptr %bytes.at
  %result = call i32 %copy(i64 %target, i64 %source, i64 %bytes, ptr %scratch)
  store i32 %result, ptr %status
  ret void
}

define void @"kg.gpu.set8"(ptr %args, ptr %launch, i64 %begin, i64 %end, ptr %scratch, ptr %status) {
  %set = load ptr, ptr %launch
  %target = load i64, ptr %args
  %count.at = getelementptr i8, ptr %args, i64 8
  %count = load i64, ptr %count.at
  %pattern.at = getelementptr i8, ptr %args, i64 24
  %pattern = load i8, ptr %pattern.at
  %result = call i32 %set(i64 %target, i8 %pattern, i64 %count, ptr %scratch)
  store i32 %result, ptr %status
  ret void
}

define void @"kg.gpu.set16"(ptr %args, ptr %launch, i64 %begin, i64 %end, ptr %scratch, ptr %status) {
  %set = load ptr, ptr %launch
  %target = load i64, ptr %args
  %count.at = getelementptr i8, ptr %args, i64 8
  %count = load i64, ptr %count.at
  %pattern.at = getelementptr i8, ptr %args, i64 24
  %pattern = load i16, ptr %pattern.at
  %result = call i32 %set(i64 %target, i16 %pattern, i64 %count, ptr %scratch)
  store i32 %result, ptr %status
  ret void
}

define void @"kg.gpu.set32"(ptr %args, ptr %launch, i64 %begin, i64 %end, ptr %scratch, ptr %status) {
  %set = load ptr, ptr %launch
  %target = load i64, ptr %args
  %count.at = getelementptr i8, ptr %args, i64 8
  %count = load i64, ptr %count.at
  %pattern.at = getelementptr i8, ptr %args, i64 24
  %pattern = load i32, ptr %pattern.at
  %result = call i32 %set(i64 %target, i32 %pattern, i64 %count, ptr %scratch)
  store i32 %result, ptr %status
  ret void
}

; No fill of the driver's is that wide: the lower halves, then the upper ones.
define void @"kg.gpu.set64"(ptr %args, ptr %launch, i64 %begin, i64 %end, ptr %scratch, ptr %status) {
start:
  %set = load ptr, ptr %launch
  %target = load i64, ptr %args
  %count.at = getelementptr i8, ptr %args, i64 8
  %count = load i64, ptr %count.at
  %low.at = getelementptr i8, ptr %args, i64 24
  %low = load i32, ptr %low.at
  %high.at = getelementptr i8, ptr %args, i64 28
  %high = load i32, ptr %high.at
  %second = add i64 %target, 4
  %first_result = call i32 %set(i64 %target, i64 8, i32 %low, i64 1, i64 %count, ptr %scratch)
  %went = icmp eq i32 %first_result, 0
  br i1 %went, label %other, label %failed
other:
  %result = call i32 %set(i64 %second, i64 8, i32 %high, i64 1, i64 %count, ptr %scratch)
  store i32 %result, ptr %status
  ret void
failed:
  store i32 %first_result, ptr %status
  ret void
}

; As kg.tell, from the memory of the GPU, which the host waits for.
define void @"kg.gpu.fetch"(ptr %args, ptr %launch, i64 %begin, i64 %end, ptr %scratch, ptr %status) {
start:
  %fetch = load ptr, ptr %launch
  %wait.at = getelementptr i8, ptr %launch, i64 8
  %wait = load ptr, ptr %wait.at
  %source.at = getelementptr i8, ptr %args, i64 0
  %source = load i64, ptr %source.at
  %bytes.at = getelementptr i8, ptr %args, i64 8
  %bytes = load i64, ptr %bytes.at
  %offset.at = getelementptr i8, ptr %args, i64 16
  %offset = load i64, ptr %offset.at
  %target = getelementptr i8, ptr %args, i64 %offset
  %result = call i32 %fetch(ptr %target, i64 %source, i64 %bytes, ptr %scratch)
  %went = icmp eq i32 %result, 0
  br i1 %went, label %waiting, label %failed
waiting:
  %waited = call i32 %wait(ptr %scratch)
  store i32 %waited, ptr %status
  ret void
failed:
  store i32 %result, ptr %status
  ret void
}
