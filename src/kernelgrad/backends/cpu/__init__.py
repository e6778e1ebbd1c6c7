"""IR to native code through LLVM (llvmlite).

A kernel becomes a function over a range of the grid's blocks; the threads of a block are loops, split where threads
must meet. From the bottom up:

    llvm_types, metadata, expr                 LLVM's types and hints; formulas
    convert, scalars, elementary, special,
    rounding, bits -> functions                pure functions, one row each
    frame, memory, threads                     the code of one thread
    indexing, strides, plan                    what is known about a kernel before its code is made (Note [Phases])
    invariant, sections, totals, own_sums      rows between their bounds, additions to the same elements
    loops, blocks, structure, collectives      the code of a block (Notes [Rows] and [Masks])
    watch                                      check mode's additions
    kernel                                     all of it: `lower`
    native                                     LLVM's optimiser, and machine code in this process
"""
