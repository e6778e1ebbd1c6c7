// What programs that ask Enzyme for derivatives declare, for those that include it from somewhere. Their own
// declarations of the same may follow.
#pragma once

extern int enzyme_dup, enzyme_dupnoneed, enzyme_out, enzyme_const, enzyme_allocated;

template <class R = void, class... A> __host__ __device__ R __enzyme_autodiff(A... arguments);
template <class R = void, class... A> __host__ __device__ R __enzyme_fwddiff(A... arguments);
template <class R = void *, class... A> __host__ __device__ R __enzyme_augmentfwd(A... arguments);
template <class R = void, class... A> __host__ __device__ R __enzyme_reverse(A... arguments);
