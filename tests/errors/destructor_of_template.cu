template <class T> struct Guard {
  T* p;
  __device__ Guard(T* q) : p(q) {}
  __device__ ~Guard() { *p = 1; }
};
__global__ void k(int* y) {
  Guard<int> g(y);  // error: UnsupportedError: 'Guard<int>' has a destructor: not supported // at: g(y)
  y[1] = 2;
}
