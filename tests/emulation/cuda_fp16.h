// See cuda_emulation.h.
