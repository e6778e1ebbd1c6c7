"""Texts that ask for derivatives, and what they compute."""

from __future__ import annotations

from typing import Any

CLAD = '#include "clad/Differentiator/Differentiator.h"\n#include <stdio.h>\n'
ENZYME = r"""
#include <stdio.h>
template <typename R = void, typename... A> R __enzyme_autodiff(A...);
template <typename R = void, typename... A> R __enzyme_fwddiff(A...);
int enzyme_dup, enzyme_const, enzyme_out;
"""
BODY = r"""
__device__ void collide_body(float *src, float *dst) {
    size_t idx = threadIdx.x;
    if (idx < 100) {
        dst[idx] += src[idx] * src[idx] - 3 * src[idx];
    }
}
extern __device__ int enzyme_allocated;
"""
POINTER = r"""
template <typename... Args> __device__ void *__enzyme_augmentfwd(Args...);
template <typename... Args> __device__ void __enzyme_reverse(Args...);
__global__ void aug_collide(float *src, float *dsrc, float *dst, float *ddst, void **tape) {
    size_t idx = threadIdx.x;
    tape[idx] = __enzyme_augmentfwd((void *)collide_body, src, dsrc, dst, ddst);
}
__global__ void rev_collide(float *src, float *dsrc, float *dst, float *ddst, void **tape) {
    size_t idx = threadIdx.x;
    __enzyme_reverse((void *)collide_body, src, dsrc, dst, ddst, tape[idx]);
}
"""
INLINE = r"""
template <typename... Args> __device__ float __enzyme_augmentfwd(Args...);
template <typename... Args> __device__ void __enzyme_reverse(Args...);
__global__ void aug_collide(float *src, float *dsrc, float *dst, float *ddst, float *tape) {
    size_t idx = threadIdx.x;
    tape[idx] = __enzyme_augmentfwd((void *)collide_body, enzyme_allocated, sizeof(float), src, dsrc, dst, ddst);
}
__global__ void rev_collide(float *src, float *dsrc, float *dst, float *ddst, float *tape) {
    size_t idx = threadIdx.x;
    __enzyme_reverse((void *)collide_body, enzyme_allocated, sizeof(float), src, dsrc, dst, ddst, tape[idx]);
}
"""
HOST = r"""
__global__ void collide(float *src, float *dst) { collide_body(src, dst); }
template <typename... Args> void __enzyme_autodiff(Args...);
__attribute__((noinline)) void kern(float *src, float *dst) { collide<<<1, 100>>>(src, dst); }
void iter(int nTimeSteps, float *src, float *dst) {
    for (unsigned int i = 0; i < nTimeSteps / 2; i++) {
        kern(src, dst);
        kern(dst, src);
    }
}
void grad_iter(int nTimeSteps, float *src, float *dsrc, float *dst, float *ddst) {
    __enzyme_autodiff(iter, nTimeSteps, src, dsrc, dst, ddst);
}
void *aug_kern(float *src, float *dsrc, float *dst, float *ddst) {
    TYPE *tape;
    cudaMalloc(&tape, sizeof(TYPE) * 100);
    aug_collide<<<1, 100>>>(src, dsrc, dst, ddst, tape);
    return (void *)tape;
}
void rev_kern(float *src, float *dsrc, float *dst, float *ddst, void *tape) {
    rev_collide<<<1, 100>>>(src, dsrc, dst, ddst, (TYPE *)tape);
    cudaFree(tape);
}
void *__enzyme_register_gradient_kern[3] = {(void *)kern, (void *)aug_kern, (void *)rev_kern};
"""


def with_passes(text: str, type: str) -> str:
    """A program with registered passes, whose tapes are of a type, "float " or "void *"."""
    return BODY + text + HOST.replace("TYPE ", type).replace("(TYPE)", f"({type})")


ITER = r"""
__global__ void collide(float *src, float *dst) {
    size_t idx = threadIdx.x;
    if (idx < 100) dst[idx] += src[idx] * src[idx] - 3 * src[idx];
}
void kern(float *src, float *dst) { collide<<<1, 100>>>(src, dst); }
void iter(int nTimeSteps, float *src, float *dst) {
    for (unsigned int i = 0; i < nTimeSteps / 2; i++) {
        kern(src, dst);
        kern(dst, src);
    }
}
"""


def iterated(steps: int, src: Any, dst: Any) -> Any:
    for _ in range(steps // 2):
        dst = dst + src * src - 3 * src
        src = src + dst * dst - 3 * dst
    return src, dst


KERNELS = r"""
__device__ double device_fn_4(double *in, double val) { return in[threadIdx.x + blockIdx.x * blockDim.x] + val; }
__device__ double device_with_device_call(double *in, double val) { return device_fn_4(in, val); }
__global__ void nested(double *out, double *in, double val) {
    int index = threadIdx.x;
    out[index] = device_with_device_call(in, val) * val;
}
"""
LAUNCHES = r"""
    int main() {
        double *in, *out, *d_in, *d_out, *d_val, host[10], sum = 0;
        cudaMalloc(&in, 80); cudaMalloc(&out, 80); cudaMalloc(&d_in, 80); cudaMalloc(&d_out, 80); cudaMalloc(&d_val, 8);
        for (int i = 0; i < 10; i++) host[i] = 5;
        cudaMemcpy(in, host, 80, cudaMemcpyHostToDevice);
        cudaMemcpy(d_out, host, 80, cudaMemcpyHostToDevice);
        cudaMemset(d_in, 0, 80); cudaMemset(d_val, 0, 8);
        cudaStream_t stream; cudaStreamCreate(&stream);
        auto test = clad::gradient(nested);
        test.execute_kernel(CONFIGURATION, out, in, 7.0, d_out, d_in, d_val);
        cudaMemcpy(host, d_in, 80, cudaMemcpyDeviceToHost);
        cudaMemcpy(&sum, d_val, 8, cudaMemcpyDeviceToHost);
        printf("%g %g %g\n", host[0], host[9], sum);
        clad::gradient(nested, "out, in").execute_kernel(CONFIGURATION, out, in, 2.0, d_in, d_out);
        cudaMemcpy(host, d_out, 80, cudaMemcpyDeviceToHost);
        printf("%g %g\n", host[0], host[9]);
        return 0;
    }
    """
TOTAL = r"""
    __global__ void scale(double *out, const double *in, double by) { out[threadIdx.x] = in[threadIdx.x] * by; }
    double total(double *in, double by) {
        double *dev, *out, host[4], sum = 0;
        cudaMalloc(&dev, 32); cudaMalloc(&out, 32);
        cudaMemcpy(dev, in, 32, cudaMemcpyHostToDevice);
        scale<<<1, 4>>>(out, dev, by);
        cudaMemcpy(host, out, 32, cudaMemcpyDeviceToHost);
        for (int i = 0; i < 4; i++) sum += host[i] * host[i];
        cudaFree(dev); cudaFree(out);
        return sum;
    }
    int main() {
        double in[4] = {1, 2, 3, 4}, d_in[4] = {}, d_by = 0;
        auto g = clad::gradient(total);
        g.execute(in, 2.0, d_in, &d_by);
        printf("%g %g %g %g, %g\n", d_in[0], d_in[1], d_in[2], d_in[3], d_by);
        printf("%g\n", clad::differentiate(total, "by").execute(in, 2.0));
    }
    """
