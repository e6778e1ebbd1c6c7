"""IR to native code through LLVM (llvmlite).

A kernel becomes a function over a range of the grid's blocks; the threads of a block are loops, split where threads
must meet (Note [Phases] in `plan`). From the bottom up: `llvm_types`, `convert`, `scalars`, `math`, ... are values;
`memory` and `threads` the code of one thread; `plan`, `blocks`, `collectives` that of a block; `kernel` the whole;
`native` hands it to LLVM.
"""
