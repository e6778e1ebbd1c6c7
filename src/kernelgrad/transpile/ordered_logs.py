"""Deterministic sums in C++: what threads logged is sorted and added up after the launch, by the kernels and in the
order that a launch from Python has (`launches/memory/ordered_adds`)."""

from __future__ import annotations

import re
from pathlib import Path

from ..launches.memory import ordered_adds

_HOST = """\
// Adjoints, as elements of one type: where they begin, and how many there are.
template <typename T>
struct Elements {
    T *start;
    size_t count;
};

// Adds what was logged: sorts it by the element that it goes to, then adds up what each gets in the order of the log.
template <typename T>
void add_logged(Scratch &scratch, Key *keys, const T *values, long long count, const std::vector<Elements<T>> &adjoints)
{
    if (count == 0 || scratch.error != cudaSuccess) return;
    std::vector<T *> host_starts;
    std::vector<Key> host_lengths;
    Key total = 0;
    for (const Elements<T> &one : adjoints) {
        host_starts.push_back(one.start);
        host_lengths.push_back(one.count);
        total += one.count;
    }
    T **starts = scratch.copy_of(host_starts);
    Key *lengths = scratch.copy_of(host_lengths);
    scratch.failed(cudaStreamSynchronize(scratch.stream)); // the vectors go
    long long blocks = (count + TILE - 1) / TILE;
    long long *positions = scratch.get<long long>(8 * count), *other_positions = scratch.get<long long>(8 * count);
    long long *counts = scratch.get<long long>(8 * blocks * DIGITS);
    Key *other_keys = scratch.get<Key>(8 * count);
    T *sorted = scratch.get<T>(count * sizeof(T));
    if (scratch.error != cudaSuccess) return;
    unsigned int each = (unsigned int)((count + THREADS - 1) / THREADS), tiles = (unsigned int)blocks;
    make_keys<<<each, THREADS, 0, scratch.stream>>>(
        keys, positions, count, (const Key *)starts, lengths, (long long)adjoints.size(), (Key)sizeof(T));
    for (long long shift = 0; shift < 64 && (total + 1) >> shift != 0; shift += DIGIT_BITS) {
        count_digits<<<tiles, THREADS, 0, scratch.stream>>>(keys, counts, count, shift);
        scan_counts<<<1, SCANNERS, 0, scratch.stream>>>(counts, blocks * DIGITS);
        move_by_digit<<<tiles, THREADS, 0, scratch.stream>>>(
            keys, positions, other_keys, other_positions, counts, count, shift);
        std::swap(keys, other_keys);
        std::swap(positions, other_positions);
    }
    take_values<T><<<each, THREADS, 0, scratch.stream>>>(values, positions, sorted, count);
    while (count > 0) {
        long long chunks = (count + CHUNK - 1) / CHUNK, last = chunks == 1;
        Key *next_keys = last ? nullptr : scratch.get<Key>(16 * chunks);
        T *next_values = last ? nullptr : scratch.get<T>(2 * chunks * sizeof(T));
        if (scratch.error != cudaSuccess) return;
        unsigned int groups = (unsigned int)((chunks + THREADS - 1) / THREADS);
        add_runs<T><<<groups, THREADS, 0, scratch.stream>>>(
            starts, lengths, keys, sorted, next_keys, next_values, count, last);
        keys = next_keys;
        sorted = next_values;
        count = last ? 0 : 2 * chunks;
    }
    scratch.failed(cudaGetLastError());
}
"""


def _kernels() -> str:
    """Of the file that launches from Python use, as functions of this file alone."""
    text = Path(ordered_adds.__file__).with_suffix(".cu").read_text()
    text = text[text.index("using Key") :]
    text = re.sub(r"^__(global|device)__", r"static __\1__", text, flags=re.M)
    return (
        text.replace("constexpr", "static constexpr")
        .replace("add(starts", "add_to(starts")
        .replace("void add(T *const", "void add_to(T *const")
    )


def ordered_logs() -> str:
    return f"{_kernels()}\n{_HOST}"
