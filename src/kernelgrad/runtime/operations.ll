; Note [Programs] in operations.py tells what this does. `program.x` and `entry.x` are where the word x is in a program and
; in one of its entries; operations.py fills them in. A status: which place failed 0, thread 8, block 16; bytes behind
; dynamic shared memory 24.

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare ptr @malloc(i64)
declare void @free(ptr)
declare i32 @sched_yield()
declare i32 @fflush(ptr)
declare i32 @fegetenv(ptr)
declare i32 @fesetenv(ptr)

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

; All entries of a program, once for each entry of the batch; `bases`, where its buffers are, moves along with those. The
; number of the entry that failed, -1 for none. `share`: makes a launch with the help of other threads.
define i64 @"kg.run"(ptr %frame, ptr %p, ptr %bases, ptr %stream, ptr %status, ptr %share) {
start:
  %buffers.at = getelementptr i8, ptr %p, i64 program.buffers
  %buffers = load i64, ptr %buffers.at
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
  %scratch = select i1 %gpu, ptr %stream, ptr %room
  %environment = alloca [64 x i8], align 16
  %kept_environment = call i32 @fegetenv(ptr %environment)
  %set_environment = call i32 @fesetenv(ptr inttoptr (i64 -1 to ptr))
  call void @llvm.memset.p0.i64(ptr %status, i8 0, i64 32, i1 false)
  br label %batches
batches:
  %b = phi i64 [ 0, %ready ], [ %b.after, %moved ]
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
  call void %share(ptr %frame, ptr %p, ptr %entry, ptr %arguments_here, ptr %scratch, ptr %status)
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
  ret i64 %e
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
  ret i64 -1
}

; The same for who has no frame. `given`: the addresses of the buffers, then numbers, which are one of the buffers. -2
; where another context is current than that of the device; -3 where buffers overlap that may not.
define i64 @"kg.replay"(ptr %p, ptr %given, ptr %stream, ptr %status) {
start:
  %context_of.at = getelementptr i8, ptr %p, i64 program.context_of
  %context_of = load ptr, ptr %context_of.at
  %on_cpu = icmp eq ptr %context_of, null
  br i1 %on_cpu, label %here, label %ask
ask:
  %found = alloca i64, align 8
  store i64 0, ptr %found
  %asked = call i32 %context_of(ptr %found)
  %current = load i64, ptr %found
  %context.at = getelementptr i8, ptr %p, i64 program.context
  %context = load i64, ptr %context.at
  %same = icmp eq i64 %current, %context
  br i1 %same, label %here, label %elsewhere
elsewhere:
  ret i64 -2
here:
  %buffers.at = getelementptr i8, ptr %p, i64 program.buffers
  %buffers = load i64, ptr %buffers.at
  %pairs.at = getelementptr i8, ptr %p, i64 program.pair_count
  %pairs = load i64, ptr %pairs.at
  %apart.at = getelementptr i8, ptr %p, i64 program.pairs
  %apart = load ptr, ptr %apart.at
  br label %look
look:
  %k = phi i64 [ 0, %here ], [ %after, %fine ]
  %more = icmp slt i64 %k, %pairs
  br i1 %more, label %pair, label %checked
pair:
  %pair.at = getelementptr [4 x i64], ptr %apart, i64 %k
  %one = load i64, ptr %pair.at
  %one.bytes.at = getelementptr i8, ptr %pair.at, i64 8
  %one.bytes = load i64, ptr %one.bytes.at
  %other.at = getelementptr i8, ptr %pair.at, i64 16
  %other = load i64, ptr %other.at
  %other.bytes.at = getelementptr i8, ptr %pair.at, i64 24
  %other.bytes = load i64, ptr %other.bytes.at
  %one.base.at = getelementptr i64, ptr %given, i64 %one
  %one.base = load i64, ptr %one.base.at
  %other.base.at = getelementptr i64, ptr %given, i64 %other
  %other.base = load i64, ptr %other.base.at
  %one.end = add i64 %one.base, %one.bytes
  %other.end = add i64 %other.base, %other.bytes
  %before = icmp ule i64 %one.end, %other.base
  %behind = icmp ule i64 %other.end, %one.base
  %is_apart = or i1 %before, %behind
  br i1 %is_apart, label %fine, label %overlapping
fine:
  %after = add i64 %k, 1
  br label %look
overlapping:
  ret i64 -3
checked:
  %bases = alloca i64, i64 %buffers, align 8
  %bytes = mul i64 %buffers, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %bases, ptr %given, i64 %bytes, i1 false)
  %numbers.at = getelementptr i8, ptr %p, i64 program.numbers
  %numbers = load i64, ptr %numbers.at
  %numbers.base.at = getelementptr i64, ptr %bases, i64 %numbers
  %behind_them = getelementptr i8, ptr %given, i64 %bytes
  store ptr %behind_them, ptr %numbers.base.at
  call void @llvm.memset.p0.i64(ptr %status, i8 0, i64 32, i1 false)
  %which = call i64 @"kg.run"(ptr null, ptr %p, ptr %bases, ptr %stream, ptr %status, ptr null)
  %went = icmp slt i64 %which, 0
  br i1 %went, label %done, label %failed
failed:
  ret i64 %which
done:
  ret i64 -1
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
