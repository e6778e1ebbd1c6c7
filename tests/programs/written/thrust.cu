#include <thrust/device_vector.h>
#include <thrust/transform.h>
#include <thrust/reduce.h>
#include <thrust/functional.h>
#include "kernels.h"
double run(double *x, int n) {
    thrust::device_vector<double> a(x, x + n), b(n);
    thrust::transform(a.begin(), a.end(), a.begin(), b.begin(), thrust::multiplies<double>());
    mix<<<1, 32>>>(thrust::raw_pointer_cast(b.data()), thrust::raw_pointer_cast(a.data()), 0.5, n);
    return thrust::reduce(a.begin(), a.end(), 0.0, thrust::plus<double>());
}
