"""IR to native code through LLVM (llvmlite).

A kernel becomes a function over a range of the grid's blocks; the threads of a block are loops, split where threads
must meet. From the bottom up:

    llvm_types, metadata, expr                 LLVM's types and hints; formulas
    convert, scalars, elementary, special,
    rounding, bits -> functions                pure functions, one row each
    shared, frame, memory, threads             shared memory; the code of one thread
    indexing, strides, plan                    what is known about a kernel before its code is made (Note [Phases])
    invariant, sections, narrow                rows between their bounds, phases of some threads
    totals, block_sums, worker_sums, ranges       additions to the same elements
    loops, blocks, structure, collectives      the code of a block (Notes [Rows] and [Masks])
    watch                                      check mode's additions
    kernel                                     all of it: `lower`
    notes                                      what `explain` tells
    codegen                                    LLVM's optimiser
    native                                     that in a process of its own (Note [Isolation]), machine code in this one
"""
