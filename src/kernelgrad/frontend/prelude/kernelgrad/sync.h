// Barriers, fences, clocks. __syncthreads itself is built into clang.
#pragma once

int __syncthreads_count(int predicate);
int __syncthreads_and(int predicate);
int __syncthreads_or(int predicate);
void __syncwarp(unsigned int mask = 0xffffffffu);
void __threadfence_block();
void __threadfence();
void __threadfence_system();

long clock();
long long clock64();
long long __globaltimer();

void __trap();
void __brkpt();
void __nanosleep(unsigned int nanoseconds);
inline void __prof_trigger(int) {}
