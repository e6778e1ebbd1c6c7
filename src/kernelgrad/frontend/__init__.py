"""CUDA C++ text to IR, through libclang. `unit` finds functions, `lowering` turns them into IR."""
