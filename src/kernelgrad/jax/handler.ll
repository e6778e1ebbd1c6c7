; Note [Handlers] in handler.py tells what this does. `program.x` and `entry.x` are where the word x is in a program and
; in one of its entries, as in runtime/operations.ll, which stands before this. Offsets of frames are those of xla/ffi/api/c_api.h:
;
;   frame   extension 8, api 16, context 24, stage 32, count and list of arguments 56, 72, of results 96, 112
;   api     version 32, functions: error 48, destroy error 64, stream 80, schedule 136
;   buffer  data 24
;   status  which place failed 0, thread 8, block 16; bytes behind dynamic shared memory 24

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
  %on_gpu.at = getelementptr i8, ptr %p, i64 program.on_gpu
  %on_gpu = load i64, ptr %on_gpu.at
  %gpu = icmp ne i64 %on_gpu, 0
  br i1 %gpu, label %stream, label %ready
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
  br i1 %has_stream, label %ready, label %streamless
streamless:
  ret ptr %no_stream
ready:
  %run_on = phi ptr [ null, %begin ], [ %found_stream, %stream ]
  %which = call i64 @"kg.run"(ptr %frame, ptr %p, ptr %bases, ptr %run_on, ptr %status, ptr @"kg.shared")
  %failed = icmp sge i64 %which, 0
  br i1 %failed, label %failure, label %done
failure:
  %made = call ptr @"kg.failed"(ptr %frame, ptr %p, i64 %which, ptr %status)
  ret ptr %made
done:
  ret ptr null
}
